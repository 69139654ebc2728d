// Where `farverbs top` gets its numbers: the sockets of this user's processes (verbs/stats.h), each
// of which tells about one device.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "farverbs/base/result.h"
#include "tools/common/json_fields.h"

namespace farverbs::tools::top {

struct FlightStats {
  double rtt_us = 0;
  double min_rtt_us = 0;  // 0: not known
  double window_bytes = 0;
  double inflight_bytes = 0;
  double pacing_bits = 0;  // 0: not paced
  double delivered_bytes = 0;
};

struct PathStats {
  uint64_t id = 0;
  std::string peer;
  uint64_t traffic_class = 0;
  std::string phase;                           // of its congestion controller, if that has any
  std::map<std::string, FlightStats> flights;  // "requests", "reads", "far"
};

struct QpStats {
  uint64_t qpn = 0;
  std::string type;
  std::string transport;
  std::string state;
  std::string service_class;  // empty: none was chosen
  std::string peer;           // empty: not connected
  int64_t path = -1;          // PathStats::id
  std::map<std::string, double> counters;
};

struct DeviceStats {
  pid_t pid = 0;
  std::string process;  // its name
  std::string socket;
  std::string address;
  double seconds = 0;  // of the monotonic clock
  std::map<std::string, double> counters;
  std::vector<PathStats> paths;
  std::vector<QpStats> qps;
  Json raw;  // as told
};

/// EPROTO with the name of the field that is not as it should be.
Result<DeviceStats> parse_stats(const std::string& text);

/// Every device of this user's processes, or of `pid` alone if it is not 0. What does not answer is
/// left out: it has just ended.
std::vector<DeviceStats> read_all(const std::string& folder, pid_t pid);

/// The flight that carries a QP's own requests; null if it has none.
const FlightStats* flight_of(const DeviceStats& device, const QpStats& qp);

}  // namespace farverbs::tools::top
