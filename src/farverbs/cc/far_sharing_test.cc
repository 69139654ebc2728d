// FarController beside others on one line: CUBIC, and its like.
#include <gtest/gtest.h>

#include "farverbs/cc/cubic_competitor.h"
#include "farverbs/cc/far_testing.h"

namespace farverbs::cc {
namespace {

double jain(double x, double y) { return (x + y) * (x + y) / 2 / (x * x + y * y); }

struct Shares {
  double ours = 0;
  double other = 0;
};

Shares shares(FarRun& run, size_t other, Duration span) {
  const uint64_t a = run.link.flow(run.flow).delivered;
  const uint64_t b = run.link.flow(other).delivered;
  run.link.run_for(span);
  const double whole = static_cast<double>(run.spec.rate.bytes_for(span));
  return {static_cast<double>(run.link.flow(run.flow).delivered - a) / whole,
          static_cast<double>(run.link.flow(other).delivered - b) / whole};
}

TEST(FarSharing, BesideCubicInAQueueOfOneBdp) {
  for (const double rate : {20., 200., 1000.}) {
    for (const double rtt : {10., 30., 100.}) {
      // Slower lines hold few packets, and CUBIC takes minutes to fill faster ones.
      const bool usual = rate == 200;
      if (!usual && !table_wanted()) continue;
      for (const double lead : {-5., 0., 5.}) {  // of CUBIC, seconds
        FarLinkSpec spec = line(rate, rtt);
        FarRun run(spec, known(spec), 0, seconds(std::max(lead, 0.)));
        CubicCompetitor cubic;
        const size_t other = run.link.add_flow(cubic, Time{} + seconds(std::max(-lead, 0.)));
        run.link.run_for(seconds(10));
        run.link.take_queue_delay(0.5);
        const Shares s = shares(run, other, seconds(40));
        row("CUBIC %4.0f Mb/s %3.0f ms, %2.0f s ahead: ratio %.2f, sum %.3f, queue p50 %.1f ms, "
            "%s",
            rate, rtt, lead, s.ours / s.other, s.ours + s.other,
            to_ms(run.link.take_queue_delay(0.5)), run.controller.phase_name());
        if (!usual) continue;
        EXPECT_GE(s.ours / s.other, 0.5) << rate << " " << rtt << " " << lead;
        EXPECT_LE(s.ours / s.other, 2.0) << rate << " " << rtt << " " << lead;
        EXPECT_GE(s.ours + s.other, 0.98);
      }
    }
  }
}

TEST(FarSharing, TwoOfOurs) {
  for (const double rate : {20., 200., 1000.}) {
    for (const double rtt : {10., 30., 100.}) {
      for (const double loss : {0., 1.}) {
        const bool usual = rate == 200 && rtt > 20;
        if (!usual && !table_wanted()) continue;
        for (const double gap : {0., 5.}) {
          FarLinkSpec spec = line(rate, rtt, loss);
          FarRun run(spec);
          FarController second(known(spec));
          const size_t other = run.link.add_flow(second, Time{} + seconds(gap));
          run.link.run_for(seconds(gap + 20));
          run.link.take_queue_delay(0.5);
          const Shares s = shares(run, other, seconds(10));
          row("two of ours %4.0f Mb/s %3.0f ms %.0f %% gap %.0f s: Jain %.3f, ratio %.2f, sum "
              "%.3f, "
              "queue p95 %.1f ms, %s %s",
              rate, rtt, loss, gap, jain(s.ours, s.other), s.ours / s.other,
              (s.ours + s.other) / (1 - loss / 100), to_ms(run.link.take_queue_delay(0.95)),
              run.controller.phase_name(), second.phase_name());
          if (!usual) continue;
          EXPECT_GE(jain(s.ours, s.other), 0.93) << rate << " " << rtt << " " << loss << " " << gap;
          EXPECT_GE((s.ours + s.other) / (1 - loss / 100), 0.98);
        }
      }
    }
  }
}

}  // namespace
}  // namespace farverbs::cc
