#include "farverbs/proto/far_responder.h"

#include <algorithm>
#include <cstring>

#include "farverbs/base/fault_guard.h"
#include "farverbs/proto/placing.h"

namespace farverbs::proto {

using model::AsyncEventType;
using model::CompletionStatus;
using model::MemoryVerdict;
using wire::Extension;
using wire::NakCode;
using wire::OpKind;

namespace {

// How far `number` is behind `reference` in the order of 32-bit numbers.
int32_t distance(uint32_t number, uint64_t reference) {
  return static_cast<int32_t>(number - static_cast<uint32_t>(reference));
}

}  // namespace

FarResponder::FarResponder(model::Qp& qp, const TransportConfig& config)
    : qp_(qp),
      config_(config),
      messages_(config.far_hold_bytes),
      receives_(qp),
      placer_(qp, messages_) {}

FarResponder::~FarResponder() = default;

void FarResponder::start() { reset(); }

void FarResponder::reset() {
  messages_.restart(0);
  receives_.reset();
  placer_.reset();
  responses_ = decltype(responses_)();
  next_response_ = waiting_responses_ = 0;
  current_ = nullptr;
  not_ready_ = failed_ = flushed_ = false;
  failure_event_ = AsyncEventType::kDeviceFatal;
}

// --- A packet arrives

FarResponder::Verdict FarResponder::on_request(Time, const wire::PacketView& packet,
                                               const PacketContext& context) {
  const wire::FarBase base = packet.far_base();
  if (goes_on(packet, base)) return place_next(packet, context, base);
  if (!intact(packet, context)) {
    ++qp_.counters.dropped_packets;
    return Verdict::kDamaged;
  }
  if (failed_) return Verdict::kTaken;
  const int32_t ahead = distance(base.message, messages_.first());
  if (ahead < 0) {
    ++qp_.counters.duplicates_received;
    return Verdict::kTaken;
  }
  Verdict verdict = Verdict::kDropped;
  Arrival arrival{messages_.first() + static_cast<uint32_t>(ahead), packet, base.last};
  if (static_cast<uint32_t>(ahead) < config_.far_messages_ahead && !flushed_) {
    FarMessage* message = messages_.find(arrival.number);
    if (message == nullptr && ahead == 0 && base.last) {
      verdict = take_whole(arrival);
    } else {
      if (message == nullptr) message = messages_.add(arrival.number);
      if (message != nullptr) verdict = take(arrival, *message);
    }
  }
  if (verdict == Verdict::kDropped) {
    ++qp_.counters.dropped_packets;
    return verdict;
  }
  if (!failed_) carry_out();
  return verdict;
}

// True if the packet stands where the one before makes it expected, and nothing has to be checked
// but its ICRC: then the place is this object's own knowledge, not a header's choice.
bool FarResponder::goes_on(const wire::PacketView& packet, const wire::FarBase& base) const {
  if (current_ == nullptr || base.message != static_cast<uint32_t>(current_number_)) return false;
  const FarMessage& m = *current_;
  const size_t payload = packet.payload().size();
  const uint64_t end = m.placed.end() + payload;
  if (m.ended || m.failed || payload == 0 || !messages_.last(current_number_)) {
    return false;
  }
  if (packet.opcode() == wire::Opcode::far_write) {
    const wire::FarPlace place = packet.far_place();
    // The last packet shows that all is there: it must have proved whole before. And damaged
    // padding would make a packet longer than those before.
    return m.kind == OpKind::write && !base.last && payload == current_payload_ &&
           place.offset == m.placed.end() && place.address == m.address + place.offset &&
           place.rkey == m.key && end <= m.checked_end && m.entry->holds(m.key);
  }
  return packet.opcode() == wire::Opcode::far_send && m.kind == OpKind::send &&
         end <= kMostMessageBytes && packet.far_offset().offset == m.placed.end() &&
         packet.far_sequence().receive == m.sequence && end <= m.receive->wqe.length;
}

FarResponder::Verdict FarResponder::place_next(const wire::PacketView& packet,
                                               const PacketContext& context,
                                               const wire::FarBase& base) {
  FarMessage& m = *current_;
  const uint32_t offset = m.placed.end();
  const auto payload = static_cast<uint32_t>(packet.payload().size());
  Placed placed = Placed::kFault;
  const auto note = [&](std::span<const std::span<std::byte>> pieces) {
    for (const std::span<std::byte> piece : pieces) {
      const auto to = reinterpret_cast<uintptr_t>(piece.data());
      messages_.note_written(current_number_, to, to + piece.size());
    }
  };
  if (m.kind == OpKind::write) {
    const std::span<std::byte> target(reinterpret_cast<std::byte*>(m.memory + offset), payload);
    note({&target, 1});
    placed = proto::place(packet, context, false, {&target, 1});
  } else {
    TargetPieces pieces;
    FarReceive& receive = *m.receive;
    if (receive.walker.find(receive.wqe.sges(), offset, payload, qp_.memory, qp_.pd,
                            model::kLocalWrite, pieces) == MemoryVerdict::kOk) {
      note(pieces.view());
      placed = proto::place(packet, context, false, pieces.view());
    }
  }
  if (placed == Placed::kDamaged || (placed == Placed::kFault && !intact(packet, context))) {
    ++qp_.counters.dropped_packets;
    return Verdict::kDamaged;
  }
  if (placed == Placed::kFault) {
    fail_placing(m, m.kind == OpKind::write ? FarPlaced::kFault : FarPlaced::kProtection);
    carry_out();
    return Verdict::kTaken;
  }
  m.placed.add(offset, offset + payload);
  ++qp_.counters.received_packets;
  qp_.counters.received_payload_bytes += payload;
  if (base.last) {
    note_last({current_number_, packet, true, offset, offset + payload}, m);
    carry_out();
  }
  return Verdict::kTaken;
}

// The last packet of the next message, of which nothing has come before: mostly it is all of it,
// and needs no record.
FarResponder::Verdict FarResponder::take_whole(Arrival& arrival) {
  if (write_whole(arrival.packet)) return Verdict::kTaken;
  FarMessage whole;
  const Verdict verdict = take(arrival, whole);
  current_ = nullptr;
  if (verdict == Verdict::kDropped) return verdict;
  if (whole.complete()) {
    conclude(whole);
  } else {
    *messages_.add(arrival.number) = std::move(whole);  // the next message's always finds room
  }
  return verdict;
}

// A WRITE of one packet that nothing speaks against. False: nothing was done, see the general way.
bool FarResponder::write_whole(const wire::PacketView& packet) {
  if (packet.opcode() != wire::Opcode::far_write || !messages_.last(messages_.first()) ||
      (qp_.attributes.access_flags & model::kRemoteWrite) == 0) {
    return false;
  }
  const wire::FarPlace place = packet.far_place();
  const std::span<const std::byte> payload = packet.payload();
  const model::MemoryAccess found = qp_.memory.resolve(
      place.rkey, qp_.pd, model::kRemoteWrite, place.address, payload.size(), true, qp_.qpn);
  if (place.offset != 0 || payload.empty() || found.verdict != MemoryVerdict::kOk ||
      !guarded([&] { std::memcpy(found.memory, payload.data(), payload.size()); })) {
    return false;
  }
  messages_.pop_front();
  ++qp_.counters.received_packets;
  qp_.counters.received_payload_bytes += payload.size();
  return true;
}

// --- Placing

// Places the payload up to `end`.
FarResponder::Verdict FarResponder::place(const Arrival& arrival, FarMessage& message,
                                          uint32_t end) {
  const uint32_t size = end - arrival.offset;
  if (size > 0 && message.placed.contains(arrival.offset, end)) {
    ++qp_.counters.duplicates_received;
    return Verdict::kTaken;
  }
  const FarPlaced placed =
      placer_.place(arrival.number, message, arrival.offset, arrival.packet.payload().first(size));
  if (placed == FarPlaced::kNoRoom) return Verdict::kDropped;
  if (placed != FarPlaced::kDone) return fail_placing(message, placed);
  current_ = &message;
  current_number_ = arrival.number;
  current_payload_ = size;
  ++qp_.counters.received_packets;
  qp_.counters.received_payload_bytes += size;
  return Verdict::kTaken;
}

void FarResponder::note_last(const Arrival& arrival, FarMessage& message) {
  if (message.failed) return;
  const wire::PacketView& packet = arrival.packet;
  message.ended = true;
  message.length = arrival.end;
  message.solicited = packet.bth.solicited;
  message.has_immediate = packet.has(Extension::imm);
  message.invalidates = packet.has(Extension::ieth);
  if (message.has_immediate) message.immediate = packet.imm().value;
  if (message.invalidates) message.immediate = packet.ieth().rkey.value();
}

// The message can't be carried out. It is told when its turn comes; until then its packets are
// acknowledged, and do nothing.
FarResponder::Verdict FarResponder::fail(FarMessage& message, NakCode code, AsyncEventType event,
                                         CompletionStatus receive_status) {
  message.failed = true;
  message.code = code;
  message.event = event;
  message.receive_status = receive_status;
  messages_.release(message);
  return Verdict::kTaken;
}

FarResponder::Verdict FarResponder::fail_placing(FarMessage& message, FarPlaced placed) {
  if (placed == FarPlaced::kProtection) {
    return fail(message, NakCode::remote_operational_error, AsyncEventType::kDeviceFatal,
                CompletionStatus::kLocalProtectionError);
  }
  return fail(message, NakCode::remote_operational_error, AsyncEventType::kQpFatal);
}

// --- What others ask

uint32_t FarResponder::executed() const {
  return failed_ ? refused_message_ : static_cast<uint32_t>(messages_.first());
}

FarResponder::Told FarResponder::told() const {
  if (failed_) return {wire::FarStatus::refused, static_cast<uint8_t>(refused_code_), false, 0};
  if (waits_for_receive()) {
    return {wire::FarStatus::not_ready, qp_.attributes.min_rnr_timer, true,
            static_cast<uint32_t>(not_ready_limit_)};
  }
  if (qp_.srq != nullptr || !config_.end_to_end_credits) return {};
  return {wire::FarStatus::ok, 0, true,
          static_cast<uint32_t>(receives_.taken()) + qp_.receive_queue.count()};
}

void FarResponder::flush() {
  current_ = nullptr;
  flushed_ = true;
  messages_.clear();
  receives_.flush();
}

void FarResponder::trim() {
  if (current_ == nullptr) messages_.trim();
  receives_.trim();
  placer_.reset();
  if (responses_.empty()) responses_ = decltype(responses_)();
}

size_t FarResponder::memory_bytes() const {
  return messages_.memory_bytes() + receives_.memory_bytes() + placer_.memory_bytes() +
         responses_.capacity() * sizeof(Response);
}

}  // namespace farverbs::proto
