// What a far QP writes in its turn: requests, responses of READs and atomics, probes, and the
// acknowledgement (docs/far-transport.md sections 2, 5 and 6).
#include <algorithm>
#include <array>

#include "farverbs/proto/far_machine.h"
#include "farverbs/proto/placing.h"

namespace farverbs::proto {

using wire::Opcode;

namespace {

constexpr unsigned kMostExponent = 15;  // of what a base header tells

}  // namespace

bool FarMachine::ready() const {
  if (!sending_) return false;
  if (forced_ > 0 || probe_wanted_ || requester_.ready()) return true;
  if (protector_ != nullptr && (protector_->open() || protector_->pending())) return true;
  return !gave_up_ && (!response_resends_.empty() ||
                       const_cast<FarResponder&>(responder_).next_response() != nullptr);
}

FarOut FarMachine::out(Turn& turn) {
  FarOut out{turn, sent_, qp_};
  // An acknowledgement for an eighth of the flight, or for an eighth of a round trip.
  unsigned ratio = 0;
  while (ratio < 6 && size_t{16} << ratio <= sent_.in_flight()) ++ratio;
  unsigned delay = 1;
  while (delay < kMostExponent - 1 &&
         Duration::microseconds(int64_t{32} << delay) < sent_.smoothed_rtt() / 8) {
    ++delay;
  }
  out.ack_ratio = static_cast<uint8_t>(ratio);
  out.ack_delay = static_cast<uint8_t>(delay);
  out.forced = forced_;
  out.datagram_bytes = turn.context.datagram_bytes;
  if (protector_ != nullptr && protector_->active()) {
    out.protector = protector_.get();
    out.datagram_bytes =
        std::min<uint32_t>(out.datagram_bytes, kMostFarSymbolBytes) - kFarRepairOverhead;
  }
  return out;
}

TransmitStatus FarMachine::transmit(Turn& turn) {
  if (!sending_) return TransmitStatus::kIdle;
  // A silence begins with the first packet that could have been answered.
  if (sent_.in_flight() == 0 && timeouts_ == 0) heard_ = turn.now();
  FarOut out = this->out(turn);
  const uint32_t before = turn.result.packets;
  TransmitStatus status = TransmitStatus::kIdle;
  if (turn.context.probe_bytes != 0) {
    status = send_probe(out, FarContent::kMtuProbe, turn.context.probe_bytes);
  }
  // Not in the midst of a block: numbers that do not follow one another would end it.
  if (status == TransmitStatus::kIdle && protector_ != nullptr && !protector_->open()) {
    status = send_repairs(out);
  }
  // In turns, or a peer that reads without end would keep this side's requests waiting for ever.
  requests_first_ = !requests_first_;
  for (const bool requests : {requests_first_, !requests_first_}) {
    if (status != TransmitStatus::kIdle) break;
    if (requests) {
      status = requester_.transmit(out);
    } else if (!responder_.failed() && !gave_up_) {
      status = send_responses(out);
    }
  }
  if (status == TransmitStatus::kIdle && protector_ != nullptr) {
    protector_->close();
    status = send_repairs(out);
  }
  if (turn.result.packets != before) last_use_ = turn.now();
  if (status == TransmitStatus::kIdle &&
      (probe_wanted_ || (out.forced > 0 && turn.result.packets == before))) {
    status = send_probe(out, FarContent::kProbe, wire::packet_size(Opcode::far_probe, 0));
    if (status == TransmitStatus::kIdle) probe_wanted_ = false;
  }
  // Nothing is left that could use them.
  forced_ = status == TransmitStatus::kIdle ? 0 : out.forced;
  return status;
}

TransmitStatus FarMachine::send_probe(FarOut& out, FarContent content, size_t bytes) {
  static constexpr std::array<std::byte, 65'536> kZeros{};
  const bool mtu = content == FarContent::kMtuProbe;
  const size_t payload = bytes - wire::packet_size(Opcode::far_probe, 0);
  if (mtu) {
    if (!out.turn.fits(bytes)) return TransmitStatus::kBurstFull;
  } else {
    const TransmitStatus status = out.may_write(bytes);
    if (status != TransmitStatus::kIdle) return status;
  }
  FarPacket record;
  record.content = content;
  record.offset = static_cast<uint32_t>(bytes);
  FarOut::Shape shape{Opcode::far_probe};
  shape.ack_request = true;
  const std::span<const std::byte> zeros(kZeros.data(), payload);
  out.write(shape, record, std::span(&zeros, 1), payload, false);
  // Others of another size begin a burst of their own.
  out.turn.result.probed |= mtu;
  return mtu ? TransmitStatus::kBurstFull : TransmitStatus::kIdle;
}

TransmitStatus FarMachine::send_responses(FarOut& out) {
  while (!response_resends_.empty()) {
    Resend& resend = response_resends_.front();
    FarResponder::Response* response = responder_.find_response(resend.message);
    if (response != nullptr) {
      const uint32_t before = out.turn.result.packets;
      uint32_t written = resend.length;
      const TransmitStatus status = send_response(out, *response, resend.offset, written);
      if (out.turn.result.packets == before) return status;
      ++qp_.counters.retransmitted_packets;
      qp_.counters.retransmitted_bytes += written;
      if (written < resend.length) {
        resend.offset += written;
        resend.length -= written;
        continue;
      }
    }
    response_resends_.pop_front();
  }
  while (FarResponder::Response* response = responder_.next_response()) {
    if (!response->atomic) send_response_run(out, *response);
    const uint32_t before = out.turn.result.packets;
    uint32_t written = response->atomic ? 0 : response->length - response->sent;
    const TransmitStatus status =
        send_response(out, *response, response->atomic ? 0 : response->sent, written);
    if (out.turn.result.packets == before) return status;
    response->sent = response->atomic ? response->length : response->sent + written;
    response->begun = true;
  }
  return TransmitStatus::kIdle;
}

// As FarRequester::send_run, for a READ's bytes.
void FarMachine::send_response_run(FarOut& out, FarResponder::Response& response) {
  constexpr Opcode kOpcode = Opcode::far_read_response;
  const uint32_t payload = far_payload(kOpcode, out.datagram_bytes);
  const uint32_t left = response.length - response.sent;
  if (payload == 0 || left <= 2 * payload) return;
  const size_t count = out.run_room(wire::packet_size(kOpcode, payload), (left - 1) / payload);
  if (count < 2) return;
  const model::MemoryAccess found =
      qp_.memory.resolve(response.key, qp_.pd, model::kRemoteRead, response.address + response.sent,
                         count * payload, true, qp_.qpn);
  if (found.verdict != model::MemoryVerdict::kOk) return;
  FarOut::Shape shape{kOpcode};
  shape.message = response.message;
  FarPacket record;
  record.content = FarContent::kResponse;
  record.request = response.message;
  record.offset = response.sent;
  constexpr size_t kRest = wire::Bth::kSize + wire::FarBase::kSize;
  const FarOut::RunHeader header =
      out.run_header(shape, 0, 0, kRest, wire::FarOffset{response.sent});
  const size_t written = out.write_run(shape, record, header, found.memory, payload, count);
  response.sent += static_cast<uint32_t>(written) * payload;
  response.begun |= written > 0;
}

TransmitStatus FarMachine::send_response(FarOut& out, FarResponder::Response& response,
                                         uint32_t offset, uint32_t& length) {
  const Opcode opcode = response.atomic ? Opcode::far_atomic_response : Opcode::far_read_response;
  const uint32_t bytes = std::min(length, far_payload(opcode, out.datagram_bytes));
  const size_t size = wire::packet_size(opcode, bytes);
  const TransmitStatus status = out.may_write(size);
  if (status != TransmitStatus::kIdle) return status;
  FarOut::Shape shape{opcode};
  shape.message = response.message;
  shape.last = response.atomic || offset + bytes == response.length;
  shape.ack_request = out.ends_window(size) || shape.last;
  FarPacket record;
  record.request = response.message;
  record.offset = offset;
  if (response.atomic) {
    record.content = FarContent::kAtomicResponse;
    out.write(shape, record, {}, 0, false, wire::AtomicAckEth{response.original});
    return TransmitStatus::kIdle;
  }
  record.content = FarContent::kResponse;
  // The region may have gone since the request, or since the last packet; its memory is read now.
  const model::MemoryAccess found = qp_.memory.resolve(
      response.key, qp_.pd, model::kRemoteRead, response.address + offset, bytes, true, qp_.qpn);
  if (found.verdict != model::MemoryVerdict::kOk) {
    responder_.refuse_response(response.message, wire::NakCode::remote_access_error);
    arrivals_.tell_now();
    return TransmitStatus::kIdle;
  }
  const std::span<const std::byte> payload(found.memory, bytes);
  if (!out.write(shape, record, std::span(&payload, 1), bytes, bytes > 0,
                 wire::FarOffset{offset})) {
    responder_.refuse_response(response.message, wire::NakCode::remote_operational_error);
    arrivals_.tell_now();
  }
  length = bytes;
  return TransmitStatus::kIdle;
}

// The acknowledgement may share a datagram with the one packet of this turn: a reply and the
// acknowledgement of what it answers leave as cheaply as the reply alone.
bool FarMachine::may_join(Turn& turn, size_t size) {
  const std::span<const std::byte> bytes = turn.burst().bytes();
  return turn.context.join_acks && turn.result.packets == 1 && turn.burst().can_join(size) &&
         bytes.size() + size <= turn.context.datagram_bytes &&
         wire::opcode_info(std::to_integer<uint8_t>(bytes[0])).has(wire::Extension::far_base);
}

TransmitStatus FarMachine::acknowledge(Turn& turn) {
  if (!arrivals_.owed_now()) return TransmitStatus::kIdle;
  const bool alone = turn.result.packets == 0;
  if (turn.context.defer_acks && alone && told_status_ == wire::FarStatus::ok) {
    return TransmitStatus::kIdle;
  }
  const size_t planned = arrivals_.plan();
  const size_t payload_bytes = planned * wire::FarRange::kSize;
  const size_t size = wire::packet_size(Opcode::far_ack, payload_bytes);
  const bool join = may_join(turn, size);
  if (!join && !turn.fits(size)) return TransmitStatus::kBurstFull;
  wire::Bth bth;
  bth.opcode = static_cast<uint8_t>(Opcode::far_ack);
  bth.dest_qp = qp_.attributes.destination_qpn;
  bth.psn = Psn(arrivals_.greatest());
  wire::FarBase base;
  base.number_high = static_cast<uint16_t>(arrivals_.greatest() >> 24);
  base.side_port = turn.context.side_port;
  base.message = responder_.executed();
  const FarResponder::Told told = responder_.told();
  wire::FarAck ack;
  ack.status = static_cast<uint8_t>(told.status);
  ack.detail = told.detail;
  ack.has_receive_limit = told.has_receive_limit;
  ack.receive_limit = told.receive_limit;
  ack.restores = config_.far_repairs != FarRepairs::kOff;
  ack.restored = restored_ & 63;
  std::array<std::byte, 255 * wire::FarRange::kSize> ranges;
  arrivals_.write(turn.now(), ack, planned, ranges.data());
  last_said_ = turn.now();
  std::byte* const place = join ? turn.burst().join_front(size) : turn.burst().append(size);
  const size_t header = wire::emit_headers(place, bth, base, ack);
  wire::seal(place, header, std::span<const std::byte>(ranges.data(), payload_bytes), far_icrc(),
             0);
  ++qp_.counters.sent_packets;
  ++turn.result.packets;
  return TransmitStatus::kIdle;
}

}  // namespace farverbs::proto
