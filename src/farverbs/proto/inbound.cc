#include "farverbs/proto/inbound.h"

#include <algorithm>

#include "farverbs/proto/completions.h"
#include "farverbs/proto/placing.h"

namespace farverbs::proto {

using model::CompletionStatus;
using model::MemoryVerdict;

bool Inbound::continues(const Arrival& arrival) const {
  const wire::OpKind kind = arrival.kind();
  return !arrival.begins() && ((kind == wire::OpKind::send && kind_ == Kind::kSend) ||
                               (kind == wire::OpKind::write && kind_ == Kind::kWrite));
}

Verdict Inbound::check_opcode_sequence(const Arrival& arrival) const {
  if (arrival.begins()) return idle() ? Verdict::kContinue : Verdict::kInvalidRequest;
  return continues(arrival) ? Verdict::kContinue : Verdict::kInvalidRequest;
}

Verdict Inbound::check_operation(const Arrival& arrival) const {
  if (arrival.kind() != wire::OpKind::write || !arrival.begins()) return Verdict::kContinue;
  const bool granted = (qp_.attributes.access_flags & model::kRemoteWrite) != 0;
  return granted ? Verdict::kContinue : Verdict::kInvalidRequest;
}

bool Inbound::needs_receive(const Arrival& arrival) const {
  if (arrival.kind() == wire::OpKind::send) return arrival.begins();
  return arrival.packet.has(wire::Extension::imm);
}

Verdict Inbound::check_resources(const Arrival& arrival) {
  if (!needs_receive(arrival) || has_receive_) return Verdict::kContinue;
  if (!qp_.receives().pop(receive_)) return Verdict::kNotReady;
  has_receive_ = true;
  walker_.reset();
  return Verdict::kContinue;
}

Verdict Inbound::check_length(const Arrival& arrival) const {
  const size_t payload = arrival.packet.payload().size();
  const uint32_t mtu = model::bytes_of(qp_.attributes.path_mtu);
  // FIRST and MIDDLE are full, LAST has at least a byte (IBTA vol. 1 C9-55 and on).
  const bool fits =
      arrival.ends() ? payload <= mtu && (arrival.begins() || payload > 0) : payload == mtu;
  if (!fits) return Verdict::kInvalidRequest;
  const uint64_t before = arrival.begins() ? 0 : received_;
  const uint64_t after = before + payload;
  if (after > kMostMessageBytes) return Verdict::kInvalidRequest;
  if (arrival.kind() == wire::OpKind::send) {
    return after <= receive_.length ? Verdict::kContinue : Verdict::kReceiveTooSmall;
  }
  const uint32_t length = arrival.begins() ? arrival.packet.reth().length : length_;
  const bool agrees =
      arrival.ends() ? after == length : after < length && length <= kMostMessageBytes;
  return agrees ? Verdict::kContinue : Verdict::kInvalidRequest;
}

Verdict Inbound::check_rkey(const Arrival& arrival) {
  if (arrival.kind() != wire::OpKind::write) return Verdict::kContinue;
  if (!arrival.begins()) {
    return entry_->holds(key_) ? Verdict::kContinue : Verdict::kAccessError;
  }
  const wire::Reth reth = arrival.packet.reth();
  const model::MemoryAccess found = qp_.memory.resolve(reth.rkey, qp_.pd, model::kRemoteWrite,
                                                       reth.address, reth.length, true, qp_.qpn);
  if (found.verdict != MemoryVerdict::kOk) return Verdict::kAccessError;
  key_ = reth.rkey;
  entry_ = found.entry;
  memory_ = found.memory;
  length_ = reth.length;
  return Verdict::kContinue;
}

Verdict Inbound::place(const Arrival& arrival) {
  if (arrival.begins()) {
    received_ = 0;
    if (arrival.kind() == wire::OpKind::send) walker_.reset();
  }
  const size_t payload = arrival.packet.payload().size();
  if (payload == 0 && arrival.checked) return Verdict::kContinue;
  TargetPieces pieces;
  if (arrival.kind() == wire::OpKind::write) {
    if (payload > 0) pieces.add(memory_ + received_, payload);
  } else if (walker_.find(receive_.sges(), received_, payload, qp_.memory, qp_.pd,
                          model::kLocalWrite, pieces) != MemoryVerdict::kOk) {
    return Verdict::kReceiveProtection;
  }
  switch (proto::place(arrival.packet, arrival.context, arrival.checked, pieces.view())) {
    case Placed::kDone:
      return Verdict::kContinue;
    case Placed::kDamaged:
      return Verdict::kDamaged;
    case Placed::kFault:
      break;
  }
  return arrival.kind() == wire::OpKind::write ? Verdict::kOperationalError
                                               : Verdict::kReceiveProtection;
}

Verdict Inbound::finish(const Arrival& arrival) {
  const size_t payload = arrival.packet.payload().size();
  received_ += static_cast<uint32_t>(payload);
  ++qp_.counters.received_packets;
  qp_.counters.received_payload_bytes += payload;
  if (!arrival.ends()) {
    kind_ = kind_of(arrival);
    return Verdict::kDone;
  }
  kind_ = Kind::kNone;
  return complete(arrival);
}

Inbound::Continuation Inbound::continuation() {
  const uint32_t mtu = model::bytes_of(qp_.attributes.path_mtu);
  if (kind_ == Kind::kWrite && entry_->holds(key_)) {
    // The last byte comes with the LAST packet.
    return {wire::Opcode::rc_write_middle, memory_ + received_, (length_ - received_ - 1) / mtu};
  }
  if (kind_ == Kind::kSend && received_ < std::min(receive_.length, kMostMessageBytes)) {
    const std::span<std::byte> piece =
        walker_.rest_of_element(receive_.sges(), received_, qp_.memory, qp_.pd, model::kLocalWrite);
    const uint64_t room = std::min(receive_.length, kMostMessageBytes) - received_;
    return {wire::Opcode::rc_send_middle, piece.data(), std::min(room, piece.size()) / mtu};
  }
  return {};
}

void Inbound::placed(size_t packets) {
  const size_t bytes = packets * model::bytes_of(qp_.attributes.path_mtu);
  received_ += static_cast<uint32_t>(bytes);
  qp_.counters.received_packets += packets;
  qp_.counters.received_payload_bytes += bytes;
}

Verdict Inbound::complete(const Arrival& arrival) {
  const wire::PacketView& packet = arrival.packet;
  const bool write = arrival.kind() == wire::OpKind::write;
  const bool immediate = packet.has(wire::Extension::imm);
  if (write && !immediate) return Verdict::kDone;
  model::WorkCompletion completion;
  if (packet.has(wire::Extension::ieth)) {
    completion.invalidated_key = packet.ieth().rkey;
    completion.flags |= model::kWithInvalidate;
    if (qp_.memory.invalidate(completion.invalidated_key, qp_.pd, qp_.qpn) != MemoryVerdict::kOk) {
      return Verdict::kAccessError;
    }
  }
  completion.wr_id = receive_.wr_id;
  completion.opcode =
      write ? model::CompletionOpcode::kReceiveWithImmediate : model::CompletionOpcode::kReceive;
  completion.byte_length = received_;
  completion.qpn = qp_.qpn;
  completion.source_qpn = qp_.attributes.destination_qpn;
  completion.service_level = qp_.attributes.address_vector.service_level;
  if (immediate) {
    completion.immediate = packet.imm().value;
    completion.flags |= model::kWithImmediate;
  }
  has_receive_ = false;
  return qp_.receive_cq->push(completion, packet.bth.solicited) ? Verdict::kDone
                                                                : Verdict::kCompletionOverflow;
}

void Inbound::drop_message() {
  kind_ = Kind::kNone;
  received_ = 0;
}

void Inbound::fail_receive(CompletionStatus status) {
  if (!has_receive_) return;
  has_receive_ = false;
  proto::fail_receive(qp_, receive_.wr_id, status);
}

void Inbound::reset() {
  drop_message();
  has_receive_ = false;
  entry_ = nullptr;
  walker_.reset();
}

size_t Inbound::memory_bytes() const {
  return receive_.sge_storage == nullptr
             ? 0
             : qp_.receive_queue.max_sge() * sizeof(model::ScatterGatherElement);
}

}  // namespace farverbs::proto
