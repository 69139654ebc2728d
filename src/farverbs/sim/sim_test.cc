// The production loop in the simulator: some seeds of every kind here, thousands in `./dev sim`.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "farverbs/sim/scenario.h"
#include "farverbs/sim/snapshot_testing.h"

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

// What the far transport makes of lines of all kinds, in numbers that a change of behaviour
// changes: far_lines.snapshot.txt. FARVERBS_UPDATE_SNAPSHOTS=1 writes it anew.
struct FarLine {
  const char* name;
  uint64_t mbps;
  int64_t rtt_ms;
  double loss;
  double burst;
  double reorder;
  uint64_t megabytes;
  bool read;
  double least;  // share of what the line can carry of payload
};
constexpr FarLine kFarLines[] = {
    {"home, clean", 200, 100, 0, 0, 0, 150, false, 0.97},
    {"home, 1 % lost", 200, 100, 0.01, 0, 0, 150, false, 0.97},
    {"home, 1 % lost, READ", 200, 100, 0.01, 0, 0, 150, true, 0.97},
    {"home, 5 % lost", 200, 100, 0.05, 0, 0, 150, false, 0.94},
    {"home, 10 % lost", 200, 100, 0.1, 0, 0, 150, false, 0.85},
    {"home, 1 % lost in bursts of 8", 200, 100, 0.01, 8, 0, 150, false, 0.94},
    {"home, 5 % reordered by 100 packets", 200, 100, 0, 0, 0.05, 150, false, 0.94},
    {"fast and far, 1 % lost", 1'000, 300, 0.01, 0, 0, 600, false, 0.95},
    {"near, 1 % lost", 1'000, 10, 0.01, 0, 0, 400, false, 0.97},
};

TEST(Bulk, TheFarTransportFillsLinesThatLoseAndReorder) {
  std::string table;
  for (const FarLine& line : kFarLines) {
    BulkSpec spec;
    spec.far = true;
    spec.rate = BitRate::bits_per_second(line.mbps * 1'000'000);
    spec.round_trip = Duration::milliseconds(line.rtt_ms);
    spec.loss = line.loss;
    spec.burst_loss_length = line.burst;
    spec.reorder = line.reorder;
    // As long as 100 packets take.
    spec.reorder_delay = spec.rate.time_for(100 * 1'538);
    spec.total_bytes = line.megabytes << 20;
    spec.depth = 128;
    spec.read = line.read;
    spec.measure_after = Duration::milliseconds(line.rtt_ms * 8);
    const BulkReport report = run_bulk(spec);
    ASSERT_TRUE(report.completed) << line.name;
    EXPECT_GE(report.share_of_capacity / (1 - line.loss), line.least) << line.name;
    char row[160];
    std::snprintf(row, sizeof row,
                  "%-36s %5.1f %%  %7.2f s  lost %6llu  again %6llu  timeouts %llu\n", line.name,
                  report.share_of_capacity / (1 - line.loss) * 100, report.elapsed.to_seconds(),
                  static_cast<unsigned long long>(report.lost_packets),
                  static_cast<unsigned long long>(report.retransmitted_packets),
                  static_cast<unsigned long long>(report.timeouts));
    table += row;
  }
  expect_kept(table, "far_lines.snapshot.txt");
}

TEST(Bulk, ADataCentreThatMarksDropsNothing) {
  BulkSpec spec;
  spec.far = true;
  spec.rate = BitRate::bits_per_second(10'000'000'000);
  spec.round_trip = Duration::microseconds(60);
  spec.queue_bdp = 20;  // 1.5 MB
  spec.mark_bytes = 150'000;
  spec.total_bytes = uint64_t{600} << 20;
  const BulkReport report = run_bulk(spec);
  ASSERT_TRUE(report.completed);
  EXPECT_EQ(report.phase, "dcqcn");
  EXPECT_GT(report.marked_packets, 0u);
  EXPECT_EQ(report.lost_packets, 0u);
  EXPECT_GT(report.share_of_capacity, 0.85);
}

TEST(Bulk, TheFarTransportAtTenGigabitsOverThreeHundredMilliseconds) {
  BulkSpec spec;
  spec.far = true;
  spec.rate = BitRate::bits_per_second(10'000'000'000);
  spec.round_trip = Duration::milliseconds(300);
  spec.loss = 0.01;
  spec.total_bytes = uint64_t{7} << 30;
  // A message whose repair is lost holds up the completions behind it for a round trip more.
  spec.message_bytes = 8 << 20;
  spec.depth = 256;
  spec.measure_after = Duration::milliseconds(6'500);
  spec.until_last_post = true;
  const BulkReport report = run_bulk(spec);
  ASSERT_TRUE(report.completed);
  // Completions come in lumps of what waited for one repair, and this measures two seconds only: a
  // long run (`farverbs_sim bulk --far --mbps 10000 --rtt 300 --loss 0.01`) shows the rate.
  EXPECT_GT(report.share_of_capacity / 0.99, 0.75);
}

}  // namespace
}  // namespace farverbs::sim
