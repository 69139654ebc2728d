// The production loop in the simulator: some seeds of every kind here, thousands in `./dev sim`.
#include <gtest/gtest.h>

#include "farverbs/sim/scenario.h"

namespace farverbs::sim {
namespace {

TEST(Scenario, TheFirstSeedsKeepEveryPromise) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    const ScenarioReport report = run_scenario(seed);
    ASSERT_EQ(report.failure, "") << "replay: farverbs_sim --seed " << seed << "\n"
                                  << report.description;
  }
}

TEST(Scenario, TheSameSeedGivesTheSameRun) {
  const ScenarioReport first = run_scenario(42);
  const ScenarioReport second = run_scenario(42);
  EXPECT_EQ(first.steps, second.steps);
  EXPECT_EQ(first.virtual_time, second.virtual_time);
}

TEST(Bulk, FillsAHomeLine) {
  BulkSpec spec;
  spec.rate = BitRate::bits_per_second(200'000'000);
  spec.round_trip = Duration::milliseconds(100);
  spec.total_bytes = uint64_t{200} << 20;
  const BulkReport report = run_bulk(spec);
  ASSERT_TRUE(report.completed);
  EXPECT_GT(report.share_of_capacity, 0.9);
}

TEST(Bulk, ReadsFillAHomeLine) {
  BulkSpec spec;
  spec.rate = BitRate::bits_per_second(200'000'000);
  spec.round_trip = Duration::milliseconds(20);
  spec.total_bytes = uint64_t{100} << 20;
  spec.read = true;
  const BulkReport report = run_bulk(spec);
  ASSERT_TRUE(report.completed);
  EXPECT_GT(report.share_of_capacity, 0.9);
}

TEST(Bulk, ALostRetransmissionIsNotWaitedOutByTheTimeout) {
  BulkSpec spec;
  spec.rate = BitRate::bits_per_second(100'000'000);
  spec.round_trip = Duration::milliseconds(40);
  spec.loss = 0.02;
  spec.total_bytes = 2 << 20;
  spec.message_bytes = 64 << 10;
  spec.depth = 16;
  const BulkReport report = run_bulk(spec);
  ASSERT_TRUE(report.completed);
  EXPECT_LE(report.timeouts, 1u);  // of a second each
}

TEST(Bulk, TenGigabitsOverThreeHundredMilliseconds) {
  BulkSpec spec;
  spec.rate = BitRate::bits_per_second(10'000'000'000);
  spec.round_trip = Duration::milliseconds(300);
  spec.path_mtu = model::PathMtu::k4096;
  spec.max_window_packets = 400'000;
  spec.total_bytes = uint64_t{4} << 30;
  spec.message_bytes = 8 << 20;
  spec.depth = 256;
  spec.measure_after = Duration::milliseconds(6'500);
  const BulkReport report = run_bulk(spec);
  ASSERT_TRUE(report.completed);
  EXPECT_GT(report.share_of_capacity, 0.95);
}

}  // namespace
}  // namespace farverbs::sim
