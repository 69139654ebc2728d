// The peer of a far connection may change its address: docs/far-transport.md section 7.
#include "farverbs/proto/far_machine.h"
#include "farverbs/proto/placing.h"

namespace farverbs::proto {

using wire::Opcode;
using wire::OpKind;

namespace {

// A number so far beyond the greatest is no proof that its sender knows that.
constexpr uint64_t kNearNumbers = uint64_t{1} << 20;

}  // namespace

Endpoint FarMachine::home() const {
  const model::AddressVector& av = qp_.attributes.address_vector;
  return {IpAddress::from_gid(av.destination_gid), av.udp_port};
}

FarMove& FarMachine::moves() {
  if (move_ == nullptr) {
    move_ = std::make_unique<FarMove>(SipKey{config_.secret, qp_.qpn.value()});
  }
  return *move_;
}

void FarMachine::note_source(Time now, const PacketContext& context, uint64_t ahead, size_t bytes) {
  const Endpoint at = home();
  if (context.source == at || ahead > kNearNumbers || !sending_) return;
  moves().on_source(now, context.source, at, bytes, probe_timeout());
  settle_move(now);
}

bool FarMachine::on_path_packet(Time now, const wire::PacketView& packet,
                                const PacketContext& context) {
  if (!sending_ || !intact(packet, context)) return false;
  const uint64_t token = packet.far_token().token;
  if (packet.info->kind == OpKind::path_challenge) {
    moves().on_challenge(token);
  } else if (move_ != nullptr) {
    move_->on_response(now, token);
  }
  if (move_ != nullptr) settle_move(now);
  return true;
}

void FarMachine::settle_move(Time now) {
  if (const auto to = move_->take_moved(now, timeouts_ > 0)) move(now, *to);
  feedback_.aside |= move_->has_something();
}

// What is on its way to the old address arrives nowhere: all of it is sent again.
void FarMachine::move(Time now, const Endpoint& to) {
  const bool other_path = to.address != home().address;
  model::AddressVector& av = qp_.attributes.address_vector;
  av.destination_gid = to.address.to_gid();
  av.udp_port = to.port;
  const uint64_t lost = feedback_.lost_bytes;
  sent_.give_up_all([&](const FarPacket& p) { on_lost(p); });
  sent_.take_back();
  feedback_.withdrawn_bytes += feedback_.lost_bytes - lost;
  feedback_.lost_bytes = lost;
  if (other_path) sent_.forget_path();
  feedback_.moved = true;
  heard_ = now;
  timeouts_ = forced_ = 0;
  gave_up_ = false;
  if (arrivals_.any()) arrivals_.tell_now();
}

std::optional<Endpoint> FarMachine::write_aside(wire::TxBurst& burst) {
  if (move_ == nullptr) return std::nullopt;
  Opcode opcode = Opcode::far_path_response;
  const size_t size = wire::packet_size(opcode, 0);
  Endpoint to = home();
  wire::FarToken token;
  if (const auto response = move_->take_response()) {
    token.token = *response;
  } else if (const auto challenge = move_->next_challenge(size)) {
    opcode = Opcode::far_path_challenge;
    token.token = challenge->token;
    to = challenge->to;
  } else {
    return std::nullopt;
  }
  wire::Bth bth;
  bth.opcode = static_cast<uint8_t>(opcode);
  bth.dest_qp = qp_.attributes.destination_qpn;
  std::byte* const place = burst.append(size);
  const size_t header = wire::emit_headers(place, bth, wire::FarBase{}, token);
  wire::seal(place, header, std::span<const std::byte>(), far_icrc(), 0);
  ++qp_.counters.sent_packets;
  return to;
}

}  // namespace farverbs::proto
