#include "tools/lab/link.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace farverbs::tools::lab {
namespace {

constexpr Time at_us(int64_t us) { return Time::from_ns(us * 1000); }

LinkConfig link_of(uint64_t mbit, Duration delay) {
  LinkConfig config;
  config.rate = BitRate::bits_per_second(mbit * 1'000'000);
  config.delay = delay;
  config.queue_bytes = 1'000'000;
  return config;
}

TEST(Link, CarriesAFullPacketInTheTimeOfItsWholeFrame) {
  Link link(link_of(100, Duration::milliseconds(10)));
  const Fate fate = link.offer(at_us(0), 1500);
  // 1538 bytes at 100 Mb/s are 123.04 us.
  EXPECT_EQ(fate.due.ns(), 123'040 + 10'000'000);
  EXPECT_EQ(fate.queued, Duration());
}

TEST(Link, QueuesBehindWhatIsBeingSentAndFallsIdle) {
  Link link(link_of(100, Duration()));
  link.offer(at_us(0), 1500);
  const Fate second = link.offer(at_us(23), 1500);
  EXPECT_EQ(second.queued.ns(), 100'040);
  EXPECT_EQ(second.due.ns(), 246'080);
  const Fate third = link.offer(at_us(1000), 1500);
  EXPECT_EQ(third.queued, Duration());
  EXPECT_EQ(third.due.ns(), 1'123'040);
}

TEST(Link, AnUnlimitedRateOnlyDelays) {
  LinkConfig config;
  config.delay = Duration::milliseconds(3);
  Link link(config);
  for (int i = 0; i < 1000; ++i) {
    const Fate fate = link.offer(at_us(i / 100), 1500);
    EXPECT_FALSE(fate.queue_drop);
    EXPECT_EQ(fate.due, at_us(i / 100 + 3000));
  }
}

TEST(Link, DropsWhatExceedsTheQueue) {
  LinkConfig config = link_of(100, Duration());
  config.queue_bytes = 10 * 1538;
  Link link(config);
  int passed = 0;
  for (int i = 0; i < 100; ++i) passed += !link.offer(at_us(0), 1500).queue_drop;
  EXPECT_EQ(passed, 10);
  // One frame's time later there is room for one more.
  EXPECT_FALSE(link.offer(at_us(124), 1500).queue_drop);
  EXPECT_TRUE(link.offer(at_us(124), 1500).queue_drop);
}

TEST(Link, TakesAPacketWhenIdleHoweverSmallTheQueue) {
  LinkConfig config = link_of(100, Duration());
  config.queue_bytes = 100;
  Link link(config);
  EXPECT_FALSE(link.offer(at_us(0), 1500).queue_drop);
  EXPECT_TRUE(link.offer(at_us(0), 1500).queue_drop);
  EXPECT_FALSE(link.offer(at_us(1000), 1500).queue_drop);
}

TEST(Link, LosesTheGivenShareAfterTheBottleneck) {
  LinkConfig config = link_of(1000, Duration());
  config.loss = 0.01;
  Link link(config);
  int lost = 0;
  Time now;
  constexpr int kPackets = 200'000;
  for (int i = 0; i < kPackets; ++i) {
    now = now + Duration::nanoseconds(12'304);
    const Fate fate = link.offer(now, 1500);
    lost += fate.lost;
    // A lost packet has used the link all the same.
    EXPECT_EQ(fate.due.ns(), now.ns() + 12'304);
  }
  EXPECT_NEAR(lost, kPackets * 0.01, 4 * std::sqrt(kPackets * 0.01));
}

TEST(Link, LosesInBurstsOfTheGivenMeanLength) {
  LinkConfig config;
  config.loss = 0.02;
  config.burst = 5;
  Link link(config);
  int lost = 0, bursts = 0;
  bool before = false;
  constexpr int kPackets = 500'000;
  for (int i = 0; i < kPackets; ++i) {
    const bool now = link.offer(at_us(i), 100).lost;
    lost += now;
    bursts += now && !before;
    before = now;
  }
  EXPECT_NEAR(static_cast<double>(lost) / kPackets, 0.02, 0.002);
  EXPECT_NEAR(static_cast<double>(lost) / bursts, 5, 0.4);
}

std::vector<int> losses(const LinkConfig& config, int packets) {
  Link link(config);
  std::vector<int> lost;
  for (int i = 0; i < packets; ++i) {
    if (link.offer(at_us(i * 20), 1500).lost) lost.push_back(i);
  }
  return lost;
}

TEST(Link, TheSeedAloneDecidesWhichAreLost) {
  LinkConfig config = link_of(1000, Duration::milliseconds(5));
  config.loss = 0.01;
  config.seed = 7;
  LinkConfig busy = config;
  busy.jitter = Duration::milliseconds(2);
  busy.reorder = 0.1;
  busy.duplicate = 0.1;
  busy.corrupt = 0.1;
  EXPECT_EQ(losses(config, 10'000), losses(config, 10'000));
  EXPECT_EQ(losses(config, 10'000), losses(busy, 10'000));
  busy.seed = 8;
  EXPECT_NE(losses(config, 10'000), losses(busy, 10'000));
}

TEST(Link, JitterKeepsOrderAndBounds) {
  LinkConfig config;
  config.delay = Duration::milliseconds(10);
  config.jitter = Duration::milliseconds(4);
  Link link(config);
  Time last;
  Duration least = Duration::max(), most;
  double sum = 0;
  constexpr int kPackets = 200'000;
  for (int i = 0; i < kPackets; ++i) {
    const Time now = at_us(i * 10);
    const Fate fate = link.offer(now, 100);
    ASSERT_GE(fate.due, last);
    last = fate.due;
    least = std::min(least, fate.due - now);
    most = std::max(most, fate.due - now);
    sum += (fate.due - now).to_seconds();
  }
  EXPECT_GE(least, Duration::milliseconds(10));
  EXPECT_LT(least, Duration::milliseconds(11));
  EXPECT_LE(most, Duration::milliseconds(14));
  EXPECT_GT(most, Duration::milliseconds(13));
  EXPECT_NEAR(sum / kPackets, 0.012, 0.0004);
}

TEST(Link, JitterSurvivesALongSilence) {
  LinkConfig config;
  config.jitter = Duration::milliseconds(4);
  Link link(config);
  link.offer(at_us(0), 100);
  const Time later = Time::from_ns(int64_t{3600} * 1'000'000'000);
  const Fate fate = link.offer(later, 100);
  EXPECT_GE(fate.due, later);
  EXPECT_LE(fate.due, later + config.jitter);
}

TEST(Link, LatePacketsAreLateByTheGivenTimeAndHoldNobodyBack) {
  LinkConfig config;
  config.reorder = 0.05;
  config.reorder_by = Duration::milliseconds(10);
  Link link(config);
  int late = 0;
  for (int i = 0; i < 20'000; ++i) {
    const Fate fate = link.offer(at_us(i), 100);
    late += fate.late;
    EXPECT_EQ(fate.due, at_us(i) + (fate.late ? config.reorder_by : Duration()));
  }
  EXPECT_NEAR(late, 1000, 130);
}

TEST(Link, DuplicatesAndCorruptsTheGivenShare) {
  LinkConfig config;
  config.duplicate = 0.1;
  config.corrupt = 0.2;
  Link link(config);
  int duplicates = 0, corrupted = 0;
  for (int i = 0; i < 20'000; ++i) {
    const Fate fate = link.offer(at_us(i), 100);
    duplicates += fate.duplicate;
    corrupted += fate.corrupt;
  }
  EXPECT_NEAR(duplicates, 2000, 180);
  EXPECT_NEAR(corrupted, 4000, 240);
}

TEST(Link, MarksAboveTheThreshold) {
  LinkConfig config = link_of(100, Duration());
  config.ecn_bytes = 5 * 1538;
  Link link(config);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(link.offer(at_us(0), 1500).mark, i > 5) << i;
}

TEST(Link, ALinkThatIsDownLosesAllAndKeepsItsQueue) {
  LinkConfig config = link_of(100, Duration::milliseconds(10));
  Link link(config);
  link.offer(at_us(0), 1500);
  config.down = true;
  link.change(config);
  EXPECT_TRUE(link.offer(at_us(1), 1500).lost);
  config.down = false;
  config.rate = BitRate::bits_per_second(50'000'000);
  link.change(config);
  const Fate fate = link.offer(at_us(23), 1500);
  EXPECT_FALSE(fate.lost);
  // Behind the first packet, which began at 100 Mb/s, and at the new rate itself.
  EXPECT_EQ(fate.queued.ns(), 100'040);
  EXPECT_EQ(fate.due.ns(), 123'040 + 246'080 + 10'000'000);
}

TEST(Link, AChangeOfTheLossTakesEffect) {
  LinkConfig config;
  Link link(config);
  config.loss = 0.25;
  config.burst = 4;
  link.change(config);
  int lost = 0;
  for (int i = 0; i < 20'000; ++i) lost += link.offer(at_us(i), 1500).lost;
  EXPECT_NEAR(lost, 5000, 400);
}

}  // namespace
}  // namespace farverbs::tools::lab
