#include "farverbs/proto/request_packet.h"

#include <algorithm>
#include <array>

#include "farverbs/base/fault_guard.h"

namespace farverbs::proto {
namespace {

using model::SendOpcode;
using wire::Opcode;

// Indexed by wire::Position: middle, first, last, only.
using Positions = std::array<Opcode, 4>;
constexpr Positions kSend = {Opcode::rc_send_middle, Opcode::rc_send_first, Opcode::rc_send_last,
                             Opcode::rc_send_only};
constexpr Positions kSendImm = {Opcode::rc_send_middle, Opcode::rc_send_first,
                                Opcode::rc_send_last_imm, Opcode::rc_send_only_imm};
constexpr Positions kSendInvalidate = {Opcode::rc_send_middle, Opcode::rc_send_first,
                                       Opcode::rc_send_last_invalidate,
                                       Opcode::rc_send_only_invalidate};
constexpr Positions kWrite = {Opcode::rc_write_middle, Opcode::rc_write_first,
                              Opcode::rc_write_last, Opcode::rc_write_only};
constexpr Positions kWriteImm = {Opcode::rc_write_middle, Opcode::rc_write_first,
                                 Opcode::rc_write_last_imm, Opcode::rc_write_only_imm};

constexpr const Positions& positions_of(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::kWrite:
      return kWrite;
    case SendOpcode::kWriteWithImmediate:
      return kWriteImm;
    case SendOpcode::kSendWithImmediate:
      return kSendImm;
    case SendOpcode::kSendWithInvalidate:
      return kSendInvalidate;
    default:
      return kSend;
  }
}

size_t emit(std::byte* place, const wire::Bth& bth, const model::SendWqe& wqe) {
  const wire::OpcodeInfo& info = wire::opcode_info(bth.opcode);
  const wire::Reth reth{wqe.remote_address, wqe.remote_key, wqe.length};
  const wire::ImmDt imm{wqe.immediate};
  if (info.has(wire::Extension::reth)) {
    return info.has(wire::Extension::imm) ? wire::emit_headers(place, bth, reth, imm)
                                          : wire::emit_headers(place, bth, reth);
  }
  if (info.has(wire::Extension::imm)) return wire::emit_headers(place, bth, imm);
  if (info.has(wire::Extension::ieth)) {
    return wire::emit_headers(place, bth, wire::Ieth{MemoryKey(wqe.immediate)});
  }
  return wire::emit_headers(place, bth);
}

}  // namespace

RequestPacket plan_packet(const model::SendWqe& wqe, uint32_t index, uint32_t mtu,
                          wire::Service service) {
  RequestPacket packet;
  packet.offset = index * mtu;
  packet.length = std::min(mtu, wqe.length - packet.offset);
  packet.begins = index == 0;
  packet.ends = packet.offset + packet.length == wqe.length;
  const size_t position = (packet.begins ? 1u : 0u) | (packet.ends ? 2u : 0u);
  const auto number = static_cast<uint8_t>(positions_of(wqe.opcode)[position]);
  packet.opcode = static_cast<Opcode>(number | (static_cast<uint8_t>(service) << 5));
  packet.size = wire::packet_size(packet.opcode, packet.length);
  return packet;
}

uint64_t request_bytes(const model::SendWqe& wqe, uint32_t from, uint32_t to, uint32_t mtu) {
  if (from >= to || is_read(wqe.opcode) || is_local(wqe.opcode)) return 0;
  if (is_atomic(wqe.opcode)) return wire::packet_size(Opcode::rc_fetch_add, 0);
  // All packets are MIDDLEs but for the extended headers of the first and the last, and its
  // payload.
  const RequestPacket first = plan_packet(wqe, 0, mtu, wire::Service::rc);
  const uint64_t middle = wire::packet_size(Opcode::rc_send_middle, mtu);
  uint64_t bytes = (to - from) * middle;
  if (from == 0) bytes = bytes - middle + first.size;
  if (to == wqe.packet_count && wqe.packet_count > 1) {
    bytes = bytes - middle + plan_packet(wqe, to - 1, mtu, wire::Service::rc).size;
  }
  return bytes;
}

uint64_t response_bytes(uint64_t length, uint64_t from, uint64_t to, uint32_t mtu) {
  const uint64_t begin = std::min<uint64_t>(from * mtu, length);
  const uint64_t end = std::min<uint64_t>(to * mtu, length);
  return end - begin + (to - from) * wire::packet_size(Opcode::rc_read_response_middle, 0);
}

wire::Bth base_header(const model::Qp& qp, Opcode opcode, Psn psn) {
  wire::Bth bth;
  bth.opcode = static_cast<uint8_t>(opcode);
  bth.reserved6 = qp.bth_reserved;
  bth.dest_qp = qp.attributes.destination_qpn;
  bth.psn = psn;
  return bth;
}

bool build_packet(Turn& turn, const model::Qp& qp, const model::SendWqe& wqe,
                  const RequestPacket& packet, Psn psn, bool ack_request, SgeWalker& walker) {
  SourcePieces pieces;
  if (wqe.inlined) {
    if (packet.length > 0) {
      pieces.add(wqe.inline_data() + packet.offset, packet.length);
    }
  } else if (walker.find(wqe.sges(), packet.offset, packet.length, qp.memory, qp.pd, 0, pieces) !=
             model::MemoryVerdict::kOk) {
    return false;
  }
  wire::Bth bth = base_header(qp, packet.opcode, psn);
  bth.ack_request = ack_request;
  bth.pad = wire::pad_for(packet.length);
  bth.solicited = packet.ends && (wqe.flags & model::kSolicited) != 0 && takes_receive(wqe.opcode);
  const uint16_t identification = turn.burst().next_identification();
  std::byte* place = turn.burst().append(packet.size);
  const size_t header = emit(place, bth, wqe);
  const wire::IcrcFlow& flow = *turn.context.icrc;
  if (wqe.inlined || packet.length == 0) {
    wire::seal(place, header, pieces.view(), flow, identification);
    return true;
  }
  if (guarded([&] { wire::seal(place, header, pieces.view(), flow, identification); })) return true;
  turn.burst().retract(packet.size);
  return false;
}

}  // namespace farverbs::proto
