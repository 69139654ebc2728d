#include "farverbs/cc/far_controller.h"

#include <gtest/gtest.h>

#include "farverbs/cc/far_testing.h"

namespace farverbs::cc {
namespace {

using Phase = FarController::Phase;

TEST(FarController, TheFirstTrainLeavesAtOnceAndAsMuchIsSpread) {
  FarConfig config;
  config.initial_rtt = ms(100);
  FarController controller(config);
  EXPECT_EQ(controller.allowance().window_bytes, 84u * 1472);
  EXPECT_TRUE(controller.allowance().rate.is_zero());
  controller.on_sent(Time{}, 84 * 1472, 84 * 1472);
  EXPECT_EQ(controller.allowance().window_bytes, 168u * 1472);
  EXPECT_NEAR(static_cast<double>(controller.allowance().rate.bps()), 84 * 1472 * 8 / 0.1, 1e3);
}

TEST(FarController, AShortPathBeginsWithLess) {
  FarConfig config;
  config.initial_rtt = ms(10);
  EXPECT_EQ(FarController(config).allowance().window_bytes, 16u * 1472);
  EXPECT_EQ(FarController().allowance().window_bytes, 32u * 1472) << "nothing is known";
}

TEST(FarController, TheTrainTellsTheRate) {
  FarRun run(line(200, 100));
  run.link.run_for(ms(150));
  EXPECT_EQ(run.controller.phase(), Phase::kStartup);
  EXPECT_NEAR(static_cast<double>(run.controller.allowance().rate.bps()), 0.7 * 200e6, 20e6);
}

TEST(FarController, StartupFillsTheLineWithoutDrops) {
  FarRun run(line(200, 100));
  EXPECT_FALSE(run.controller.remember().has_value());
  run.link.run_for(seconds(1));
  EXPECT_EQ(run.controller.phase(), Phase::kCruise);
  EXPECT_EQ(run.link.queue_drops(), 0u);
  ASSERT_TRUE(run.controller.remember().has_value());
  EXPECT_NEAR(static_cast<double>(run.controller.remember()->rate.bps()), 200e6, 4e6);
  EXPECT_NEAR(to_ms(run.controller.remember()->min_rtt), 100, 1);
}

TEST(FarController, ChanceLossesBecomeTheFloor) {
  FarRun run(line(200, 100, 5));
  run.link.run_for(seconds(10));
  EXPECT_NEAR(run.controller.loss_floor(), 0.05, 0.01);
  EXPECT_STREQ(run.controller.phase_name(), "cruise");
}

TEST(FarController, ATimeoutForgetsNothing) {
  FarRun run(line(200, 50));
  run.link.run_for(seconds(3));
  const BitRate before = run.controller.bandwidth();
  run.controller.on_timeout(run.link.now());
  EXPECT_EQ(run.controller.bandwidth(), before);
  EXPECT_LE(run.controller.allowance().window_bytes, 16u * 1472);
  EXPECT_FALSE(run.controller.allowance().rate.is_zero());
  run.link.run_for(ms(200));
  EXPECT_GE(run.share(seconds(1)), 0.98);
}

TEST(FarController, MarksKeepTheQueueShort) {
  FarLinkSpec spec = line(200, 20);
  spec.mark_above = ms(1);
  FarRun run(spec);
  run.link.run_for(seconds(3));
  run.link.take_queue_delay(0.5);
  EXPECT_GE(run.share(seconds(10)), 0.95);
  const Duration p95 = run.link.take_queue_delay(0.95);
  row("marked above 1 ms: queue p95 %.2f ms", to_ms(p95));
  EXPECT_LE(to_ms(p95), 2.0);
}

TEST(FarController, ALimitedFlowIsNotRefreshedAndKeepsItsModel) {
  FarRun run(line(200, 100));
  run.link.run_for(seconds(2));
  run.link.set_active(run.flow, false);
  for (int i = 0; i < 1000; ++i) {
    run.link.run_for(ms(20));
    run.link.offer(run.flow, 10'000);
    ASSERT_NE(run.controller.phase(), Phase::kRefresh);
  }
  EXPECT_GE(run.controller.bandwidth().bps(), 150'000'000u);
  run.link.set_active(run.flow, true);
  run.link.run_for(ms(200));
  EXPECT_GE(run.share(seconds(1)), 0.95);
}

TEST(FarController, AnySamplesGiveSaneAllowances) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Prng prng(seed);
    FarConfig config;
    if (prng.chance(0.5))
      config.initial_rtt = Duration::nanoseconds(static_cast<int64_t>(prng.below(2'000'000'000)));
    if (prng.chance(0.5)) config.remembered = RememberedPath{mbps(1e5), config.initial_rtt};
    config.background = prng.chance(0.3);
    FarController controller(config);
    // Magnitudes from nothing to what no path has.
    const auto any = [&prng](uint64_t bits) { return prng.next() >> (64 - prng.between(1, bits)); };
    Time now;
    for (int i = 0; i < 3000; ++i) {
      now = now + Duration::nanoseconds(static_cast<int64_t>(any(36)));
      Sample sample;
      sample.now = now;
      sample.acked_bytes = any(34);
      sample.lost_bytes = prng.chance(0.3) ? any(34) : 0;
      sample.spurious_bytes = prng.chance(0.1) ? any(34) : 0;
      sample.congestion_marked_bytes = prng.chance(0.1) ? any(34) : 0;
      sample.inflight_bytes = any(34);
      sample.has_rtt = prng.chance(0.8);
      sample.rtt = Duration::nanoseconds(static_cast<int64_t>(any(42)));
      sample.delivery_rate = BitRate::bits_per_second(any(45));
      sample.application_limited = prng.chance(0.2);
      sample.delivered_bytes = any(50);
      sample.prior_delivered_bytes = any(50);
      sample.prior_inflight_bytes = any(34);
      controller.on_feedback(sample);
      if (prng.chance(0.3)) controller.on_sent(now, any(20), any(34));
      if (prng.chance(0.02)) controller.on_timeout(now);
      const Allowance allowance = controller.allowance();
      ASSERT_GE(allowance.window_bytes, 2 * config.packet_bytes) << seed;
      ASSERT_LE(allowance.window_bytes, config.max_window_bytes) << seed;
      ASSERT_LE(allowance.rate.bps(), uint64_t{1} << 60) << seed;
      ASSERT_LE(controller.loss_floor(), 0.3);
    }
  }
}

TEST(FarController, IdenticalInputsGiveIdenticalDecisions) {
  const auto delivered = [] {
    FarRun run(line(100, 30, 1));
    run.link.run_for(seconds(2));
    return run.link.flow(run.flow).delivered;
  };
  EXPECT_EQ(delivered(), delivered());
}

}  // namespace
}  // namespace farverbs::cc
