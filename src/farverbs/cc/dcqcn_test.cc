#include "farverbs/cc/dcqcn.h"

#include <gtest/gtest.h>

#include "farverbs/cc/far_testing.h"

namespace farverbs::cc {
namespace {

Time at_us(int64_t us) { return Time::from_ns(us * 1000); }

Sample acked(Time now, bool marked) {
  Sample sample;
  sample.now = now;
  sample.acked_bytes = 64'000;
  sample.has_rtt = true;
  sample.rtt = Duration::microseconds(50);
  sample.congestion_marked_bytes = marked ? 64'000 : 0;
  return sample;
}

TEST(Dcqcn, NothingIsPacedBeforeTheFirstMark) {
  Dcqcn dcqcn;
  for (int i = 1; i < 100; ++i) dcqcn.on_feedback(acked(at_us(i * 10), false));
  EXPECT_TRUE(dcqcn.allowance().rate.is_zero());
  EXPECT_EQ(dcqcn.rate().bps(), 10'000'000'000u);
}

TEST(Dcqcn, TheFirstMarkHalvesAndOnlyOneAnIntervalCounts) {
  Dcqcn dcqcn;
  dcqcn.on_feedback(acked(at_us(100), true));
  EXPECT_EQ(dcqcn.rate().bps(), 5'000'000'000u);
  dcqcn.on_feedback(acked(at_us(110), true));
  EXPECT_EQ(dcqcn.rate().bps(), 5'000'000'000u);
  EXPECT_EQ(dcqcn.allowance().rate.bps(), 5'000'000'000u);
}

TEST(Dcqcn, FastRecoveryReturnsHalfWayEachStepThenExplores) {
  Dcqcn dcqcn;
  dcqcn.on_feedback(acked(at_us(100), true));
  dcqcn.on_feedback(acked(at_us(100 + 300), false));
  EXPECT_EQ(dcqcn.rate().bps(), 7'500'000'000u);
  dcqcn.on_feedback(acked(at_us(100 + 600), false));
  EXPECT_EQ(dcqcn.rate().bps(), 8'750'000'000u);
  for (int i = 3; i < 40; ++i) dcqcn.on_feedback(acked(at_us(100 + 300 * i), false));
  EXPECT_TRUE(dcqcn.allowance().rate.is_zero()) << "back at the line's rate";
}

TEST(Dcqcn, AlphaFollowsTheMarks) {
  Dcqcn dcqcn;
  dcqcn.on_feedback(acked(at_us(100), true));
  double least = 1;
  for (int i = 1; i < 15; ++i) {
    dcqcn.on_feedback(acked(at_us(100 + 55 * i), false));
    least = std::min(least, dcqcn.alpha());
  }
  EXPECT_LT(least, 0.5);
  for (int i = 15; i < 200; ++i) dcqcn.on_feedback(acked(at_us(100 + 55 * i), true));
  EXPECT_GT(dcqcn.alpha(), 0.9);
}

TEST(Dcqcn, ALossHalvesAndTheRateHasAFloor) {
  Dcqcn dcqcn;
  Sample loss = acked(at_us(1000), false);
  loss.lost_bytes = 1000;
  dcqcn.on_feedback(loss);
  EXPECT_EQ(dcqcn.rate().bps(), 5'000'000'000u);
  for (int i = 0; i < 40; ++i) dcqcn.on_timeout(at_us(1001));
  EXPECT_EQ(dcqcn.rate().bps(), 10'000'000u);
}

TEST(Dcqcn, TwoFlowsShareAMarkingSwitchWithoutDrops) {
  FarLinkSpec spec;
  spec.rate = mbps(10'000);
  spec.round_trip = Duration::microseconds(60);
  spec.queue_bytes = 4'000'000;
  spec.packet_bytes = 4096;
  spec.mark_above = Duration::microseconds(300);
  spec.mark_all_above = Duration::microseconds(1500);
  spec.ack_tick = Duration::microseconds(5);
  DcqcnConfig config;
  config.packet_bytes = spec.packet_bytes;
  Dcqcn a(config);
  Dcqcn b(config);
  FarLink link(spec);
  const size_t first = link.add_flow(a);
  const size_t second = link.add_flow(b, at_us(20'000));
  link.run_for(ms(300));
  const uint64_t a0 = link.flow(first).delivered;
  const uint64_t b0 = link.flow(second).delivered;
  link.take_queue_delay(0.5);
  link.run_for(ms(500));
  const double whole = static_cast<double>(spec.rate.bytes_for(ms(500)));
  const double x = static_cast<double>(link.flow(first).delivered - a0) / whole;
  const double y = static_cast<double>(link.flow(second).delivered - b0) / whole;
  row("DCQCN: %.3f and %.3f, queue p95 %.2f ms, drops %llu", x, y,
      to_ms(link.take_queue_delay(0.95)), static_cast<unsigned long long>(link.queue_drops()));
  EXPECT_GE(x + y, 0.9);
  EXPECT_GE((x + y) * (x + y) / 2 / (x * x + y * y), 0.95);
  EXPECT_EQ(link.queue_drops(), 0u);
}

}  // namespace
}  // namespace farverbs::cc
