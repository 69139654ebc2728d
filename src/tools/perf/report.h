// What a measurement found: collected by the client, half of it from the server, and shown as JSON
// or as a small table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "farverbs/base/result.h"
#include "farverbs/base/time.h"
#include "tools/common/json_fields.h"
#include "tools/common/latency_histogram.h"
#include "tools/perf/endpoint.h"
#include "tools/perf/options.h"
#include "tools/perf/timeline.h"

namespace farverbs::tools::perf {

// What one side had used and done at a moment.
struct Snapshot {
  Time at;
  Duration cpu;           // of the process
  uint64_t messages = 0;  // of this side that completed
  verbs::QpCounters qps;  // of all queue pairs together
  verbs::DeviceCounters device;
};
Snapshot take_snapshot(const LocalEndpoint& endpoint, uint64_t messages);

// What one side used and did between two moments.
struct SideReport {
  Duration elapsed;
  Duration cpu;
  uint64_t messages = 0;
  uint64_t retransmitted = 0;
  Json counters;
};
SideReport difference(const Snapshot& begin, const Snapshot& end);
Json to_json(const SideReport& side);
Result<SideReport> side_from_json(const Json& object);

struct Interval {
  Duration begin;
  Duration end;
  uint64_t messages = 0;
};

struct Report {
  Options options;
  std::string client_address;
  std::string server_address;
  uint32_t path_mtu = 0;
  uint32_t interface_mtu = 0;
  verbs::Transport transport = verbs::Transport::kStandard;
  SideReport client;
  SideReport server;
  Duration setup;  // from the first packet to the peer until requests could be posted
  Duration total;  // from the first packet to the peer until the last confirmation
  Timeline timeline{Duration()};
  std::vector<Duration> samples;  // of messages sent by the clock, in their order
  LatencyHistogram latency;       // where messages are timed
  std::vector<Interval> intervals;

  // Payload bits a second in both directions, of a ping-pong in one.
  double bits_per_second() const;
  double messages_per_second() const;
  // CPU seconds per 10^9 bytes of payload in both directions; 0 if there was no payload.
  double cpu_per_gigabyte(Duration cpu) const;
};

Json to_json(const Report& report);
std::string to_text(const Report& report);
// The line printed before a measurement.
std::string title(const Options& options);
std::string to_text(const Interval& interval, const Options& options);

}  // namespace farverbs::tools::perf
