// What the far transport makes of one line under several seeds and kinds of faults, kept as a
// table: a change in behaviour is a visible difference. FARVERBS_UPDATE_SNAPSHOTS=1 writes it anew.
#include <gtest/gtest.h>

#include <string>

#include "farverbs/sim/scenario.h"
#include "farverbs/sim/snapshot_testing.h"

namespace farverbs::sim {
namespace {

struct Fault {
  const char* name;
  double loss;
  double burst;  // mean length, Gilbert-Elliott
  double reorder;
  double least;  // share of what the line can carry of payload
};
constexpr Fault kFaults[] = {
    {"clean", 0, 1, 0, 0.92},
    {"1 % lost", 0.01, 1, 0, 0.9},
    {"5 % lost", 0.05, 1, 0, 0.88},
    {"1 % lost, bursts of 8", 0.01, 8, 0, 0.88},
    {"2 % lost, bursts of 20", 0.02, 20, 0, 0.4},
    {"5 % reordered by up to 100", 0, 1, 0.05, 0.9},
    {"both: 1 %, 5 %", 0.01, 1, 0.05, 0.88},
};

TEST(Seeds, EachKindOfFaultCostsWhatItCosts) {
  std::string table;
  for (const Fault& fault : kFaults) {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      BulkSpec spec;
      spec.far = true;
      spec.seed = seed;
      spec.rate = BitRate::bits_per_second(100'000'000);
      spec.round_trip = Duration::milliseconds(50);
      spec.loss = fault.loss;
      spec.burst_loss_length = fault.burst;
      spec.reorder = fault.reorder;
      spec.reorder_up_to = true;
      spec.reorder_delay = spec.rate.time_for(100 * 1'538);
      spec.total_bytes = uint64_t{40} << 20;
      spec.message_bytes = 256 << 10;
      spec.depth = 128;
      const BulkReport report = run_bulk(spec);
      ASSERT_TRUE(report.completed) << fault.name;
      const double share = report.share_of_capacity / (1 - fault.loss);
      EXPECT_GE(share, fault.least) << fault.name << ", seed " << seed;
      char row[160];
      std::snprintf(row, sizeof row,
                    "%-28s seed %llu  %5.1f %%  %6.2f s  lost %5llu  again %5llu  timeouts %llu\n",
                    fault.name, static_cast<unsigned long long>(seed), share * 100,
                    report.elapsed.to_seconds(),
                    static_cast<unsigned long long>(report.lost_packets),
                    static_cast<unsigned long long>(report.retransmitted_packets),
                    static_cast<unsigned long long>(report.timeouts));
      table += row;
    }
  }
  expect_kept(table, "seeds.snapshot.txt");
}

}  // namespace
}  // namespace farverbs::sim
