// Shared by the tests of the far controllers: lines, shares of a rate, and a table of what was
// measured, printed if FARVERBS_CC_TABLE is set, traced if FARVERBS_CC_TRACE is (milliseconds
// between lines). FARVERBS_CC_SEED replaces the seed.
#pragma once

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "farverbs/cc/far_controller.h"
#include "farverbs/cc/far_link.h"

namespace farverbs::cc {

inline BitRate mbps(double n) { return BitRate::bits_per_second(static_cast<uint64_t>(n * 1e6)); }
inline Duration ms(double n) { return Duration::from_seconds(n * 1e-3); }
inline Duration seconds(double n) { return Duration::from_seconds(n); }
inline double to_ms(Duration d) { return d.to_seconds() * 1e3; }

inline bool table_wanted() { return std::getenv("FARVERBS_CC_TABLE") != nullptr; }
__attribute__((format(printf, 1, 2))) inline void row(const char* format, ...) {
  if (!table_wanted()) return;
  va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::printf("\n");
}

// loss in percent, queue in BDP.
inline FarLinkSpec line(double rate_mbps, double rtt_ms, double loss = 0, double queue = 1) {
  FarLinkSpec spec;
  spec.rate = mbps(rate_mbps);
  spec.round_trip = ms(rtt_ms);
  spec.loss = loss / 100;
  // Large packets keep the fastest lines quick to simulate.
  spec.packet_bytes = rate_mbps > 5000 ? 8972 : 1472;
  const double bdp = static_cast<double>(spec.rate.bytes_for(spec.round_trip));
  spec.queue_bytes = std::max<uint64_t>(static_cast<uint64_t>(queue * bdp), 4 * spec.packet_bytes);
  if (const char* seed = std::getenv("FARVERBS_CC_SEED")) {
    spec.seed = static_cast<uint64_t>(std::atoi(seed));
  }
  return spec;
}

inline FarConfig known(const FarLinkSpec& spec) {
  FarConfig config;
  config.packet_bytes = spec.packet_bytes;
  config.initial_rtt = spec.round_trip;
  return config;
}

// A line with one flow of ours.
struct FarRun {
  explicit FarRun(const FarLinkSpec& of) : FarRun(of, known(of)) {}
  FarRun(const FarLinkSpec& of, const FarConfig& config, uint64_t transfer_bytes = 0,
         Duration start = {})
      : spec(of), controller(config), link(of) {
    flow = link.add_flow(controller, Time{} + start, transfer_bytes);
    trace();
  }

  // Of what can arrive at this rate.
  double share(Duration span, BitRate rate) {
    const uint64_t before = link.flow(flow).delivered;
    link.run_for(span);
    return static_cast<double>(link.flow(flow).delivered - before) /
           (static_cast<double>(rate.bps()) / 8 * span.to_seconds() * (1 - spec.loss));
  }
  double share(Duration span) { return share(span, spec.rate); }

  void trace() {
    const char* every = std::getenv("FARVERBS_CC_TRACE");
    if (every == nullptr) return;
    trace_step = ms(std::atof(every));
    link.observe([](void* context, size_t index,
                    const Sample& s) { static_cast<FarRun*>(context)->trace(index, s); },
                 this);
  }
  void trace(size_t index, const Sample& s) {
    if (index != flow || s.now - traced < trace_step) return;
    traced = s.now;
    std::printf(
        "%8.3f %-9s bw %8.2f rate %8.2f win %9llu inf %9llu rtt %7.2f q %6.2f min %6.2f floor "
        "%.4f lost %llu\n",
        static_cast<double>(s.now.ns()) * 1e-9, controller.phase_name(),
        static_cast<double>(controller.bandwidth().bps()) / 1e6,
        static_cast<double>(controller.allowance().rate.bps()) / 1e6,
        static_cast<unsigned long long>(controller.allowance().window_bytes),
        static_cast<unsigned long long>(s.inflight_bytes), to_ms(s.rtt),
        to_ms(controller.queue_delay()), to_ms(controller.min_rtt()), controller.loss_floor(),
        static_cast<unsigned long long>(s.lost_bytes));
  }

  FarLinkSpec spec;
  FarController controller;
  FarLink link;
  size_t flow = 0;
  Duration trace_step;
  Time traced;
};

}  // namespace farverbs::cc
