#include "farverbs/cc/path_control.h"

#include <gtest/gtest.h>

namespace farverbs::cc {
namespace {

Sample sample_at(int64_t us, Duration rtt, uint64_t marked_packets) {
  Sample sample;
  sample.now = Time::from_ns(1'000'000'000 + us * 1'000);
  sample.acked_bytes = 30'000;
  sample.delivered_bytes = static_cast<uint64_t>(us) * 300;
  sample.prior_delivered_bytes = sample.delivered_bytes - 30'000;
  sample.has_rtt = true;
  sample.rtt = rtt;
  sample.delivery_rate = BitRate::bits_per_second(2'400'000'000);
  sample.congestion_marked_bytes = marked_packets * 1'472;
  return sample;
}

void feed(PathControl& control, Duration rtt, uint64_t marked_packets) {
  for (int i = 1; i <= 50; ++i) {
    control.on_sent(Time::from_ns(1'000'000'000 + i * 100'000), 30'000, 60'000);
    control.on_feedback(sample_at(i * 100, rtt, marked_packets));
  }
}

TEST(PathControl, MarksOnAShortPathAreADataCentre) {
  PathControl control(FarConfig{});
  feed(control, Duration::microseconds(80), 0);
  EXPECT_FALSE(control.data_centre());
  control.on_feedback(sample_at(6'000, Duration::microseconds(80), 1));
  EXPECT_FALSE(control.data_centre()) << "a single mark";
  feed(control, Duration::microseconds(80), 1);
  EXPECT_TRUE(control.data_centre());
  EXPECT_STREQ(control.phase_name(), "dcqcn");
  EXPECT_FALSE(control.allowance().rate.is_zero()) << "what is marked is paced";
  EXPECT_EQ(control.min_rtt(), Duration::microseconds(80));
}

TEST(PathControl, MarksOnALongPathAreNot) {
  PathControl control(FarConfig{});
  feed(control, Duration::milliseconds(30), 5);
  EXPECT_FALSE(control.data_centre());
}

TEST(PathControl, WhatIsConfiguredHolds) {
  PathControl far(FarConfig{}, ControlChoice::kFar);
  feed(far, Duration::microseconds(80), 5);
  EXPECT_FALSE(far.data_centre());
  PathControl centre(FarConfig{}, ControlChoice::kDataCentre);
  EXPECT_TRUE(centre.data_centre());
}

}  // namespace
}  // namespace farverbs::cc
