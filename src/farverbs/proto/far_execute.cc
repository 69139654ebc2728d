// What a FarResponder does in the order of message numbers, and the responses it keeps.
#include <algorithm>
#include <atomic>

#include "farverbs/base/fault_guard.h"
#include "farverbs/proto/completions.h"
#include "farverbs/proto/far_responder.h"

namespace farverbs::proto {

using model::AsyncEventType;
using model::CompletionStatus;
using model::MemoryVerdict;
using wire::NakCode;
using wire::OpKind;

void FarResponder::carry_out() {
  while (!failed_) {
    FarMessage* const message = messages_.front();
    if (message == nullptr || !message->complete()) return;
    conclude(*message);
  }
}

// The next message is complete.
void FarResponder::conclude(FarMessage& message) {
  if (!message.failed && carry_out(message)) {
    if (&message == current_) current_ = nullptr;
    messages_.pop_front();
  } else {
    refuse(message);
  }
}

// False: it has failed after all.
bool FarResponder::carry_out(FarMessage& message) {
  switch (message.kind) {
    case OpKind::write:
      if (message.holding) {
        const FarPlaced placed = placer_.place(messages_.first(), message, message.held_begin,
                                               {message.held, message.length - message.held_begin});
        if (placed != FarPlaced::kDone) {
          fail_placing(message, placed);
          return false;
        }
      }
      return !message.takes_receive || complete_receive(message);
    case OpKind::send:
      return complete_receive(message);
    case OpKind::read_request:
      return start_read(message);
    default:
      return execute_atomic(message);
  }
}

bool FarResponder::complete_receive(FarMessage& message) {
  // The receives of earlier messages have completed: this one must be the next.
  if (message.sequence != static_cast<uint32_t>(receives_.done())) {
    invalid(message);
    return false;
  }
  model::WorkCompletion completion;
  if (message.invalidates) {
    completion.invalidated_key = MemoryKey(message.immediate);
    completion.flags |= model::kWithInvalidate;
    if (qp_.memory.invalidate(completion.invalidated_key, qp_.pd, qp_.qpn) != MemoryVerdict::kOk) {
      fail(message, NakCode::remote_access_error, AsyncEventType::kQpAccessError);
      return false;
    }
  }
  completion.wr_id = message.receive->wqe.wr_id;
  completion.opcode = message.kind == OpKind::write ? model::CompletionOpcode::kReceiveWithImmediate
                                                    : model::CompletionOpcode::kReceive;
  completion.byte_length = message.length;
  completion.qpn = qp_.qpn;
  completion.source_qpn = qp_.attributes.destination_qpn;
  completion.service_level = qp_.attributes.address_vector.service_level;
  if (message.has_immediate) {
    completion.immediate = message.immediate;
    completion.flags |= model::kWithImmediate;
  }
  receives_.pop_front();
  if (qp_.receive_cq->push(completion, message.solicited)) return true;
  fail(message, NakCode::remote_operational_error, AsyncEventType::kQpFatal);
  return false;
}

bool FarResponder::start_read(FarMessage& message) {
  --waiting_responses_;
  if (qp_.memory
          .resolve(message.key, qp_.pd, model::kRemoteRead, message.address, message.wanted, true,
                   qp_.qpn)
          .verdict != MemoryVerdict::kOk) {
    fail(message, NakCode::remote_access_error, AsyncEventType::kQpAccessError);
    return false;
  }
  Response& read = responses_.emplace_back();
  read.message = static_cast<uint32_t>(messages_.first());
  read.address = message.address;
  read.key = message.key;
  read.length = message.wanted;
  return true;
}

bool FarResponder::execute_atomic(FarMessage& message) {
  --waiting_responses_;
  const model::MemoryAccess found = qp_.memory.resolve(
      message.key, qp_.pd, model::kRemoteAtomic, message.address, sizeof(uint64_t), true, qp_.qpn);
  if (found.verdict != MemoryVerdict::kOk) {
    fail(message, NakCode::remote_access_error, AsyncEventType::kQpAccessError);
    return false;
  }
  // A region may begin anywhere in this process's memory, whatever its peers call the address.
  if (reinterpret_cast<uintptr_t>(found.memory) % sizeof(uint64_t) != 0) {
    invalid(message);
    return false;
  }
  auto* const word = reinterpret_cast<uint64_t*>(found.memory);
  uint64_t original = message.compare;
  const bool there = guarded([&] {
    const std::atomic_ref<uint64_t> value(*word);
    if (message.kind == OpKind::compare_swap) {
      value.compare_exchange_strong(original, message.swap_or_add);
    } else {
      original = value.fetch_add(message.swap_or_add);
    }
  });
  if (!there) {
    fail(message, NakCode::remote_operational_error, AsyncEventType::kQpFatal);
    return false;
  }
  Response& response = responses_.emplace_back();
  response.message = static_cast<uint32_t>(messages_.first());
  response.atomic = true;
  response.original = original;
  response.length = sizeof(uint64_t);
  return true;
}

// The front can't be carried out, and everything before it has been: the end of this QP.
void FarResponder::refuse(const FarMessage& message) {
  failed_ = true;
  refused_message_ = static_cast<uint32_t>(messages_.first());
  refused_code_ = message.code;
  failure_event_ = message.event;
  if (message.receive_status != CompletionStatus::kSuccess && message.takes_receive &&
      message.sequence == static_cast<uint32_t>(receives_.done())) {
    fail_receive(qp_, message.receive->wqe.wr_id, message.receive_status);
    receives_.pop_front();
  }
  current_ = nullptr;
  messages_.clear();
}

// --- Responses

FarResponder::Response* FarResponder::next_response() {
  while (next_response_ < responses_.size() && !responses_[next_response_].to_send()) {
    ++next_response_;
  }
  return next_response_ < responses_.size() ? &responses_[next_response_] : nullptr;
}

FarResponder::Response* FarResponder::find_response(uint32_t message) {
  const auto found = std::partition_point(
      responses_.begin(), responses_.end(), [message](const Response& response) {
        return static_cast<int32_t>(response.message - message) < 0;
      });
  return found != responses_.end() && found->message == message ? &*found : nullptr;
}

void FarResponder::acknowledged(uint32_t message, uint32_t bytes) {
  Response* const response = find_response(message);
  if (response == nullptr) return;
  response->acknowledged += std::min(bytes, response->length - response->acknowledged);
  if (response->acknowledged < response->length || response->to_send()) return;
  const auto index = static_cast<uint32_t>(response - responses_.data());
  if (index < next_response_) --next_response_;
  responses_.erase(responses_.begin() + index);
}

void FarResponder::refuse_response(uint32_t message, NakCode code) {
  Response* const response = find_response(message);
  if (response == nullptr) return;
  // It is the last that is answered; those before it still are.
  responses_.erase(responses_.begin() + (response - responses_.data()), responses_.end());
  next_response_ = std::min(next_response_, static_cast<uint32_t>(responses_.size()));
  failed_ = true;
  refused_message_ = message;
  refused_code_ = code;
  failure_event_ = code == NakCode::remote_access_error ? AsyncEventType::kQpAccessError
                                                        : AsyncEventType::kQpFatal;
  current_ = nullptr;
  messages_.clear();
}

bool FarResponder::failed() const { return failed_; }
AsyncEventType FarResponder::failure_event() const { return failure_event_; }

}  // namespace farverbs::proto
