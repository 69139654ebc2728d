#include "tools/perf/endpoint.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace farverbs::tools::perf {
namespace {

using verbs::CompletionStatus;
using verbs::PathMtu;

// A peer that answers nothing is given up on after 8 of these: 4.096 us * 2^17 = 0.54 s, so that a
// process may be stopped for some seconds.
constexpr uint8_t kTimeoutCode = 17;
constexpr uint32_t kLatencySendQueue = 128;
constexpr uint32_t kLatencyReceives = 64;

uint32_t receives_for(const Options& o) {
  if (o.op != Op::kSend) return 1;
  if (o.mode == Mode::kLatency) return kLatencyReceives;
  // The receiving process takes turns with its packet loop: deep enough to cover one.
  const uint32_t deep = std::max(o.depth * 2, 8192 / o.qps);
  return std::min({deep, std::max(o.depth * 2, 1024u), 32'768u});
}

uint32_t send_queue_for(const Options& o) {
  return o.mode == Mode::kLatency ? kLatencySendQueue : o.depth;
}

bool needs_both_parts(const Options& o) {
  const bool ping_pong =
      o.mode == Mode::kLatency && (o.op == Op::kSend || (o.op == Op::kWrite && !o.target_idle));
  return o.bidirectional || ping_pong;
}

PathMtu to_path_mtu(uint32_t bytes) {
  auto code = static_cast<uint8_t>(PathMtu::k256);
  while (code < static_cast<uint8_t>(PathMtu::k4096) &&
         model::bytes_of(static_cast<PathMtu>(code)) < bytes) {
    ++code;
  }
  return static_cast<PathMtu>(code);
}

Result<std::vector<verbs::QueuePair>> make_qps(verbs::ProtectionDomain& pd,
                                               const verbs::CompletionQueue& cq,
                                               const Options& options, uint32_t receives) {
  verbs::QueuePairInit init;
  init.send_cq = &cq;
  init.receive_cq = &cq;
  init.capabilities.max_send_wr = send_queue_for(options);
  init.capabilities.max_recv_wr = receives;
  init.capabilities.max_inline_data = options.inlined ? static_cast<uint32_t>(options.size) : 0;
  std::vector<verbs::QueuePair> qps;
  qps.reserve(options.qps);
  for (uint32_t i = 0; i < options.qps; ++i) {
    FV_ASSIGN(verbs::QueuePair qp, pd.create_qp(init));
    qps.push_back(std::move(qp));
  }
  return qps;
}

Result<void> check_mtu(const verbs::Device& device, const Options& options) {
  const verbs::PortAttributes port = device.port();
  if (options.mtu > model::bytes_of(port.max_path_mtu)) {
    return invalid(fmt::format(
        "--mtu {} does not fit interface {} here, whose MTU is {}: use at most {}", options.mtu,
        port.interface_name, port.interface_mtu, model::bytes_of(port.max_path_mtu)));
  }
  return {};
}

}  // namespace

verbs::ScatterGatherElement LocalEndpoint::source(uint64_t slot, const Options& options) const {
  return memory.sge(slot * options.stride(), static_cast<uint32_t>(options.size));
}

verbs::ScatterGatherElement LocalEndpoint::target(uint64_t slot, const Options& options) const {
  return memory.sge(target_offset + slot * options.stride(), static_cast<uint32_t>(options.size));
}

verbs::QpCounters LocalEndpoint::counters() const {
  verbs::QpCounters sum;
  for (const verbs::QueuePair& qp : qps) {
    const verbs::QpCounters one = qp.counters();
    sum.sent_packets += one.sent_packets;
    sum.received_packets += one.received_packets;
    sum.sent_payload_bytes += one.sent_payload_bytes;
    sum.retransmitted_packets += one.retransmitted_packets;
    sum.retransmitted_bytes += one.retransmitted_bytes;
    sum.timeouts += one.timeouts;
    sum.sequence_naks_received += one.sequence_naks_received;
    sum.rnr_naks_received += one.rnr_naks_received;
    sum.duplicates_received += one.duplicates_received;
  }
  return sum;
}

Result<LocalEndpoint> make_endpoint(std::shared_ptr<verbs::Device> device, const Options& options) {
  FV_TRY(check_mtu(*device, options));
  const uint32_t receives = receives_for(options);
  FV_ASSIGN(verbs::ProtectionDomain pd, device->allocate_pd());
  const uint64_t completions = uint64_t{options.qps} * (send_queue_for(options) + receives) + 16;
  if (completions > device->attributes().max_cqe) {
    return invalid(
        "--qps times --depth is more than one completion queue holds: use a smaller "
        "--depth");
  }
  FV_ASSIGN(verbs::CompletionQueue cq, device->create_cq(static_cast<uint32_t>(completions)));
  const uint64_t length = options.region * (needs_both_parts(options) ? 2 : 1);
  FV_ASSIGN(verbs::MemoryRegion memory,
            pd.allocate_memory(length, model::kLocalWrite | model::kRemoteWrite |
                                           model::kRemoteRead | model::kRemoteAtomic));
  // Page faults belong to no measurement. Atomics begin at 0.
  std::memset(memory.bytes().data(), is_atomic(options.op) ? 0 : 0xA5, memory.length());
  FV_ASSIGN(std::vector<verbs::QueuePair> qps, make_qps(pd, cq, options, receives));
  return LocalEndpoint{std::move(device), std::move(pd),           std::move(cq), std::move(memory),
                       std::move(qps),    length - options.region, receives,      0};
}

Json describe(const LocalEndpoint& endpoint, const Options& options) {
  Json qps = Json::array();
  verbs::QpAddress first;
  for (const verbs::QueuePair& qp : endpoint.qps) {
    first = qp.address();
    qps.push_back({first.qpn.value(), first.psn.value()});
  }
  const uint32_t mtu = options.mtu != 0 ? options.mtu : model::bytes_of(first.path_mtu);
  return {{"address", IpAddress::from_gid(first.gid).to_string()},
          {"udp_port", first.udp_port},
          {"path_mtu", mtu},
          {"far_version", first.far_version},
          {"target", endpoint.memory.address() + endpoint.target_offset},
          {"rkey", endpoint.memory.rkey().value()},
          {"qps", std::move(qps)}};
}

Result<RemoteEndpoint> read_description(const Json& object, const Options& options,
                                        const IpAddress& address) {
  RemoteEndpoint remote;
  FV_ASSIGN(const std::string text, json_string(object, "address"));
  FV_ASSIGN(const IpAddress named, IpAddress::parse(text));
  if (named != address) {
    return Error{EPROTO, fmt::format("the peer at {} asks for packets to be sent to {}",
                                     address.to_string(), named.to_string())};
  }
  FV_ASSIGN(const uint64_t udp_port, json_unsigned(object, "udp_port", 1, 65'535));
  FV_ASSIGN(const uint64_t mtu, json_unsigned(object, "path_mtu", 256, 4096));
  FV_ASSIGN(const uint64_t far_version, json_unsigned(object, "far_version", 0, 255));
  FV_ASSIGN(remote.target_address, json_unsigned(object, "target", 0, UINT64_MAX));
  FV_ASSIGN(const uint64_t rkey, json_unsigned(object, "rkey", 0, UINT32_MAX));
  remote.rkey = MemoryKey(static_cast<uint32_t>(rkey));
  FV_ASSIGN(const Json qps, json_array(object, "qps"));
  if (qps.size() != options.qps) {
    return Error{EPROTO,
                 fmt::format("the peer has {} queue pairs instead of {}", qps.size(), options.qps)};
  }
  for (const Json& pair : qps) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_unsigned() ||
        !pair[1].is_number_unsigned()) {
      return Error{EPROTO, "the peer's queue pairs are not pairs of QPN and PSN"};
    }
    verbs::QpAddress qp;
    qp.gid = address.to_gid();
    qp.udp_port = static_cast<uint16_t>(udp_port);
    qp.qpn = Qpn(static_cast<uint32_t>(pair[0].get<uint64_t>()));
    qp.psn = Psn(pair[1].get<uint64_t>());
    qp.path_mtu = to_path_mtu(static_cast<uint32_t>(mtu));
    qp.far_version = static_cast<uint8_t>(far_version);
    remote.qps.push_back(qp);
  }
  return remote;
}

Result<void> connect(LocalEndpoint& local, const RemoteEndpoint& remote, const Options& options) {
  verbs::ConnectOptions how;
  // A device with a transport of its own (a server's --transport) insists on it.
  how.transport = options.transport != verbs::Transport::kAuto ? options.transport
                                                               : local.device->options().transport;
  how.traffic = options.traffic;
  how.timeout = kTimeoutCode;
  how.max_rd_atomic = static_cast<uint8_t>(
      std::clamp<uint32_t>(options.depth, 1, local.device->attributes().max_rd_atomic));
  for (size_t i = 0; i < local.qps.size(); ++i) {
    verbs::QpAddress peer = remote.qps[i];
    // connect() takes the smaller of ours and the peer's: --mtu counts as the peer's.
    if (options.mtu != 0) peer.path_mtu = std::min(peer.path_mtu, to_path_mtu(options.mtu));
    local.path_mtu =
        std::min(model::bytes_of(peer.path_mtu), model::bytes_of(local.qps[i].address().path_mtu));
    FV_TRY(local.qps[i].connect(peer, how));
  }
  local.transport = local.qps.front().transport();
  return {};
}

Error describe_failure(const verbs::WorkCompletion& completion, const std::string& peer) {
  const std::string status = model::to_string(completion.status);
  switch (completion.status) {
    case CompletionStatus::kRetryExceeded:
      return {ETIMEDOUT,
              fmt::format("no RDMA packets come back from {} (is it stopped or dead, or does a "
                          "firewall drop UDP port {}?)",
                          peer, kRoceUdpPort)};
    case CompletionStatus::kRnrRetryExceeded:
      return {ETIMEDOUT, fmt::format("{} posts no receives", peer)};
    case CompletionStatus::kRemoteAccessError:
    case CompletionStatus::kRemoteInvalidRequest:
    case CompletionStatus::kRemoteOperationError:
      return {EREMOTEIO, fmt::format("{} refused a request: {}", peer, status)};
    default:
      return {EIO, fmt::format("a request to {} failed: {}", peer, status)};
  }
}

}  // namespace farverbs::tools::perf
