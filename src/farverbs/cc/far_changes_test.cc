// FarController on lines that change, are policed, or lose, delay and reorder roughly.
#include <gtest/gtest.h>

#include "farverbs/cc/far_testing.h"

namespace farverbs::cc {
namespace {

TEST(FarChanges, AfterABlackoutTheLineIsFullWithinThreeRoundTrips) {
  for (const double rate : {20., 200., 1000.}) {
    for (const double rtt : {10., 100., 300.}) {
      for (const double loss : {0., 1.}) {
        FarRun run(line(rate, rtt, loss));
        run.link.run_for(seconds(6));
        run.link.set_down(true);
        run.link.run_for(seconds(2));
        run.link.set_down(false);
        run.link.run_for(ms(300 + 3 * rtt));
        const double after = run.share(ms(500));
        const double later = run.share(seconds(2));
        row("blackout %4.0f Mb/s %3.0f ms %.0f %%: then %.3f, later %.3f", rate, rtt, loss, after,
            later);
        EXPECT_GE(after, 0.9) << rate << " " << rtt << " " << loss;
        EXPECT_GE(later, 0.95) << rate << " " << rtt << " " << loss;
      }
    }
  }
}

TEST(FarChanges, APolicerIsFoundAndNotFought) {
  for (const double rtt : {10., 30., 100.}) {
    for (const double loss : {0., 1.}) {
      for (const double bucket : {5., 30., 200.}) {
        FarLinkSpec spec = line(1000, rtt, loss);
        spec.policer = mbps(100);
        spec.policer_bytes = spec.policer.bytes_for(ms(bucket));
        FarRun run(spec);
        const double first = run.share(seconds(5), spec.policer);
        const FarLink::Flow before = run.link.flow(run.flow);
        const double then = run.share(seconds(10), spec.policer);
        const FarLink::Flow& after = run.link.flow(run.flow);
        const double lost = static_cast<double>(after.lost - before.lost) /
                            static_cast<double>(after.sent - before.sent);
        row("policer %3.0f ms, %.0f %%, bucket %3.0f ms: first 5 s %.3f, then %.3f, lost %.4f", rtt,
            loss, bucket, first, then, lost);
        EXPECT_GE(first, 0.8);
        EXPECT_GE(then, 0.95);
        EXPECT_LE(lost, (bucket < 100 ? 0.06 : 0.25) + loss / 100);
      }
    }
  }
}

TEST(FarChanges, AQuarterAndFourTimesTheRateAreFollowed) {
  for (const double rtt : {10., 30., 100., 300.}) {
    for (const double loss : {0., 1., 5.}) {
      FarRun run(line(200, rtt, loss));
      run.link.run_for(seconds(6));
      run.link.set_rate(mbps(50));
      const double slower = run.share(seconds(4), mbps(50));
      run.link.take_queue_delay(0.5);
      const double settled = run.share(seconds(4), mbps(50));
      const Duration queue = run.link.take_queue_delay(0.95);
      run.link.set_rate(mbps(200));
      const double rising = run.share(seconds(3));
      const double risen = run.share(seconds(3));
      row("rate / 4, x 4, %3.0f ms, %.0f %%: %.3f, %.3f queue p95 %.1f ms; %.3f, %.3f", rtt, loss,
          slower, settled, to_ms(queue), rising, risen);
      EXPECT_GE(slower, 0.8);
      EXPECT_GE(settled, 0.93);
      EXPECT_LE(to_ms(queue), std::max(15.0, rtt * 0.15));
      EXPECT_GE(rising, rtt > 200 ? 0.25 : 0.6);
      EXPECT_GE(risen, rtt > 200 ? 0.7 : 0.95);
    }
  }
}

TEST(FarChanges, BurstsOfLossesAreChanceToo) {
  for (const double rate : {200., 1000.}) {
    for (const double rtt : {10., 100., 300.}) {
      FarLinkSpec spec = line(rate, rtt, 1);
      spec.loss_burst = 8;
      FarRun run(spec);
      run.link.run_for(seconds(5));
      const double goodput = run.share(seconds(10));
      row("bursts of losses %4.0f Mb/s %3.0f ms: %.3f", rate, rtt, goodput);
      EXPECT_GE(goodput, 0.97);
    }
  }
}

TEST(FarChanges, ShortQueuesAreRespected) {
  for (const double rate : {200., 1000.}) {
    for (const double rtt : {30., 100.}) {
      for (const double loss : {0., 1.}) {
        FarLinkSpec spec = line(rate, rtt, loss, 0.1);
        FarRun run(spec);
        run.link.run_for(seconds(5));
        const uint64_t drops = run.link.queue_drops();
        const FarLink::Flow before = run.link.flow(run.flow);
        const double goodput = run.share(seconds(10));
        const double dropped =
            static_cast<double>((run.link.queue_drops() - drops) * spec.packet_bytes) /
            static_cast<double>(run.link.flow(run.flow).sent - before.sent);
        row("queue 0.1 BDP %4.0f Mb/s %3.0f ms %.0f %%: %.3f, dropped there %.4f", rate, rtt, loss,
            goodput, dropped);
        EXPECT_GE(goodput, 0.97);
        EXPECT_LE(dropped, 0.02);
      }
    }
  }
}

TEST(FarChanges, JitterAndReordering) {
  const struct {
    double jitter, reordered, by;
  } rows[] = {{2, 0, 0}, {10, 0, 0}, {0, 0.01, 10}, {0, 0.05, 3}};
  for (const auto& rough : rows) {
    for (const double rtt : {10., 100.}) {
      FarLinkSpec spec = line(200, rtt);
      spec.jitter = ms(rough.jitter);
      spec.reordered = rough.reordered;
      spec.reorder_by = ms(rough.by);
      FarRun run(spec);
      run.link.run_for(seconds(3));
      const double goodput = run.share(seconds(10));
      row("jitter %.0f ms, %.0f %% later by %.0f ms, %3.0f ms: %.3f", rough.jitter,
          rough.reordered * 100, rough.by, rtt, goodput);
      EXPECT_GE(goodput, 0.97);
    }
  }
}

}  // namespace
}  // namespace farverbs::cc
