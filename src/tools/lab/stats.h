// What a lab counts, where the emulator publishes it for other processes, and how people and
// programs read it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "farverbs/base/time.h"
#include "tools/lab/histogram.h"

namespace farverbs::tools::lab {

struct DirectionStats {
  // Wire packets and their IP bytes.
  uint64_t packets_in = 0;
  uint64_t bytes_in = 0;
  uint64_t packets_out = 0;
  uint64_t bytes_out = 0;
  // Fates.
  uint64_t queue_drops = 0;
  uint64_t lost = 0;
  uint64_t dropped_bytes = 0;  // IP bytes of both
  uint64_t late = 0;
  uint64_t duplicated = 0;
  uint64_t corrupted = 0;
  uint64_t marked = 0;
  // The bottleneck's queue.
  int64_t queued_ns_total = 0;
  int64_t queued_ns_max = 0;
  // The emulator's own faults; each makes the result doubtful.
  uint64_t device_drops = 0;  // by the kernel, before the emulator read them
  uint64_t memory_drops = 0;  // no room to keep a packet in flight
  uint64_t write_errors = 0;  // refused by the receiving device
  uint64_t malformed = 0;     // no IP packets
  uint64_t reads = 0;
  uint64_t writes = 0;
  int64_t error_ns_total = 0;  // release minus due time, early ones negative
  Histogram error;             // its absolute value
};

struct LabStats {
  DirectionStats a_to_b;
  DirectionStats b_to_a;
  int64_t elapsed_ns = 0;
  int64_t cpu_ns = 0;   // of the emulator's process
  uint64_t stalls = 0;  // wake-ups more than 1 ms late
  int64_t stall_ns_max = 0;
  bool final = false;  // the emulator ended in order
};
static_assert(std::is_trivially_copyable_v<LabStats>);

// One writer, any readers, in memory shared by processes.
class SharedStats {
 public:
  void publish(const LabStats& stats);
  // False if no consistent copy could be had, which only a writer that died while writing causes.
  bool read(LabStats& stats) const;

 private:
  std::atomic<uint32_t> version_{0};
  LabStats stats_;
};

// What is wrong with a run because the emulator or this machine could not keep up; empty if
// nothing.
std::vector<std::string> overload_warnings(const LabStats& stats);

std::string to_text(const LabStats& stats);
nlohmann::json to_json(const LabStats& stats);

}  // namespace farverbs::tools::lab
