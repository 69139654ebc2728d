// `farverbs lab bench`: how many packets a second the emulator carries, what it costs at a rate,
// and how far its delays are off, seen by the emulator itself and from end to end. The end-to-end
// error compares the kernel's receive time of each packet with what the same Link says in virtual
// time for the recorded times of sending, so that real queueing does not count as an error.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "farverbs/base/result.h"
#include "tools/lab/emulator.h"
#include "tools/lab/stats.h"

namespace farverbs::tools::lab {

struct BenchOptions {
  double load = 0.95;  // of the rate
  double seconds = 3;
};

struct BenchReport {
  double most_packets_per_second = 0;  // received, no bottleneck, UDP super-packets
  double most_bits_per_second = 0;     // IP bytes
  double load_bits_per_second = 0;     // received at the rate's load, frames
  double emulator_cores = 0;
  double sender_cores = 0;
  double receiver_cores = 0;
  LabStats loaded;          // of the part at the rate
  uint64_t compared = 0;    // packets received at the rate
  double error_p50_us = 0;  // end to end, absolute
  double error_p99_us = 0;
  double bias_us = 0;
};

Result<BenchReport> run_bench(const EmulatorConfig& config, const BenchOptions& options);
std::string to_text(const BenchReport& report);
nlohmann::json to_json(const BenchReport& report);

}  // namespace farverbs::tools::lab
