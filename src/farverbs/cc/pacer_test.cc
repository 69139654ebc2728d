#include "farverbs/cc/pacer.h"

#include <gtest/gtest.h>

namespace farverbs::cc {
namespace {

constexpr uint32_t kSegment = 1000;
constexpr uint64_t kBulk = 1u << 30;

Time at_us(int64_t us) { return Time::from_ns(us * 1000); }
BitRate mbps(uint64_t n) { return BitRate::bits_per_second(n * 1'000'000); }

Pacer paced(BitRate rate) {
  Pacer pacer(kSegment);
  pacer.set_rate(at_us(0), rate);
  return pacer;
}

TEST(Pacer, WithoutARateEverythingMayLeave) {
  Pacer pacer(kSegment);
  EXPECT_EQ(pacer.available(at_us(0), kBulk), UINT64_MAX);
  pacer.on_sent(at_us(0), kBulk);
  EXPECT_EQ(pacer.next(at_us(5), 1), at_us(5));
}

TEST(Pacer, BurstsAreHalfAMillisecondWithinOneAndSixtyTwoSegments) {
  EXPECT_EQ(paced(mbps(1)).burst_bytes(), kSegment);
  EXPECT_EQ(paced(mbps(100)).burst_bytes(), 6250u);
  EXPECT_EQ(paced(mbps(10'000)).burst_bytes(), 62 * kSegment);
}

TEST(Pacer, BulkWaitsForABurstAndASmallMessageForItself) {
  Pacer pacer = paced(mbps(100));  // 12.5 bytes per us
  EXPECT_EQ(pacer.available(at_us(0), kBulk), 6250u) << "the first burst leaves at once";
  pacer.on_sent(at_us(0), 6250);
  EXPECT_EQ(pacer.available(at_us(0), kBulk), 0u);
  EXPECT_EQ(pacer.available(at_us(100), kBulk), 0u);
  EXPECT_EQ(pacer.available(at_us(100), 1000), 1250u);
  EXPECT_NEAR(static_cast<double>(pacer.next(at_us(100), kBulk).ns()), 500e3, 2);
  EXPECT_EQ(pacer.available(pacer.next(at_us(100), kBulk), kBulk), 6250u);
}

TEST(Pacer, WhatOthersUsedIsOwedAsWell) {
  Pacer pacer = paced(mbps(100));
  pacer.charge(at_us(0), 6250 + 12'500);
  EXPECT_EQ(pacer.available(at_us(999), 1), 0u);
  EXPECT_EQ(pacer.available(at_us(1500), kBulk), 6250u);
  Pacer free(kSegment);
  free.charge(at_us(0), kBulk);
  EXPECT_EQ(free.available(at_us(0), 1), UINT64_MAX);
}

TEST(Pacer, WhatWasSentTooMuchIsOwed) {
  Pacer pacer = paced(mbps(100));
  pacer.on_sent(at_us(0), 6250 + 12'500);  // a millisecond ahead
  EXPECT_EQ(pacer.available(at_us(999), 1), 0u);
  EXPECT_NEAR(static_cast<double>(pacer.next(at_us(0), 1250).ns()), 1100e3, 2);
}

TEST(Pacer, ALateWakeCatchesUpButNotWithoutBound) {
  Pacer pacer = paced(mbps(1000));  // 125 bytes per us, a burst is 62,000 bytes
  pacer.on_sent(at_us(0), 62'000);
  EXPECT_EQ(pacer.available(at_us(1), kBulk), 0u);
  EXPECT_EQ(pacer.available(at_us(1000), kBulk), 125'000u) << "half a millisecond late";
  EXPECT_EQ(pacer.available(at_us(100'000), kBulk), 62'000u + 125'000u);
}

TEST(Pacer, WhoDidNotWaitBeginsWithOneBurst) {
  Pacer pacer = paced(mbps(1000));
  pacer.on_sent(at_us(0), 62'000);
  EXPECT_EQ(pacer.available(at_us(100'000), kBulk), 62'000u);
}

TEST(Pacer, TheRateIsKeptByALateSleeper) {
  for (const uint64_t rate : {3u, 20u, 200u, 1000u, 7777u}) {
    Pacer pacer = paced(mbps(rate));
    uint64_t sent = 0;
    uint64_t jitter = 1;
    Time now = at_us(0);
    while (now < at_us(2'000'000)) {
      const uint64_t bytes = pacer.available(now, kBulk) / kSegment * kSegment;
      if (bytes > 0) {
        pacer.on_sent(now, bytes);
        sent += bytes;
      }
      jitter = jitter * 6364136223846793005u + 1442695040888963407u;
      now =
          pacer.next(now, kBulk) + Duration::microseconds(static_cast<int64_t>(jitter >> 33) % 300);
    }
    EXPECT_NEAR(static_cast<double>(sent), static_cast<double>(rate) * 1e6 / 8 * 2,
                static_cast<double>(rate) * 1e6 / 8 * 2 * 0.01 + 62'000)
        << rate;
  }
}

TEST(Pacer, FullPacketsAndWakesMoreThanHalfAMillisecondLateKeepTheRateToo) {
  constexpr uint32_t kFull = 1472;
  for (const uint64_t rate : {10u, 200u, 1000u, 10'000u}) {
    Pacer pacer(kFull);
    pacer.set_rate(at_us(0), mbps(rate));
    uint64_t sent = 0;
    uint64_t chance = 1;
    Time now = at_us(0);
    while (now < at_us(2'000'000)) {
      const uint64_t bytes = pacer.available(now, kBulk) / kFull * kFull;
      if (bytes > 0) {
        pacer.on_sent(now, bytes);
        sent += bytes;
      }
      chance = chance * 6364136223846793005u + 1442695040888963407u;
      now = pacer.next(now, kBulk) +
            Duration::microseconds(100 + static_cast<int64_t>(chance >> 33) % 500);
    }
    const double whole = static_cast<double>(rate) * 1e6 / 8 * 2;
    EXPECT_NEAR(static_cast<double>(sent), whole, whole * 0.01 + 62 * kFull) << rate;
  }
}

TEST(Pacer, AChangeOfRateKeepsTheCreditWithinTheNewBound) {
  Pacer pacer = paced(mbps(1000));
  EXPECT_EQ(pacer.available(at_us(5000), kBulk), 62'000u);
  pacer.set_rate(at_us(5000), mbps(8));
  EXPECT_EQ(pacer.available(at_us(5000), kBulk), 1000u);
  pacer.set_rate(at_us(5000), BitRate{});
  EXPECT_EQ(pacer.available(at_us(5000), kBulk), UINT64_MAX);
}

}  // namespace
}  // namespace farverbs::cc
