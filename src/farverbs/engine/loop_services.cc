// What comes for no QP of its own: management datagrams to QP1, and datagrams to multicast groups.
#include <algorithm>
#include <array>

#include "farverbs/engine/loop.h"
#include "farverbs/proto/placing.h"
#include "farverbs/wire/cm_messages.h"

namespace farverbs::engine {

void Loop::on_management(Time now, const wire::PacketView& packet,
                         const proto::PacketContext& context) {
  if (packet.info->service != wire::Service::ud || packet.deth().qkey != wire::kGsiQkey ||
      packet.payload().size() != wire::kMadSize || !proto::intact(packet, context)) {
    ++counters_.malformed_packets;
    return;
  }
  management_->route(
      now, {context.source, context.destination, context.traffic_class, packet.payload()});
  answer_management(now);
}

void Loop::answer_management(Time now) {
  while (const auto answer = management_->poll_answer()) {
    // What does not leave is lost like any other: who asked asks again.
    if (flush_burst(now)) send_management(*answer);
  }
}

void Loop::send_management(const io::ManagementRouter::Answer& answer) {
  io::TxFlow flow;
  flow.destination = {answer.to.address, port_.local().port};
  flow.traffic_class = answer.traffic_class;
  flow.source = source_of(answer.from.address);
  wire::Bth bth;
  bth.opcode = static_cast<uint8_t>(wire::Opcode::ud_send_only);
  bth.dest_qp = kManagementQpn;
  std::array<std::byte, wire::packet_size(wire::Opcode::ud_send_only, wire::kMadSize)> place;
  wire::TxBurst burst;
  burst.reset(place, 1);
  burst.append(place.size());
  const size_t header =
      wire::emit_headers(place.data(), bth, wire::Deth{wire::kGsiQkey, 0, kManagementQpn});
  wire::seal(place.data(), header, std::span<const std::byte>(answer.mad),
             wire::IcrcFlow::roce_v2(port_.local_at(flow.source), flow.destination), 0);
  (void)port_.send(flow, burst);
}

void Loop::attach(LoopQp& qp, const IpAddress& group) {
  if (std::find(members_.begin(), members_.end(), std::pair(group, &qp)) == members_.end()) {
    members_.emplace_back(group, &qp);
  }
}

bool Loop::detach(const LoopQp& qp, const IpAddress& group) {
  return std::erase_if(members_, [&](const auto& member) {
           return member.first == group && member.second == &qp;
         }) > 0;
}

void Loop::on_multicast(Time now, const wire::PacketView& packet, proto::PacketContext context) {
  if (!proto::intact(packet, context)) {
    ++counters_.malformed_packets;
    return;
  }
  context.unchecked = nullptr;  // once is enough for all of them
  for (const auto& [group, qp] : members_) {
    if (group != context.destination.address) continue;
    qp->pair.on_packet(now, packet, context);
    settle(now, *qp);
  }
}

uint8_t Loop::source_of(const IpAddress& address) const {
  for (unsigned source = 1; source < config_.limits.gid_count; ++source) {
    const auto index = static_cast<uint8_t>(source);
    if (port_.has_source(index) && port_.local_at(index).address == address) return index;
  }
  return 0;
}

}  // namespace farverbs::engine
