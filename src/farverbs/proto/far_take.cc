// The steps of a FarResponder from a packet to its message: what it may say, where its payload
// goes, and what it waits for.
#include <algorithm>

#include "farverbs/proto/far_responder.h"

namespace farverbs::proto {

using model::AsyncEventType;
using model::CompletionStatus;
using model::MemoryVerdict;
using wire::Extension;
using wire::NakCode;
using wire::OpKind;

FarResponder::Verdict FarResponder::take(Arrival& arrival, FarMessage& message) {
  const OpKind kind = arrival.packet.info->kind;
  if (message.kind == OpKind::unknown) message.kind = kind;
  if (message.failed) return Verdict::kTaken;
  if (message.kind != kind) return invalid(message);
  switch (kind) {
    case OpKind::write:
      return take_write(arrival, message);
    case OpKind::send:
      return take_send(arrival, message);
    case OpKind::read_request:
    case OpKind::compare_swap:
    case OpKind::fetch_add:
      return take_read_or_atomic(arrival, message);
    default:
      return invalid(message);
  }
}

// Where the packet's payload is in its message; false if that can't be.
bool FarResponder::extent(Arrival& arrival, const FarMessage& message, uint32_t offset) const {
  const uint64_t end = uint64_t{offset} + arrival.packet.payload().size();
  if (end > kMostMessageBytes) return false;
  arrival.offset = offset;
  arrival.end = static_cast<uint32_t>(end);
  if (message.ended) return arrival.last ? end == message.length : end <= message.length;
  return !arrival.last || end >= message.placed.end();
}

FarResponder::Verdict FarResponder::take_write(Arrival& arrival, FarMessage& message) {
  const wire::PacketView& packet = arrival.packet;
  const wire::FarPlace place = packet.far_place();
  const bool immediate = packet.has(Extension::imm);
  if ((qp_.attributes.access_flags & model::kRemoteWrite) == 0 || (immediate && !arrival.last) ||
      !extent(arrival, message, place.offset)) {
    return invalid(message);
  }
  const uint64_t address = place.address - place.offset;  // of byte 0; may wrap around
  if (message.begun && (address != message.address || place.rkey != message.key)) {
    return invalid(message);
  }
  message.begun = true;
  message.address = address;
  message.key = place.rkey;
  const auto payload = static_cast<uint32_t>(packet.payload().size());
  if (payload > 0) {
    const model::MemoryAccess found = qp_.memory.resolve(place.rkey, qp_.pd, model::kRemoteWrite,
                                                         place.address, payload, true, qp_.qpn);
    if (found.verdict != MemoryVerdict::kOk) {
      return fail(message, NakCode::remote_access_error, AsyncEventType::kQpAccessError);
    }
    message.checked_end = place.offset + static_cast<uint32_t>(std::min<uint64_t>(
                                             found.room, kMostMessageBytes - place.offset));
    message.entry = found.entry;
    message.memory = reinterpret_cast<uintptr_t>(found.memory) - place.offset;
  }
  if (!arrival.last) return this->place(arrival, message, arrival.end);
  if (message.ended) {
    // It has come before, perhaps cut differently. What is held must go on being held.
    const uint32_t end = message.holding ? message.held_begin : arrival.end;
    if (arrival.offset >= end) {
      ++qp_.counters.duplicates_received;
      return Verdict::kTaken;
    }
    return this->place(arrival, message, end);
  }
  if (immediate) {
    if (message.takes_receive && message.sequence != packet.far_sequence().receive) {
      return invalid(message);
    }
    message.sequence = packet.far_sequence().receive;
    switch (claim_receive(arrival.number, message)) {
      case Claim::kWrong:
        return invalid(message);
      case Claim::kNotReady:
        return not_ready();
      case Claim::kReady:
        break;
    }
  }
  if (arrival.number == messages_.first() && message.placed.prefix() >= arrival.offset) {
    const Verdict verdict = this->place(arrival, message, arrival.end);
    if (verdict == Verdict::kTaken) note_last(arrival, message);
    return verdict;
  }
  if (!messages_.hold(arrival.number, message, arrival.offset, packet.payload())) {
    return Verdict::kDropped;
  }
  note_last(arrival, message);
  ++qp_.counters.received_packets;
  qp_.counters.received_payload_bytes += payload;
  return Verdict::kTaken;
}

FarResponder::Verdict FarResponder::take_send(Arrival& arrival, FarMessage& message) {
  const wire::PacketView& packet = arrival.packet;
  const uint32_t sequence = packet.far_sequence().receive;
  const bool must_end = packet.has(Extension::imm) || packet.has(Extension::ieth);
  if ((must_end && !arrival.last) || !extent(arrival, message, packet.far_offset().offset) ||
      (message.begun && sequence != message.sequence)) {
    return invalid(message);
  }
  message.begun = true;
  message.sequence = sequence;
  switch (claim_receive(arrival.number, message)) {
    case Claim::kWrong:
      return invalid(message);
    case Claim::kNotReady:
      return not_ready();
    case Claim::kReady:
      break;
  }
  if (arrival.end > message.receive->wqe.length) {
    return fail(message, NakCode::invalid_request, AsyncEventType::kDeviceFatal,
                CompletionStatus::kLocalLengthError);
  }
  const Verdict verdict = place(arrival, message, arrival.end);
  if (verdict == Verdict::kTaken && arrival.last && !message.ended && !message.failed) {
    note_last(arrival, message);
  }
  return verdict;
}

FarResponder::Verdict FarResponder::take_read_or_atomic(const Arrival& arrival,
                                                        FarMessage& message) {
  const bool read = message.kind == OpKind::read_request;
  const uint32_t right = read ? model::kRemoteRead : model::kRemoteAtomic;
  if ((qp_.attributes.access_flags & right) == 0 || qp_.attributes.max_dest_rd_atomic == 0) {
    return invalid(message);
  }
  FarMessage asked;
  if (read) {
    const wire::Reth reth = arrival.packet.reth();
    asked.address = reth.address;
    asked.key = reth.rkey;
    asked.wanted = reth.length;
    if (reth.length > kMostMessageBytes) return invalid(message);
  } else {
    const wire::AtomicEth atomic = arrival.packet.atomic_eth();
    asked.address = atomic.address;
    asked.key = atomic.rkey;
    asked.compare = atomic.compare;
    asked.swap_or_add = atomic.swap_or_add;
    if (atomic.address % sizeof(uint64_t) != 0) return invalid(message);
  }
  if (message.ended) {
    const bool same = message.address == asked.address && message.key == asked.key &&
                      message.wanted == asked.wanted && message.compare == asked.compare &&
                      message.swap_or_add == asked.swap_or_add;
    if (!same) return invalid(message);
    ++qp_.counters.duplicates_received;
    return Verdict::kTaken;
  }
  // A requester may take a response for done whose acknowledgement is still on its way; more than
  // that is more than the QPs have agreed on.
  const size_t most = 2u * qp_.attributes.max_dest_rd_atomic + 16u;
  if (responses_.size() + waiting_responses_ >= most) return Verdict::kDropped;
  ++waiting_responses_;
  message.ended = true;
  message.address = asked.address;
  message.key = asked.key;
  message.wanted = asked.wanted;
  message.compare = asked.compare;
  message.swap_or_add = asked.swap_or_add;
  ++qp_.counters.received_packets;
  return Verdict::kTaken;
}

// --- Receives

FarResponder::Claim FarResponder::claim_receive(uint64_t number, FarMessage& message) {
  if (message.takes_receive) return Claim::kReady;
  // Each message before this one takes one receive at most.
  const int32_t ahead =
      static_cast<int32_t>(message.sequence - static_cast<uint32_t>(receives_.done()));
  if (ahead < 0 || static_cast<uint32_t>(ahead) > number - messages_.first()) {
    return Claim::kWrong;
  }
  FarReceive* const receive = receives_.reach(receives_.done() + static_cast<uint32_t>(ahead));
  if (receive == nullptr) return Claim::kNotReady;
  if (receive->owner != FarReceive::kNobody && receive->owner != number) return Claim::kWrong;
  receive->owner = number;
  message.receive = receive;
  message.takes_receive = true;
  return Claim::kReady;
}

// The packet is dropped and not acknowledged; its sender is told that sending it again has to wait.
FarResponder::Verdict FarResponder::not_ready() {
  if (!waits_for_receive()) ++qp_.counters.rnr_naks_sent;
  not_ready_ = true;
  not_ready_limit_ = receives_.taken();
  return Verdict::kDropped;
}

bool FarResponder::waits_for_receive() const {
  return not_ready_ && receives_.taken() == not_ready_limit_ && qp_.receives().count() == 0;
}

}  // namespace farverbs::proto
