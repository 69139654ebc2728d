#include "tools/ping/echo_end.h"

#include <algorithm>

#include <fmt/format.h>

namespace farverbs::tools::ping {

using verbs::PathMtu;

verbs::ScatterGatherElement EchoEnd::receive_slot(uint32_t qp, uint32_t slot,
                                                  uint32_t length) const {
  return memory.sge(uint64_t{qp * 2 * kSlots + slot} * kMaxSize, length);
}

verbs::ScatterGatherElement EchoEnd::send_slot(uint32_t qp, uint32_t slot, uint32_t length) const {
  return memory.sge(uint64_t{(qp * 2 + 1) * kSlots + slot} * kMaxSize, length);
}

std::byte* EchoEnd::bytes(const verbs::ScatterGatherElement& sge) const {
  return memory.bytes().data() + (sge.address - memory.address());
}

Result<void> EchoEnd::post_receive(uint32_t qp, uint32_t slot) {
  const verbs::ScatterGatherElement sge = receive_slot(qp, slot, kMaxSize);
  verbs::ReceiveWorkRequest receive;
  receive.wr_id = uint64_t{qp} << 32 | slot;
  receive.sges = {&sge, 1};
  return qps[qp].post_receive(receive);
}

Result<EchoEnd> make_echo_end(verbs::Device& device, PathMtu largest) {
  const auto count = static_cast<uint32_t>(largest);  // codes count from 1
  FV_ASSIGN(verbs::ProtectionDomain pd, device.allocate_pd());
  FV_ASSIGN(verbs::CompletionQueue cq, device.create_cq(count * kSlots * 2));
  FV_ASSIGN(verbs::MemoryRegion memory,
            pd.allocate_memory(uint64_t{count} * 2 * kSlots * kMaxSize, model::kLocalWrite));
  EchoEnd end{std::move(cq), std::move(memory), {}, {}};
  verbs::QueuePairInit init;
  init.type = verbs::QpType::kUc;
  init.send_cq = &end.cq;
  init.receive_cq = &end.cq;
  init.capabilities.max_send_wr = kSlots;
  init.capabilities.max_recv_wr = kSlots;
  init.signal_all = true;
  for (uint32_t i = 0; i < count; ++i) {
    FV_ASSIGN(verbs::QueuePair qp, pd.create_qp(init));
    end.qps.push_back(std::move(qp));
  }
  init.type = verbs::QpType::kRc;
  init.capabilities.max_send_wr = init.capabilities.max_recv_wr = 1;
  FV_ASSIGN(end.reliable, pd.create_qp(init));
  return end;
}

namespace {

// Peers of before it was asked for are taken for standard ones.
Result<void> connect_reliable(EchoEnd& end, const Json& description, verbs::QpAddress peer) {
  if (!description.contains("reliable")) return {};
  FV_ASSIGN(const Json reliable, json_object(description, "reliable"));
  FV_ASSIGN(const uint64_t qpn, json_unsigned(reliable, "qpn", 0, Qpn::kMask));
  FV_ASSIGN(const uint64_t psn, json_unsigned(reliable, "psn", 0, Psn::kMask));
  FV_ASSIGN(const uint64_t far, json_unsigned(reliable, "far_version", 0, 255));
  peer.qpn = Qpn(static_cast<uint32_t>(qpn));
  peer.psn = Psn(psn);
  peer.far_version = static_cast<uint8_t>(far);
  return end.reliable->connect(peer);
}

}  // namespace

Json describe(const EchoEnd& end) {
  Json qps = Json::array();
  verbs::QpAddress address;
  for (const verbs::QueuePair& qp : end.qps) {
    address = qp.address();
    qps.push_back({address.qpn.value(), address.psn.value()});
  }
  const verbs::QpAddress reliable = end.reliable->address();
  return {{"udp_port", address.udp_port},
          {"qps", std::move(qps)},
          {"reliable",
           {{"qpn", reliable.qpn.value()},
            {"psn", reliable.psn.value()},
            {"far_version", reliable.far_version}}}};
}

Result<uint32_t> connect(EchoEnd& end, const Json& description, const IpAddress& address) {
  FV_ASSIGN(const uint64_t udp_port, json_unsigned(description, "udp_port", 1, 65'535));
  FV_ASSIGN(const Json pairs, json_array(description, "qps"));
  const auto common = static_cast<uint32_t>(std::min(end.qps.size(), pairs.size()));
  if (common == 0) return Error{EPROTO, "the peer has no queue pair"};
  for (uint32_t i = 0; i < common; ++i) {
    const Json& pair = pairs[i];
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_unsigned() ||
        !pair[1].is_number_unsigned()) {
      return Error{EPROTO, "the peer's queue pairs are not pairs of QPN and PSN"};
    }
    verbs::QpAddress peer;
    peer.gid = address.to_gid();
    peer.udp_port = static_cast<uint16_t>(udp_port);
    peer.qpn = Qpn(static_cast<uint32_t>(pair[0].get<uint64_t>()));
    peer.psn = Psn(pair[1].get<uint64_t>());
    peer.path_mtu = static_cast<PathMtu>(i + 1);
    FV_TRY(end.qps[i].connect(peer));
    for (uint32_t slot = 0; slot < kSlots; ++slot) FV_TRY(end.post_receive(i, slot));
  }
  verbs::QpAddress peer;
  peer.gid = address.to_gid();
  peer.udp_port = static_cast<uint16_t>(udp_port);
  FV_TRY(connect_reliable(end, description, peer));
  return common;
}

}  // namespace farverbs::tools::ping
