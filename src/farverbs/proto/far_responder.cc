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

constexpr uint32_t kMostBytes = uint32_t{1} << 31;
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
  if (m.ended || m.failed || not_ready_ || payload == 0 || !messages_.last(current_number_)) {
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
  return packet.opcode() == wire::Opcode::far_send && m.kind == OpKind::send && end <= kMostBytes &&
         packet.far_offset().offset == m.placed.end() &&
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
  if (end > kMostBytes) return false;
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
                                             found.room, kMostBytes - place.offset));
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
        return not_ready(arrival.number, payload == 0 ? arrival.end : arrival.end - 1);
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
  note_arrival(arrival.number, arrival.offset, arrival.end);
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
      return not_ready(arrival.number, arrival.offset);
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

// --- Receives

FarResponder::Claim FarResponder::claim_receive(uint64_t number, FarMessage& message) {
  if (message.takes_receive) return Claim::kReady;
  // Each message before this one takes one receive at most.
  const int32_t ahead = distance(message.sequence, receives_.done());
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

// The packet is acknowledged, so its sender must be told to send it again.
FarResponder::Verdict FarResponder::not_ready(uint64_t number, uint32_t offset) {
  if (!not_ready_) ++qp_.counters.rnr_naks_sent;
  if (!not_ready_ || number < not_ready_message_) {
    not_ready_message_ = number;
    not_ready_offset_ = offset;
    not_ready_limit_ = static_cast<uint32_t>(receives_.taken());
  }
  not_ready_offset_ = std::min(not_ready_offset_, offset);
  not_ready_ = true;
  return Verdict::kTaken;
}

// Ends "not ready" when the first byte that was dropped has come again. A sender that was never
// told would not have sent it, so the receive alone is not enough.
void FarResponder::note_arrival(uint64_t number, uint32_t offset, uint32_t end) {
  if (not_ready_ && number == not_ready_message_ && offset <= not_ready_offset_ &&
      not_ready_offset_ < std::max(end, offset + 1)) {
    not_ready_ = false;
  }
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
  note_arrival(arrival.number, arrival.offset, end);
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
  if (not_ready_) {
    return {wire::FarStatus::not_ready, qp_.attributes.min_rnr_timer, true, not_ready_limit_};
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

size_t FarResponder::memory_bytes() const {
  return messages_.memory_bytes() + receives_.memory_bytes() + placer_.memory_bytes() +
         responses_.capacity() * sizeof(Response);
}

}  // namespace farverbs::proto
