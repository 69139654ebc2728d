#include "farverbs/cc/bdp_window.h"

#include <gtest/gtest.h>

#include "farverbs/cc/fixed_window.h"
#include "farverbs/cc/link_simulator.h"

namespace farverbs::cc {
namespace {

constexpr uint64_t kMega = 1'000'000;

BitRate mbps(uint64_t n) { return BitRate::bits_per_second(n * kMega); }
Duration ms(int64_t n) { return Duration::milliseconds(n); }

LinkSpec line(BitRate rate, Duration round_trip, double queue_in_bdp = 1.0) {
  LinkSpec spec;
  spec.rate = rate;
  spec.round_trip = round_trip;
  spec.queue_bytes =
      static_cast<uint64_t>(static_cast<double>(rate.bytes_for(round_trip)) * queue_in_bdp);
  return spec;
}

// The share of the link that a flow gets during the next `span`.
double utilization(LinkSimulator& link, size_t flow, BitRate rate, Duration span) {
  const uint64_t before = link.report(flow).delivered;
  link.run_for(span);
  return static_cast<double>(link.report(flow).delivered - before) /
         static_cast<double>(rate.bytes_for(span));
}

TEST(FixedWindow, NeverChanges) {
  FixedWindow window(12345);
  window.on_timeout(Time{});
  Sample sample;
  sample.lost_bytes = 99;
  window.on_feedback(sample);
  window.on_sent(Time{}, 1, 1);
  EXPECT_EQ(window.allowance().window_bytes, 12345u);
  EXPECT_TRUE(window.allowance().rate.is_zero());
}

TEST(BdpWindow, BeginsSmallAndUnpaced) {
  BdpWindow window;
  EXPECT_EQ(window.allowance().window_bytes, 32u * 1024);
  EXPECT_TRUE(window.allowance().rate.is_zero());
  EXPECT_FALSE(window.local()) << "nothing is known yet";
}

TEST(BdpWindow, FillsALongLineWithoutLossAndWithASmallQueue) {
  const BitRate rate = mbps(200);
  BdpWindow window;
  LinkSimulator link(line(rate, ms(100)));
  const uint64_t bdp = rate.bytes_for(ms(100));
  const size_t flow = link.add_flow(window, Time{});
  link.run_for(ms(1500));
  EXPECT_NE(window.phase(), BdpWindow::Phase::kStartup);
  link.take_peak_queue();
  EXPECT_GE(utilization(link, flow, rate, Duration::seconds(15)), 0.98);
  EXPECT_EQ(link.drops(), 0u);
  EXPECT_LE(link.take_peak_queue(), bdp * 45 / 100) << "a probe's, after startup";
  EXPECT_EQ(link.report(flow).timeouts, 0u);
  EXPECT_NEAR(static_cast<double>(window.bandwidth().bps()), 200e6, 10e6);
  EXPECT_NEAR(window.min_rtt().to_seconds(), 0.1, 0.005);
  // The window in cruise, between probes.
  int cruising = 0;
  for (int i = 0; i < 100; ++i) {
    link.run_for(ms(37));
    if (window.phase() != BdpWindow::Phase::kCruise) continue;
    ++cruising;
    const double share =
        static_cast<double>(window.allowance().window_bytes) / static_cast<double>(bdp);
    EXPECT_GE(share, 1.10);
    EXPECT_LE(share, 1.30);
    EXPECT_LE(link.inflight(flow), bdp * 13 / 10);
  }
  EXPECT_GE(cruising, 50);
}

TEST(BdpWindow, RampsWithinTwelveRoundsOnAFastLongLine) {
  const BitRate rate = mbps(1000);
  BdpWindow window;
  LinkSimulator link(line(rate, ms(100)));
  const size_t flow = link.add_flow(window, Time{});
  link.run_for(ms(1500));
  EXPECT_GE(utilization(link, flow, rate, ms(500)), 0.97);
  EXPECT_EQ(link.drops(), 0u);
}

TEST(BdpWindow, ASlowHomeLineLosesLittle) {
  const BitRate rate = mbps(20);
  LinkSpec spec = line(rate, ms(20));
  spec.queue_bytes = 50'000;
  BdpWindow window;
  LinkSimulator link(spec);
  const size_t flow = link.add_flow(window, Time{});
  link.run_for(ms(1000));
  EXPECT_GE(utilization(link, flow, rate, Duration::seconds(20)), 0.97);
  EXPECT_LE(link.report(flow).loss_events, 3u);
  EXPECT_LE(static_cast<double>(link.report(flow).sent),
            1.01 * static_cast<double>(link.report(flow).delivered) + 100'000);
}

TEST(BdpWindow, AShallowQueueIsNotOverflowedAgainAndAgain) {
  const BitRate rate = mbps(200);
  BdpWindow window;
  LinkSimulator link(line(rate, ms(40), 0.1));
  const size_t flow = link.add_flow(window, Time{});
  link.run_for(Duration::seconds(2));
  const uint64_t before = link.report(flow).loss_events;
  EXPECT_GE(utilization(link, flow, rate, Duration::seconds(20)), 0.90);
  EXPECT_LE(link.report(flow).loss_events - before, 12u);
}

TEST(BdpWindow, ChanceLossDoesNotShrinkTheWindow) {
  const BitRate rate = mbps(200);
  LinkSpec spec = line(rate, ms(10));
  spec.loss = 0.0001;
  BdpWindow window;
  LinkSimulator link(spec);
  const size_t flow = link.add_flow(window, Time{});
  link.run_for(Duration::seconds(1));
  // 1.8 losses a second, each of which costs go-back-N about a round trip.
  EXPECT_GE(utilization(link, flow, rate, Duration::seconds(20)), 0.94);
}

TEST(BdpWindow, FollowsALineThatBecomesFasterWithinSeconds) {
  BdpWindow window;
  LinkSpec spec = line(mbps(20), ms(50));
  spec.queue_bytes = 1'000'000;
  LinkSimulator link(spec);
  const size_t flow = link.add_flow(window, Time{});
  link.run_for(Duration::seconds(3));
  link.set_rate(mbps(200));
  link.run_for(Duration::seconds(3));
  EXPECT_GE(utilization(link, flow, mbps(200), Duration::seconds(2)), 0.95);
}

TEST(BdpWindow, FollowsALineThatBecomesSlower) {
  BdpWindow window;
  LinkSpec spec = line(mbps(200), ms(50));
  LinkSimulator link(spec);
  const size_t flow = link.add_flow(window, Time{});
  link.run_for(Duration::seconds(3));
  link.set_rate(mbps(50));
  link.run_for(Duration::seconds(3));
  const uint64_t losses = link.report(flow).loss_events;
  link.take_peak_queue();
  EXPECT_GE(utilization(link, flow, mbps(50), Duration::seconds(5)), 0.95);
  EXPECT_LE(link.report(flow).loss_events - losses, 1u);
  EXPECT_LE(link.take_peak_queue(), mbps(50).bytes_for(ms(50)));
}

TEST(BdpWindow, TwoFlowsShareALine) {
  const BitRate rate = mbps(200);
  BdpWindow first_window;
  BdpWindow second_window;
  LinkSimulator link(line(rate, ms(40)));
  const size_t first = link.add_flow(first_window, Time{});
  const size_t second = link.add_flow(second_window, Time::from_ns(2'000'000'000));
  link.run_for(Duration::seconds(12));
  const uint64_t first_before = link.report(first).delivered;
  const double second_share = utilization(link, second, rate, Duration::seconds(20));
  const double first_share = static_cast<double>(link.report(first).delivered - first_before) /
                             static_cast<double>(rate.bytes_for(Duration::seconds(20)));
  EXPECT_GE(first_share + second_share, 0.95);
  EXPECT_GE(first_share, 0.25);
  EXPECT_GE(second_share, 0.25);
}

LinkSpec local_path(uint64_t queue_bytes) {
  LinkSpec spec;
  spec.rate = mbps(24'000);
  spec.round_trip = Duration::microseconds(40);
  spec.packet_bytes = 62 * 1040;  // a super-buffer
  spec.ack_every = 1;
  spec.queue_bytes = queue_bytes;
  return spec;
}

TEST(BdpWindow, ALocalPathIsFilledUnpacedWithinFloorAndCeiling) {
  BdpWindow window;
  LinkSimulator link(local_path(4 << 20));
  const size_t flow = link.add_flow(window, Time{});
  link.run_for(ms(5));
  EXPECT_TRUE(window.local());
  EXPECT_GE(utilization(link, flow, mbps(24'000), ms(200)), 0.97);
  // Longer than the RTT filter remembers: the RTTs that queueing made must not raise the window.
  for (int i = 0; i < 26; ++i) {
    link.run_for(ms(500));
    ASSERT_TRUE(window.allowance().rate.is_zero());
    if (window.phase() == BdpWindow::Phase::kRefresh) continue;
    ASSERT_GE(window.allowance().window_bytes, 256u * 1024);
    ASSERT_LE(window.allowance().window_bytes, 1024u * 1024);
  }
  EXPECT_GE(utilization(link, flow, mbps(24'000), ms(200)), 0.97);
}

TEST(BdpWindow, ALocalPeerWithASmallSocketBufferIsFound) {
  BdpWindow window;
  LinkSimulator link(local_path(200'000));
  const size_t flow = link.add_flow(window, Time{});
  link.run_for(ms(100));
  const uint64_t before = link.report(flow).loss_events;
  EXPECT_GE(utilization(link, flow, mbps(24'000), Duration::seconds(6)), 0.95);
  EXPECT_LE(link.report(flow).loss_events - before, 3u);
}

Sample acked(Time now, uint64_t bytes, uint64_t inflight, Duration rtt, BitRate rate) {
  Sample sample;
  sample.now = now;
  sample.acked_bytes = bytes;
  sample.inflight_bytes = inflight;
  sample.has_rtt = true;
  sample.rtt = rtt;
  sample.delivery_rate = rate;
  return sample;
}

TEST(BdpWindow, ATimeoutRestartsFromFourPackets) {
  BdpWindow window;
  Time now;
  for (int i = 0; i < 50; ++i) {
    now = now + ms(10);
    window.on_feedback(acked(now, 100'000, 100'000, ms(10), mbps(80)));
  }
  EXPECT_GE(window.allowance().window_bytes, 90'000u);
  window.on_timeout(now);
  EXPECT_EQ(window.allowance().window_bytes, 4 * 1100u);
  EXPECT_EQ(window.phase(), BdpWindow::Phase::kStartup);
  window.on_feedback(acked(now + ms(10), 4400, 0, ms(10), BitRate::bytes_in(4400, ms(10))));
  EXPECT_GE(window.allowance().window_bytes, 7'900u);
}

TEST(BdpWindow, RatesLimitedByTheApplicationDoNotLowerTheEstimate) {
  BdpWindow window;
  Time now;
  for (int i = 0; i < 50; ++i) {
    now = now + ms(10);
    window.on_feedback(acked(now, 100'000, 100'000, ms(10), mbps(80)));
  }
  for (int i = 0; i < 500; ++i) {
    now = now + ms(10);
    Sample sample = acked(now, 1000, 0, ms(10), mbps(1));
    sample.application_limited = true;
    window.on_feedback(sample);
  }
  EXPECT_EQ(window.bandwidth(), mbps(80));
}

TEST(BdpWindow, AFullPipesLossCutsTheWindowOnceAndLaterItGrowsBack) {
  BdpWindow window;
  Time now;
  for (int i = 0; i < 50; ++i) {
    now = now + ms(10);
    window.on_feedback(acked(now, 100'000, 100'000, ms(10), mbps(80)));
  }
  ASSERT_NE(window.phase(), BdpWindow::Phase::kStartup);
  Sample loss;
  loss.now = now;
  loss.lost_bytes = 100'000;
  loss.inflight_bytes = 0;
  window.on_feedback(loss);
  EXPECT_GE(window.allowance().window_bytes, 100'000u) << "one BDP in flight: it was chance";
  now = now + ms(20);
  loss.now = now;
  loss.lost_bytes = 140'000;
  window.on_feedback(loss);
  EXPECT_EQ(window.allowance().window_bytes, 98'000u);
  loss.lost_bytes = 130'000;
  window.on_feedback(loss);
  EXPECT_EQ(window.allowance().window_bytes, 98'000u) << "the same event";
  uint64_t most = 0;
  for (int i = 0; i < 800; ++i) {
    now = now + ms(10);
    window.on_feedback(acked(now, 100'000, 100'000, ms(10), mbps(80)));
    most = std::max(most, window.allowance().window_bytes);
    if (i == 80) {
      EXPECT_LE(most, 130'200u) << "it stays below where it lost";
      most = 0;
    }
  }
  EXPECT_GE(most, 135'000u);
}

TEST(BdpWindow, IdenticalInputsGiveIdenticalDecisions) {
  const auto run = [] {
    BdpWindow window;
    LinkSpec spec = line(mbps(100), ms(30));
    spec.loss = 0.001;
    LinkSimulator link(spec);
    const size_t flow = link.add_flow(window, Time{});
    link.run_for(Duration::seconds(2));
    return link.report(flow).delivered;
  };
  EXPECT_EQ(run(), run());
}

}  // namespace
}  // namespace farverbs::cc
