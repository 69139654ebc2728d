#include "tools/common/units_parse.h"

#include <gtest/gtest.h>

namespace farverbs::tools {
namespace {

TEST(UnitsParse, Rates) {
  EXPECT_EQ(parse_rate("200mbit")->bps(), 200'000'000u);
  EXPECT_EQ(parse_rate("1.5Gbit")->bps(), 1'500'000'000u);
  EXPECT_EQ(parse_rate("9600bit")->bps(), 9600u);
  EXPECT_TRUE(parse_rate("unlimited")->is_zero());
  for (const char* bad : {"", "200", "mbit", "-1mbit", "200 mbit", "1e3mbit", "nanmbit", "infmbit",
                          "200mbps", "0mbit", "200mbit/1"}) {
    EXPECT_FALSE(parse_rate(bad).ok()) << bad;
  }
  EXPECT_EQ(parse_rate("200mbps").error().message,
            "'200mbps' is not a rate: write it like 200mbit or 1gbit");
}

TEST(UnitsParse, Durations) {
  EXPECT_EQ(*parse_duration("100ms"), Duration::milliseconds(100));
  EXPECT_EQ(*parse_duration("1.5s"), Duration::milliseconds(1500));
  EXPECT_EQ(*parse_duration("0.25us"), Duration::nanoseconds(250));
  EXPECT_EQ(*parse_duration("0"), Duration());
  for (const char* bad : {"", "100", "ms", "-1ms", "1h", "1e9s", "99999999999s"}) {
    EXPECT_FALSE(parse_duration(bad).ok()) << bad;
  }
}

TEST(UnitsParse, Probabilities) {
  EXPECT_DOUBLE_EQ(*parse_probability("1%"), 0.01);
  EXPECT_DOUBLE_EQ(*parse_probability("0.05%"), 0.0005);
  EXPECT_DOUBLE_EQ(*parse_probability("0"), 0);
  EXPECT_DOUBLE_EQ(*parse_probability("100%"), 1);
  for (const char* bad : {"", "0.01", "101%", "%", "-1%"}) {
    EXPECT_FALSE(parse_probability(bad).ok()) << bad;
  }
}

TEST(UnitsParse, Bytes) {
  EXPECT_EQ(*parse_bytes("1500"), 1500u);
  EXPECT_EQ(*parse_bytes("500kB"), 500'000u);
  EXPECT_EQ(*parse_bytes("64KiB"), 65'536u);
  EXPECT_EQ(*parse_bytes("1.5MB"), 1'500'000u);
  for (const char* bad : {"", "kB", "-5", "5bits"}) EXPECT_FALSE(parse_bytes(bad).ok()) << bad;
}

TEST(UnitsParse, QueueSizes) {
  const BitRate rate = BitRate::bits_per_second(200'000'000);
  const Duration rtt = Duration::milliseconds(100);
  EXPECT_EQ(parse_queue_size("1bdp")->bytes(rate, rtt), 2'500'000u);
  EXPECT_EQ(parse_queue_size("0.5BDP")->bytes(rate, rtt), 1'250'000u);
  EXPECT_EQ(parse_queue_size("500kB")->bytes(rate, rtt), 500'000u);
  EXPECT_EQ(parse_queue_size("20ms")->bytes(rate, rtt), 500'000u);
  EXPECT_EQ(parse_queue_size("1bdp")->bytes(BitRate(), rtt), 0u);
  EXPECT_FALSE(parse_queue_size("big").ok());
}

TEST(UnitsParse, PairsGiveTheTwoDirections) {
  const auto both = parse_pair("100mbit", parse_rate);
  EXPECT_EQ(both->first, both->second);
  const auto two = parse_pair("200mbit/20mbit", parse_rate);
  EXPECT_EQ(two->first.bps(), 200'000'000u);
  EXPECT_EQ(two->second.bps(), 20'000'000u);
  EXPECT_FALSE(parse_pair("200mbit/", parse_rate).ok());
  EXPECT_FALSE(parse_pair("/20mbit", parse_rate).ok());
  EXPECT_FALSE(parse_pair("1%/2%/3%", parse_probability).ok());
}

}  // namespace
}  // namespace farverbs::tools
