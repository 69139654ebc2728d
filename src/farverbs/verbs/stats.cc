#include "farverbs/verbs/stats.h"

#include <unistd.h>

#include <map>

#include <nlohmann/json.hpp>

#include "farverbs/io/os_clock.h"
#include "farverbs/verbs/state.h"

namespace farverbs::verbs::detail {
namespace {

using Json = nlohmann::ordered_json;

struct FlightSample {
  uint64_t inflight = 0;
  uint64_t delivered = 0;
  uint64_t window = 0;
  BitRate rate;
  Duration rtt;
};

struct PathSample {
  io::TxFlow flow;
  TrafficClass traffic = TrafficClass::kBulk;
  FlightSample requests;
  FlightSample reads;
  FlightSample far;
  Duration min_rtt;             // of the far flight
  const char* phase = nullptr;  // of its controller; static text
  double loss_floor = 0;        // loss that is not congestion, as it believes
  uint32_t datagram_bytes = 0;  // UDP payload that the path is known to carry
};

struct QpSample {
  Qpn qpn;
  QpType type = QpType::kRc;
  QpState state = QpState::kReset;
  Qpn peer_qpn;
  PathMtu path_mtu = PathMtu::k1024;
  uint8_t service_level = 0;
  unsigned shard = 0;
  bool far = false;
  const engine::Path* path = nullptr;  // a name only: it may be gone when this is read
  model::QpCounters counters;
};

struct Sample {
  std::vector<QpSample> qps;
  std::map<const engine::Path*, PathSample> paths;
};

FlightSample sample_of(const engine::Flight& flight) {
  return {flight.inflight(), flight.delivered(), flight.window(), flight.rate(), flight.last_rtt()};
}

void take(const engine::LoopQp& loop_qp, unsigned shard, Sample& sample) {
  const model::Qp& qp = loop_qp.pair.qp();
  QpSample& out = sample.qps.emplace_back();
  out.qpn = qp.qpn;
  out.type = qp.type;
  out.state = qp.state.load();
  out.peer_qpn = qp.attributes.destination_qpn;
  out.path_mtu = qp.attributes.path_mtu;
  out.service_level = qp.attributes.address_vector.service_level;
  out.shard = shard;
  out.path = loop_qp.path;
  out.counters = qp.counters;
  out.far = loop_qp.pair.far();
  if (loop_qp.path == nullptr) return;
  const engine::Path& path = *loop_qp.path;
  const auto [place, is_new] = sample.paths.try_emplace(&path);
  if (!is_new) return;
  PathSample& told = place->second;
  told.flow = path.flow;
  told.traffic = path.traffic;
  told.requests = sample_of(path.requests);
  told.reads = sample_of(path.reads);
  told.far = sample_of(path.far);
  told.datagram_bytes = path.mtu.datagram_bytes();
  if (const cc::FarController* controller = path.far_controller; controller != nullptr) {
    told.min_rtt = controller->min_rtt();
    told.phase = path.line->phase();
    told.loss_floor = controller->loss_floor();
  }
}

const char* name_of(QpType type) {
  switch (type) {
    case QpType::kRc:
      return "RC";
    case QpType::kUc:
      return "UC";
    case QpType::kUd:
      return "UD";
    case QpType::kGsi:
      return "GSI";
  }
  return "?";
}

const char* name_of(QpState state) {
  switch (state) {
    case QpState::kReset:
      return "RESET";
    case QpState::kInit:
      return "INIT";
    case QpState::kRtr:
      return "RTR";
    case QpState::kRts:
      return "RTS";
    case QpState::kSqd:
      return "SQD";
    case QpState::kSqe:
      return "SQE";
    case QpState::kErr:
      return "ERR";
  }
  return "?";
}

Json to_json(const FlightSample& flight) {
  return {{"rtt_us", flight.rtt.to_microseconds()},
          {"window_bytes", flight.window},
          {"inflight_bytes", flight.inflight},
          {"pacing_bits_per_second", flight.rate.bps()},
          {"delivered_bytes", flight.delivered}};
}

Json to_json(const model::QpCounters& c) {
  return {{"sent_packets", c.sent_packets},
          {"sent_payload_bytes", c.sent_payload_bytes},
          {"received_packets", c.received_packets},
          {"received_payload_bytes", c.received_payload_bytes},
          {"retransmitted_packets", c.retransmitted_packets},
          {"retransmitted_bytes", c.retransmitted_bytes},
          {"timeouts", c.timeouts},
          {"sequence_naks_sent", c.sequence_naks_sent},
          {"sequence_naks_received", c.sequence_naks_received},
          {"rnr_naks_sent", c.rnr_naks_sent},
          {"rnr_naks_received", c.rnr_naks_received},
          {"duplicates_received", c.duplicates_received},
          {"dropped_packets", c.dropped_packets}};
}

Json to_json(const PathSample& path, size_t id) {
  Json far = to_json(path.far);
  // What was never measured is not told.
  if (path.min_rtt > Duration() && path.min_rtt < Duration::seconds(3600)) {
    far["min_rtt_us"] = path.min_rtt.to_microseconds();
  }
  Json out = {{"id", id},
              {"peer", path.flow.destination.to_string()},
              {"traffic_class", path.flow.traffic_class},
              {"class", model::to_string(path.traffic)},
              {"requests", to_json(path.requests)},
              {"reads", to_json(path.reads)},
              {"far", std::move(far)}};
  if (path.phase != nullptr) {
    out["phase"] = path.phase;
    out["loss_floor"] = path.loss_floor;
    out["datagram_bytes"] = path.datagram_bytes;
  }
  return out;
}

Json to_json(const QpSample& qp, const std::map<const engine::Path*, size_t>& ids,
             const Sample& sample) {
  Json out = {{"qpn", qp.qpn.value()},
              {"type", name_of(qp.type)},
              {"transport", qp.far ? "far" : "standard"},
              {"state", name_of(qp.state)},
              {"shard", qp.shard}};
  if (const auto path = ids.find(qp.path); path != ids.end()) {
    out["path"] = path->second;
    out["peer"] = sample.paths.at(qp.path).flow.destination.to_string();
    out["peer_qpn"] = qp.peer_qpn.value();
    out["path_mtu"] = model::bytes_of(qp.path_mtu);
    out["service_level"] = qp.service_level;
  }
  out["counters"] = to_json(qp.counters);
  return out;
}

}  // namespace

std::string stats_snapshot(DeviceState& device) {
  Sample sample;
  uint64_t sent = 0, received = 0, overflows = 0;
  for (unsigned i = 0; i < device.shards.size(); ++i) {
    device.shards[i]->with_loop([&](engine::Loop& loop, Time) {
      sample.qps.reserve(sample.qps.size() + loop.qp_count());
      loop.for_each_qp([&](const engine::LoopQp& qp) { take(qp, i, sample); });
      const io::PortCounters& port = loop.port().counters();
      sent += port.sent_datagrams;
      received += port.received_datagrams;
      overflows += port.receive_overflows;
    });
  }
  Json paths = Json::array(), qps = Json::array();
  std::map<const engine::Path*, size_t> ids;
  for (const auto& [path, values] : sample.paths) {
    ids[path] = paths.size();
    paths.push_back(to_json(values, paths.size()));
  }
  for (const QpSample& qp : sample.qps) qps.push_back(to_json(qp, ids, sample));
  return Json{{"version", 1},
              {"pid", ::getpid()},
              {"monotonic_ns", io::os_now().ns()},
              {"device",
               {{"address", device.options.address.to_string()},
                {"udp_port", device.options.udp_port},
                {"interface", device.interface.name},
                {"mtu", device.interface.mtu},
                {"sent_datagrams", sent},
                {"received_datagrams", received},
                {"receive_overflows", overflows}}},
              {"paths", std::move(paths)},
              {"qps", std::move(qps)}}
      .dump();
}

}  // namespace farverbs::verbs::detail
