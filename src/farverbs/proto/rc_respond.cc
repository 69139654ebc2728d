// What a responder writes: READ and atomic responses, NAKs, acknowledgements.
#include <algorithm>

#include "farverbs/base/fault_guard.h"
#include "farverbs/proto/packet_run.h"
#include "farverbs/proto/rc_responder.h"
#include "farverbs/proto/request_packet.h"
#include "farverbs/wire/icrc.h"

namespace farverbs::proto {

using wire::NakCode;
using wire::Opcode;

namespace {

// Indexed by wire::Position: middle, first, last, only.
constexpr Opcode kReadResponse[4] = {Opcode::rc_read_response_middle,
                                     Opcode::rc_read_response_first, Opcode::rc_read_response_last,
                                     Opcode::rc_read_response_only};

}  // namespace

// What is owed leaves in the order of packet numbers: a NAK or an ACK speaks for all before it, so
// one that overtook a READ response would tell its requester that the response was lost.
TransmitStatus RcResponder::respond(Turn& turn) {
  while (Resource* pending = first_pending()) {
    const TransmitStatus status = pending->kind == wire::OpKind::read_request
                                      ? send_read_responses(turn, *pending)
                                      : send_atomic_response(turn, *pending);
    if (status != TransmitStatus::kIdle) return status;
  }
  return nak_pending_ ? send_nak(turn) : TransmitStatus::kIdle;
}

TransmitStatus RcResponder::send_read_responses(Turn& turn, Resource& read) {
  const uint64_t start = (read.next - read.first) * mtu();
  const uint64_t stop = std::min<uint64_t>((read.end - read.first) * mtu(), read.length);
  // The region may have gone since the request, or since the last burst. The memory itself is read
  // now, for a replay as well.
  const model::MemoryAccess found = qp_.memory.resolve(
      read.key, qp_.pd, model::kRemoteRead, read.address + start, stop - start, true, qp_.qpn);
  if (found.verdict != model::MemoryVerdict::kOk) {
    refuse_read(read, NakCode::remote_access_error, model::AsyncEventType::kQpAccessError);
    return TransmitStatus::kIdle;
  }
  const std::byte* from = found.memory;
  for (uint64_t left = stop - start; read.next < read.end;) {
    const size_t position =
        (read.next == read.begin ? 1u : 0u) | (read.next + 1 == read.end ? 2u : 0u);
    const Opcode opcode = kReadResponse[position];
    const size_t length = std::min<uint64_t>(left, mtu());
    const size_t size = wire::packet_size(opcode, length);
    if (turn.quantum_used()) return TransmitStatus::kQuantum;
    if (!turn.fits(size)) return TransmitStatus::kBurstFull;
    uint64_t written = 0;
    if (position == 0) {
      const uint64_t run = std::min(turn.run_room(size), read.end - read.next - 1);
      if (run > 1) written = write_run(turn, qp_, opcode, Psn(read.next), from, run);
    }
    if (written == 0) {
      const bool with_aeth = position != 0;
      if (!write_response(turn, opcode, read.next, {from, length}, with_aeth)) {
        refuse_read(read, NakCode::remote_operational_error, model::AsyncEventType::kQpFatal);
        return TransmitStatus::kIdle;
      }
      written = 1;
    }
    qp_.counters.sent_payload_bytes += written * length;
    qp_.counters.sent_packets += written;
    turn.result.packets += static_cast<uint32_t>(written);
    from += written * length;
    left -= written * length;
    read.next += written;
  }
  wrote_acknowledgement(read.end);
  answered(read);
  return TransmitStatus::kIdle;
}

// One READ response, into a burst that it fits. False, with nothing appended: its memory is gone.
bool RcResponder::write_response(Turn& turn, Opcode opcode, PacketNumber number,
                                 std::span<const std::byte> payload, bool with_aeth) const {
  const size_t size = wire::packet_size(opcode, payload.size());
  wire::Bth bth = base_header(qp_, opcode, Psn(number));
  bth.pad = wire::pad_for(payload.size());
  const uint16_t identification = turn.burst().next_identification();
  std::byte* const place = turn.burst().append(size);
  const size_t header =
      with_aeth ? wire::emit_headers(place, bth, aeth()) : wire::emit_headers(place, bth);
  if (guarded([&] { wire::seal(place, header, payload, *turn.context.icrc, identification); })) {
    return true;
  }
  turn.burst().retract(size);
  return false;
}

// The READ can't go on. What should have followed it is not answered any more.
void RcResponder::refuse_read(const Resource& read, NakCode code, model::AsyncEventType event) {
  refuse(read.next, code, event);
  for (size_t i = 0; i < resource_count_; ++i) resource(i).pending = false;
  pending_ = 0;
}

TransmitStatus RcResponder::send_atomic_response(Turn& turn, Resource& atomic) {
  const size_t size = wire::packet_size(Opcode::rc_atomic_ack, 0);
  if (turn.quantum_used()) return TransmitStatus::kQuantum;
  if (!turn.fits(size)) return TransmitStatus::kBurstFull;
  const wire::Bth bth = base_header(qp_, Opcode::rc_atomic_ack, Psn(atomic.first));
  const uint16_t identification = turn.burst().next_identification();
  std::byte* const place = turn.burst().append(size);
  const size_t header = wire::emit_headers(place, bth, aeth(), wire::AtomicAckEth{atomic.original});
  wire::seal(place, header, std::span<const std::byte>{}, *turn.context.icrc, identification);
  ++qp_.counters.sent_packets;
  ++turn.result.packets;
  wrote_acknowledgement(atomic.end);
  answered(atomic);
  return TransmitStatus::kIdle;
}

void RcResponder::answered(Resource& resource) {
  resource.pending = false;
  resource.answered = true;
  --pending_;
}

wire::Aeth RcResponder::aeth() const {
  // Receives of an SRQ may go to other QPs: nothing can be promised.
  uint8_t credits = wire::kNoCredit;
  if (qp_.srq == nullptr && config_.end_to_end_credits) {
    credits = wire::credit_code_for(qp_.receive_queue.count() + (inbound_.has_receive() ? 1 : 0));
  }
  return {wire::Syndrome::ack(credits).byte(), msn_};
}

// All before `number` has been acknowledged by what was just written.
void RcResponder::wrote_acknowledgement(PacketNumber number) {
  if (number < expected_) return;
  ack_owed_ = ack_now_ = false;
  unacknowledged_ = 0;
}

TransmitStatus RcResponder::send_nak(Turn& turn) {
  const size_t size = wire::packet_size(Opcode::rc_ack, 0);
  if (turn.quantum_used()) return TransmitStatus::kQuantum;
  if (!turn.fits(size)) return TransmitStatus::kBurstFull;
  const wire::Bth bth = base_header(qp_, Opcode::rc_ack, Psn(nak_number_));
  const uint16_t identification = turn.burst().next_identification();
  std::byte* const place = turn.burst().append(size);
  const size_t header = wire::emit_headers(place, bth, wire::Aeth{nak_.byte(), msn_});
  wire::seal(place, header, std::span<const std::byte>{}, *turn.context.icrc, identification);
  ++qp_.counters.sent_packets;
  ++turn.result.packets;
  nak_pending_ = false;
  wrote_acknowledgement(nak_number_);
  return TransmitStatus::kIdle;
}

TransmitStatus RcResponder::acknowledge(Turn& turn) {
  if (!ack_owed_ || pending_ > 0 || nak_pending_) return TransmitStatus::kIdle;
  const bool alone = turn.result.packets == 0;
  if (turn.context.defer_acks && alone && !ack_now_) return TransmitStatus::kIdle;
  const size_t size = wire::packet_size(Opcode::rc_ack, 0);
  if (!turn.fits(size)) return TransmitStatus::kBurstFull;
  const wire::Bth bth = base_header(qp_, Opcode::rc_ack, Psn(expected_ - 1));
  const uint16_t identification = turn.burst().next_identification();
  std::byte* const place = turn.burst().append(size);
  const size_t header = wire::emit_headers(place, bth, aeth());
  wire::seal(place, header, std::span<const std::byte>{}, *turn.context.icrc, identification);
  ++qp_.counters.sent_packets;
  ++turn.result.packets;
  wrote_acknowledgement(expected_);
  return TransmitStatus::kIdle;
}

}  // namespace farverbs::proto
