#include "farverbs/proto/ud_machine.h"

#include <algorithm>
#include <array>

#include "farverbs/base/fault_guard.h"
#include "farverbs/proto/completions.h"
#include "farverbs/proto/request_packet.h"
#include "farverbs/wire/frame.h"

namespace farverbs::proto {

using model::AsyncEventType;
using model::CompletionStatus;
using model::QpState;

namespace {

constexpr size_t kGrhBytes = 40;
constexpr uint32_t kOwnQkeyBit = 0x8000'0000;  // the request means the QP's own Q_Key (C10-15)
constexpr size_t kAroundPayload = wire::UdpHeader::kSize;

// What a receive begins with: the IPv6 header, or 20 bytes of zeros and the IPv4 header (annex
// A17.4.5.1). The hop count is not known behind a socket.
std::array<std::byte, kGrhBytes> grh_of(const PacketContext& context, size_t packet_bytes) {
  std::array<std::byte, kGrhBytes> grh{};
  const auto length = static_cast<uint16_t>(packet_bytes + kAroundPayload);
  if (context.source.address.is_v4() && context.destination.address.is_v4()) {
    wire::Ipv4Header header;
    header.dscp = context.traffic_class >> 2;
    header.ecn = context.traffic_class & 3;
    header.total_length = static_cast<uint16_t>(length + wire::Ipv4Header::kSize);
    header.source = context.source.address.v4_value();
    header.destination = context.destination.address.v4_value();
    std::byte* const place = grh.data() + kGrhBytes - wire::Ipv4Header::kSize;
    wire::emit_header(header, place);
    // Whoever reads this tells IPv4 from IPv6 by whether the checksum is right.
    header.checksum = wire::ipv4_checksum({place, wire::Ipv4Header::kSize});
    wire::emit_header(header, place);
    return grh;
  }
  wire::Ipv6Header header;
  header.traffic_class = context.traffic_class;
  header.payload_length = length;
  header.source = context.source.address.to_gid();
  header.destination = context.destination.address.to_gid();
  wire::emit_header(header, grh.data());
  return grh;
}

bool same_flow(const model::AddressVector& a, const model::AddressVector& b) {
  return a.destination_gid == b.destination_gid && a.source_gid_index == b.source_gid_index &&
         a.hop_limit == b.hop_limit && a.traffic_class == b.traffic_class &&
         a.flow_label == b.flow_label && a.service_level == b.service_level &&
         a.port_number == b.port_number && a.udp_port == b.udp_port;
}

}  // namespace

void UdMachine::on_state(Time, QpState from, QpState to) {
  if (to == QpState::kReset) {
    has_receive_ = false;
    return;
  }
  if (to == QpState::kErr) return enter_error();
  if (to == QpState::kRts && from == QpState::kRtr) psn_ = qp_.attributes.sq_psn;
  outbox_.on_state(from, to);
}

const model::AddressVector* UdMachine::next_flow() const {
  if (!outbox_.ready()) return nullptr;
  return &qp_.send_queue.at(qp_.send_queue.head()).address_vector;
}

void UdMachine::on_packet(Time now, const wire::PacketView& packet, const PacketContext& context) {
  const QpState state = qp_.state.load(std::memory_order_relaxed);
  const bool receiving = state == QpState::kRtr || state == QpState::kRts ||
                         state == QpState::kSqd || state == QpState::kSqe;
  if (!receiving || packet.info->service != wire::Service::ud ||
      packet.deth().qkey != qp_.attributes.qkey || !intact(packet, context)) {
    ++qp_.counters.dropped_packets;
    return;
  }
  receive(packet, context);
  if (qp_.receive_cq->in_error()) fail(now);
}

void UdMachine::receive(const wire::PacketView& packet, const PacketContext& context) {
  if (!has_receive_) has_receive_ = qp_.receives().pop(receive_);
  const size_t payload = packet.payload().size();
  if (!has_receive_ || payload > model::bytes_of(qp_.attributes.path_mtu) ||
      payload + kGrhBytes > receive_.length) {
    ++qp_.counters.dropped_packets;
    return;
  }
  const auto grh = grh_of(context, packet.bytes().size());
  SgeWalker walker;
  TargetPieces front;
  TargetPieces rest;
  const bool writable = walker.find(receive_.sges(), 0, kGrhBytes, qp_.memory, qp_.pd,
                                    model::kLocalWrite, front) == model::MemoryVerdict::kOk &&
                        walker.find(receive_.sges(), kGrhBytes, payload, qp_.memory, qp_.pd,
                                    model::kLocalWrite, rest) == model::MemoryVerdict::kOk;
  const bool there = writable && guarded([&] {
                       const std::byte* from = grh.data();
                       for (const std::span<std::byte> piece : front.view()) {
                         std::copy_n(from, piece.size(), piece.data());
                         from += piece.size();
                       }
                     });
  if (!there || place(packet, context, true, rest.view()) != Placed::kDone) {
    has_receive_ = false;
    fail_receive(qp_, receive_.wr_id, CompletionStatus::kLocalProtectionError);
    qp_.state.store(QpState::kErr, std::memory_order_relaxed);
    return enter_error();
  }
  ++qp_.counters.received_packets;
  qp_.counters.received_payload_bytes += payload;
  model::WorkCompletion completion;
  completion.wr_id = receive_.wr_id;
  completion.opcode = model::CompletionOpcode::kReceive;
  completion.byte_length = static_cast<uint32_t>(payload + kGrhBytes);
  completion.flags = model::kGrhPresent;
  if (context.source.address.is_v4()) completion.flags |= model::kOverIpv4;
  completion.qpn = qp_.qpn;
  completion.source_qpn = packet.deth().source_qp;
  if (packet.has(wire::Extension::imm)) {
    completion.immediate = packet.imm().value;
    completion.flags |= model::kWithImmediate;
  }
  has_receive_ = false;
  qp_.receive_cq->push(completion, packet.bth.solicited);
}

void UdMachine::on_work(Time) {
  if (qp_.state.load(std::memory_order_relaxed) == QpState::kErr) return flush();
  outbox_.settle();
}

TransmitResult UdMachine::poll_transmit(const TransmitContext& context) {
  Turn turn(context);
  model::AddressVector flow;
  while (model::SendWqe* wqe = outbox_.next()) {
    const bool immediate = wqe->opcode == model::SendOpcode::kSendWithImmediate;
    const size_t size = wire::packet_size(
        immediate ? wire::Opcode::ud_send_only_imm : wire::Opcode::ud_send_only, wqe->length);
    if (turn.result.packets == 0) flow = wqe->address_vector;
    if (turn.quantum_used()) {
      turn.result.status = TransmitStatus::kQuantum;
      break;
    }
    if (turn.request_left == 0) {
      turn.result.status = TransmitStatus::kWindow;
      break;
    }
    if (!same_flow(flow, wqe->address_vector) || !turn.fits(size)) {
      turn.result.status = TransmitStatus::kBurstFull;
      break;
    }
    if (!build(turn, *wqe, size)) {
      outbox_.fail(CompletionStatus::kLocalProtectionError);
      break;
    }
    turn.spend_unacknowledged(size);
    ++qp_.counters.sent_packets;
    qp_.counters.sent_payload_bytes += wqe->length;
    outbox_.finish();
  }
  if (qp_.state.load(std::memory_order_relaxed) == QpState::kErr) flush();
  return turn.result;
}

bool UdMachine::build(Turn& turn, const model::SendWqe& wqe, size_t size) {
  SourcePieces pieces;
  SgeWalker walker;
  if (wqe.inlined) {
    if (wqe.length > 0) pieces.add(wqe.inline_data(), wqe.length);
  } else if (walker.find(wqe.sges(), 0, wqe.length, qp_.memory, qp_.pd, 0, pieces) !=
             model::MemoryVerdict::kOk) {
    return false;
  }
  const bool immediate = wqe.opcode == model::SendOpcode::kSendWithImmediate;
  wire::Bth bth;
  bth.opcode =
      static_cast<uint8_t>(immediate ? wire::Opcode::ud_send_only_imm : wire::Opcode::ud_send_only);
  bth.solicited = (wqe.flags & model::kSolicited) != 0;
  bth.pad = wire::pad_for(wqe.length);
  bth.dest_qp = wqe.remote_qpn;
  bth.psn = psn_;
  const bool own = (wqe.remote_qkey & kOwnQkeyBit) != 0;
  const Qpn source = qp_.type == model::QpType::kGsi ? kManagementQpn : qp_.qpn;
  const wire::Deth deth{own ? qp_.attributes.qkey : wqe.remote_qkey, 0, source};
  const uint16_t identification = turn.burst().next_identification();
  std::byte* const place = turn.burst().append(size);
  const size_t header = immediate ? wire::emit_headers(place, bth, deth, wire::ImmDt{wqe.immediate})
                                  : wire::emit_headers(place, bth, deth);
  if (!guarded(
          [&] { wire::seal(place, header, pieces.view(), *turn.context.icrc, identification); })) {
    turn.burst().retract(size);
    return false;
  }
  psn_ = psn_ + 1;
  return true;
}

void UdMachine::fail(Time) {
  const QpState state = qp_.state.load(std::memory_order_relaxed);
  if (state == QpState::kErr || state == QpState::kReset) return;
  qp_.state.store(QpState::kErr, std::memory_order_relaxed);
  qp_.raise(AsyncEventType::kQpFatal);
  enter_error();
}

void UdMachine::enter_error() {
  flush();
  if (qp_.srq != nullptr) qp_.raise(AsyncEventType::kLastWqeReached);
}

void UdMachine::flush() {
  flush_sends(qp_);
  if (has_receive_) {
    has_receive_ = false;
    fail_receive(qp_, receive_.wr_id, CompletionStatus::kWorkRequestFlushed);
  }
  flush_receives(qp_, receive_);
}

size_t UdMachine::memory_bytes() const {
  return receive_.sge_storage == nullptr
             ? 0
             : qp_.receive_queue.max_sge() * sizeof(model::ScatterGatherElement);
}

}  // namespace farverbs::proto
