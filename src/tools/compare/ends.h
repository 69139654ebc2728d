// What runs at the ends of a compared line besides the programs themselves: a prober of the round
// trip, and a fixed amount over one kernel TCP connection. Hidden commands of the binary, run in
// the line's namespaces. Each writes its findings as JSON.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "farverbs/base/result.h"

namespace farverbs::tools::compare {

struct PingOptions {
  std::string peer;  // IPv4
  double every_seconds = 0.01;
  double seconds = 0;  // then it ends; it also ends at SIGTERM
  std::string report;
};
/// ICMP echoes, which the peer's kernel answers, so that no process of ours adds its own delay.
/// Writes {"sent": n, "samples": [[monotonic seconds, ms], ...]}.
Result<void> run_ping(const PingOptions& options);

struct AmountOptions {
  std::string peer;  // the source's; the sink listens on all addresses
  uint16_t port = 0;
  uint64_t bytes = 0;
  std::string congestion;
  std::string report;
};
/// Takes one connection, reads all that was announced, confirms.
Result<void> run_sink(const AmountOptions& options);
/// Writes {"seconds": from connect to the confirmation}.
Result<void> run_source(const AmountOptions& options);

}  // namespace farverbs::tools::compare
