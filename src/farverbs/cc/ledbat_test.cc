#include "farverbs/cc/ledbat.h"

#include <gtest/gtest.h>

#include "farverbs/cc/cubic_competitor.h"
#include "farverbs/cc/far_testing.h"

namespace farverbs::cc {
namespace {

// lead: seconds that CUBIC is ahead.
double cubic_share(double rate, double rtt, bool beside, double lead, double* ours = nullptr) {
  FarLinkSpec spec = line(rate, rtt);
  CubicCompetitor cubic;
  Ledbat ledbat(known(spec));
  FarLink link(spec);
  const size_t first = link.add_flow(cubic, Time{} + seconds(std::max(-lead, 0.)));
  size_t second = 0;
  if (beside) second = link.add_flow(ledbat, Time{} + seconds(std::max(lead, 0.)));
  link.run_for(seconds(10));
  const uint64_t before = link.flow(first).delivered;
  const uint64_t before_ours = link.flow(second).delivered;
  link.run_for(seconds(30));
  const double whole = static_cast<double>(spec.rate.bytes_for(seconds(30)));
  if (ours != nullptr) {
    *ours = static_cast<double>(link.flow(second).delivered - before_ours) / whole;
  }
  return static_cast<double>(link.flow(first).delivered - before) / whole;
}

TEST(Ledbat, CubicKeepsItsRate) {
  for (const double rate : {20., 200.}) {
    for (const double rtt : {10., 30., 100.}) {
      for (const double lead : {-5., 5.}) {
        const double solo = cubic_share(rate, rtt, false, lead);
        double ours = 0;
        const double beside = cubic_share(rate, rtt, true, lead, &ours);
        row("CUBIC %4.0f Mb/s %3.0f ms, %2.0f s ahead: solo %.3f, beside background %.3f (%.3f), "
            "background %.3f",
            rate, rtt, lead, solo, beside, beside / solo, ours);
        EXPECT_GE(beside / solo, 0.9) << rate << " " << rtt << " " << lead;
      }
    }
  }
}

TEST(Ledbat, AloneItFillsTheLine) {
  for (const double rate : {20., 200., 1000.}) {
    for (const double rtt : {10., 100.}) {
      for (const double loss : {0., 1.}) {
        FarLinkSpec spec = line(rate, rtt, loss);
        Ledbat ledbat(known(spec));
        FarLink link(spec);
        const size_t flow = link.add_flow(ledbat);
        link.run_for(seconds(5));
        link.take_queue_delay(0.5);
        const uint64_t before = link.flow(flow).delivered;
        link.run_for(seconds(10));
        const double share = static_cast<double>(link.flow(flow).delivered - before) /
                             static_cast<double>(spec.rate.bytes_for(seconds(10))) /
                             (1 - spec.loss);
        const Duration p95 = link.take_queue_delay(0.95);
        row("background alone %4.0f Mb/s %3.0f ms %.0f %%: %.3f, queue p95 %.1f ms", rate, rtt,
            loss, share, to_ms(p95));
        EXPECT_GE(share, 0.9);
        EXPECT_LE(to_ms(p95), 10);
      }
    }
  }
}

TEST(Ledbat, OursOfTheBulkClassKeepsItsRateToo) {
  FarLinkSpec spec = line(200, 50);
  FarRun run(spec);
  Ledbat ledbat(known(spec));
  const size_t other = run.link.add_flow(ledbat, Time{} + seconds(2));
  run.link.run_for(seconds(10));
  const double share = run.share(seconds(10));
  row("bulk beside background: %.3f (%s, %s)", share, run.controller.phase_name(),
      ledbat.core().phase_name());
  EXPECT_GE(share, 0.85);
  EXPECT_EQ(run.link.flow(other).timeouts, 0u);
}

TEST(Ledbat, WhenTheOthersLeaveItTakesTheLine) {
  FarLinkSpec spec = line(200, 50);
  FarRun run(spec);
  Ledbat ledbat(known(spec));
  const size_t other = run.link.add_flow(ledbat, Time{} + seconds(2));
  run.link.run_for(seconds(10));
  run.link.set_active(run.flow, false);
  run.link.run_for(seconds(3));
  const uint64_t before = run.link.flow(other).delivered;
  run.link.run_for(seconds(3));
  EXPECT_GE(static_cast<double>(run.link.flow(other).delivered - before) /
                static_cast<double>(spec.rate.bytes_for(seconds(3))),
            0.9);
}

}  // namespace
}  // namespace farverbs::cc
