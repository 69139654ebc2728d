// The client of `farverbs perf`: asks a server for its side of a measurement, runs it, collects
// what both sides found.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "farverbs/base/result.h"
#include "tools/perf/options.h"
#include "tools/perf/report.h"

namespace farverbs::tools::perf {

struct ClientPlace {
  std::string host;
  uint16_t port = 0;
  uint16_t udp_port = kRoceUdpPort;  // of our own device
};

// report_every zero: no intervals. on_interval is called in the thread that measures.
Result<Report> run_client(const ClientPlace& place, const Options& options,
                          Duration report_every = {},
                          const std::function<void(const Interval&)>& on_interval = {});

}  // namespace farverbs::tools::perf
