#include "tools/top/metrics.h"

#include <fmt/format.h>

namespace farverbs::tools::top {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

// Families by name, in the order in which they were first used.
class Families {
 public:
  void add(MetricType type, const std::string& name, const char* help, const Labels& labels,
           double value) {
    MetricFamily* family = nullptr;
    for (MetricFamily& one : all_) {
      if (one.name == name) family = &one;
    }
    if (family == nullptr) {
      family = &all_.emplace_back();
      family->name = name;
      family->help = help;
      family->type = type;
    }
    ClientMetric& metric = family->metric.emplace_back();
    metric.label = labels;
    (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  }
  std::vector<MetricFamily> take() { return std::move(all_); }

 private:
  std::vector<MetricFamily> all_;
};

struct Described {
  const char* field;
  const char* help;
};

constexpr Described kQpCounters[] = {
    {"sent_packets", "Packets sent"},
    {"sent_payload_bytes", "Payload bytes sent for the first time"},
    {"received_packets", "Packets received"},
    {"received_payload_bytes", "Payload bytes received"},
    {"retransmitted_packets", "Packets sent again"},
    {"retransmitted_bytes", "Payload bytes sent again"},
    {"timeouts", "Times nothing was heard for too long"},
    {"duplicates_received", "Packets that had come before"},
    {"dropped_packets", "Packets that were refused without an answer"}};
constexpr Described kDeviceCounters[] = {
    {"sent_datagrams", "Datagrams sent"},
    {"received_datagrams", "Datagrams received"},
    {"receive_overflows", "Datagrams that the kernel dropped: the socket's buffer was full"}};

void add_flight(Families& families, const FlightStats& flight, const Labels& labels) {
  const auto gauge = [&](const char* name, const char* help, double value) {
    families.add(MetricType::Gauge, name, help, labels, value);
  };
  gauge("farverbs_path_rtt_seconds", "Last round trip time", flight.rtt_us * 1e-6);
  if (flight.min_rtt_us > 0) {
    gauge("farverbs_path_min_rtt_seconds", "Least round trip time", flight.min_rtt_us * 1e-6);
  }
  gauge("farverbs_path_window_bytes", "Most bytes in flight", flight.window_bytes);
  gauge("farverbs_path_inflight_bytes", "Bytes in flight", flight.inflight_bytes);
  gauge("farverbs_path_pacing_bits_per_second", "Pacing rate, 0: not paced", flight.pacing_bits);
  families.add(MetricType::Counter, "farverbs_path_delivered_bytes_total", "Bytes that arrived",
               labels, flight.delivered_bytes);
}

}  // namespace

std::vector<MetricFamily> to_metrics(const std::vector<DeviceStats>& devices) {
  Families families;
  families.add(MetricType::Gauge, "farverbs_devices", "Devices that answer", {},
               static_cast<double>(devices.size()));
  for (const DeviceStats& device : devices) {
    const Labels who = {{"pid", std::to_string(device.pid)},
                        {"process", device.process},
                        {"address", device.address}};
    for (const Described& one : kDeviceCounters) {
      const auto found = device.counters.find(one.field);
      if (found == device.counters.end()) continue;
      families.add(MetricType::Counter, fmt::format("farverbs_device_{}_total", one.field),
                   one.help, who, found->second);
    }
    for (const PathStats& path : device.paths) {
      for (const auto& [name, flight] : path.flights) {
        Labels labels = who;
        labels.push_back({"peer", path.peer});
        labels.push_back({"traffic_class", std::to_string(path.traffic_class)});
        labels.push_back({"flight", name});
        // Two shards may have a path each to one peer.
        labels.push_back({"path", std::to_string(path.id)});
        add_flight(families, flight, labels);
      }
    }
    for (const QpStats& qp : device.qps) {
      Labels labels = who;
      labels.push_back({"qpn", fmt::format("0x{:06x}", qp.qpn)});
      labels.push_back({"peer", qp.peer});
      for (const Described& one : kQpCounters) {
        const auto found = qp.counters.find(one.field);
        if (found == qp.counters.end()) continue;
        families.add(MetricType::Counter, fmt::format("farverbs_qp_{}_total", one.field), one.help,
                     labels, found->second);
      }
      labels.push_back({"type", qp.type});
      labels.push_back({"transport", qp.transport});
      labels.push_back({"state", qp.state});
      labels.push_back({"class", qp.service_class});
      families.add(MetricType::Gauge, "farverbs_qp_info", "1 for each queue pair, with what it is",
                   labels, 1);
    }
  }
  return families.take();
}

}  // namespace farverbs::tools::top
