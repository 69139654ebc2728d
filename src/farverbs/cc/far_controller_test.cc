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
  EXPECT_EQ(controller.allowance().window_bytes, 64u * 1472);
  EXPECT_TRUE(controller.allowance().rate.is_zero());
  controller.on_sent(Time{}, 64 * 1472, 64 * 1472);
  EXPECT_EQ(controller.allowance().window_bytes, 128u * 1472);
  EXPECT_NEAR(static_cast<double>(controller.allowance().rate.bps()), 64 * 1472 * 8 / 0.1, 1e3);
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
