#include "tools/lab/options.h"

#include <gtest/gtest.h>

namespace farverbs::tools::lab {
namespace {

TEST(PathOptions, TheDefaultPathIsPerfect) {
  const auto config = PathOptions{}.emulator();
  ASSERT_TRUE(config.ok());
  EXPECT_TRUE(config->a_to_b.rate.is_zero());
  EXPECT_EQ(config->a_to_b.delay, Duration());
  EXPECT_EQ(describe(*config), "unlimited, RTT 0 ms, queue none");
}

TEST(PathOptions, SplitsTheRoundTripAndSizesTheQueueByIt) {
  PathOptions options;
  options.rate = "200mbit/20mbit";
  options.rtt = "100ms";
  options.loss = "1%/0";
  options.burst_loss = "4";
  const auto config = options.emulator();
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->a_to_b.delay, Duration::milliseconds(50));
  EXPECT_EQ(config->b_to_a.delay, Duration::milliseconds(50));
  EXPECT_EQ(config->a_to_b.queue_bytes, 2'500'000u);
  EXPECT_EQ(config->b_to_a.queue_bytes, 250'000u);
  EXPECT_DOUBLE_EQ(config->a_to_b.loss, 0.01);
  EXPECT_DOUBLE_EQ(config->b_to_a.loss, 0);
  EXPECT_NE(config->a_to_b.seed, config->b_to_a.seed);
  EXPECT_EQ(describe(*config),
            "200 Mb/s / 20 Mb/s, RTT 100 ms, loss 1% / 0%, in bursts of 4, queue 2500 kB / 250 kB");
}

TEST(PathOptions, APairOfRoundTripTimesIsThatOfOneWayDelays) {
  PathOptions options;
  options.rtt = "80ms/20ms";
  const auto config = options.emulator();
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->a_to_b.delay, Duration::milliseconds(80));
  EXPECT_EQ(config->b_to_a.delay, Duration::milliseconds(20));
}

TEST(PathOptions, TheDefaultQueueHolds64Packets) {
  PathOptions options;
  options.rate = "10mbit";
  options.rtt = "10ms";
  EXPECT_EQ(options.emulator()->a_to_b.queue_bytes, 64u * 1538);
  options.queue = "1bdp";
  EXPECT_EQ(options.emulator()->a_to_b.queue_bytes, 12'500u);
}

TEST(PathOptions, ReorderingMaySayByHowMuch) {
  PathOptions options;
  options.reorder = "1%:3ms/2%";
  const auto config = options.emulator();
  ASSERT_TRUE(config.ok());
  EXPECT_DOUBLE_EQ(config->a_to_b.reorder, 0.01);
  EXPECT_EQ(config->a_to_b.reorder_by, Duration::milliseconds(3));
  EXPECT_DOUBLE_EQ(config->b_to_a.reorder, 0.02);
  EXPECT_EQ(config->b_to_a.reorder_by, Duration::milliseconds(10));
}

TEST(PathOptions, ErrorsNameTheOption) {
  const auto message = [](std::string PathOptions::*option, const char* value) {
    PathOptions options;
    options.*option = value;
    const auto config = options.emulator();
    return config.ok() ? std::string() : config.error().message;
  };
  EXPECT_EQ(message(&PathOptions::rate, "200"),
            "--rate: '200' is not a rate: write it like 200mbit or 1gbit");
  EXPECT_EQ(message(&PathOptions::loss, "1"),
            "--loss: '1' is not a percentage: write it like 1% or 0.05%");
  EXPECT_EQ(message(&PathOptions::tick, "1us"), "--tick: '1us' is outside 20us to 1ms");
  EXPECT_NE(message(&PathOptions::reorder, "1%:x").find("--reorder"), std::string::npos);
  EXPECT_NE(message(&PathOptions::burst_loss, "0").find("--burst-loss"), std::string::npos);
  EXPECT_NE(message(&PathOptions::ecn, "5%").find("--ecn"), std::string::npos);
}

TEST(PathOptions, BurstsTooShortForTheLossAreRefused) {
  PathOptions options;
  options.loss = "80%";
  options.burst_loss = "2";
  EXPECT_FALSE(options.emulator().ok());
  options.burst_loss = "4";
  EXPECT_TRUE(options.emulator().ok());
  options.burst_loss = "1";
  EXPECT_TRUE(options.emulator().ok()) << "independent losses may be of any share";
}

TEST(PathOptions, Ipv6NeedsItsLeastMtu) {
  PathOptions options;
  options.mtu = 1000;
  EXPECT_TRUE(options.net().ok());
  options.ipv6 = true;
  EXPECT_FALSE(options.net().ok());
}

TEST(ChangeOptions, ChangesWhatIsGivenOnly) {
  PathOptions path;
  path.rate = "100mbit";
  path.rtt = "20ms";
  path.loss = "1%";
  EmulatorConfig config = path.emulator().value();
  const uint64_t queue = config.a_to_b.queue_bytes;
  ChangeOptions change;
  change.rate = "50mbit/25mbit";
  change.down = true;
  ASSERT_TRUE(change.apply(config).ok());
  EXPECT_EQ(config.a_to_b.rate.bps(), 50'000'000u);
  EXPECT_EQ(config.b_to_a.rate.bps(), 25'000'000u);
  EXPECT_EQ(config.a_to_b.delay, Duration::milliseconds(10));
  EXPECT_DOUBLE_EQ(config.b_to_a.loss, 0.01);
  EXPECT_EQ(config.a_to_b.queue_bytes, queue);
  EXPECT_TRUE(config.a_to_b.down && config.b_to_a.down);
  change = {};
  change.rtt = "40ms";
  change.queue = "1bdp";
  ASSERT_TRUE(change.apply(config).ok());
  EXPECT_TRUE(config.a_to_b.down) << "neither --up nor --down was given";
  EXPECT_EQ(config.a_to_b.queue_bytes, 250'000u);
  change = {};
  change.loss = "1";
  EXPECT_FALSE(change.apply(config).ok());
}

}  // namespace
}  // namespace farverbs::tools::lab
