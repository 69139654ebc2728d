#include "tools/compare/analysis.h"

#include <gtest/gtest.h>

namespace farverbs::tools::compare {
namespace {

TimeLine ramp() {
  // 0, 1, 2 ... 9 MB in steps of 0.1 s, then 10 MB for a second.
  TimeLine line;
  for (int i = 0; i < 20; ++i) line.bytes.push_back(std::min(i, 10) * 1e6);
  return line;
}

TEST(CompareAnalysis, RatesOverAWindowCutSteps) {
  EXPECT_DOUBLE_EQ(mean_rate(ramp(), 1.0, 2.0), 800e6);
  EXPECT_NEAR(mean_rate(ramp(), 0.95, 1.05), (9e6 * 0.5 + 10e6 * 0.5) * 80, 1);
  EXPECT_EQ(mean_rate(ramp(), 5, 6), 0);
  EXPECT_EQ(mean_rate(ramp(), 2, 2), 0);
}

TEST(CompareAnalysis, TheRampEndsInTheMiddleOfTheFirstWindowThatIsFull) {
  EXPECT_NEAR(reached(ramp(), 800e6, 0.2).value(), 1.1, 1e-9);
  EXPECT_NEAR(reached(ramp(), 720e6, 0.1).value(), 0.95, 1e-9);
  EXPECT_FALSE(reached(ramp(), 801e6, 0.2).has_value());
  EXPECT_NEAR(reached(ramp(), 80e6, 0.1, 1.5).value(), 1.55, 1e-9);
}

TEST(CompareAnalysis, WhatArrivesInASpanIsSpreadOverItsSteps) {
  TimeLine line;
  line.add(0.05, 0.25, 200);
  ASSERT_EQ(line.bytes.size(), 3u);
  EXPECT_NEAR(line.bytes[0], 50, 1e-6);
  EXPECT_NEAR(line.bytes[1], 100, 1e-6);
  EXPECT_NEAR(line.bytes[2], 50, 1e-6);
  line.add(0.1, 0.2, 7);
  EXPECT_NEAR(line.bytes[1], 107, 1e-6);
  EXPECT_NEAR(line.total(), 207, 1e-6);
  line.add(0.2, 0.2, 9);
  EXPECT_NEAR(line.total(), 207, 1e-6);
}

TEST(CompareAnalysis, Quantiles) {
  std::vector<double> values;
  for (int i = 1; i <= 1000; ++i) values.push_back(i);
  EXPECT_EQ(quantile(values, 0.5), 500);
  EXPECT_EQ(quantile(values, 0.999), 999);
  EXPECT_EQ(quantile(values, 1), 1000);
  EXPECT_EQ(quantile(values, 0), 1);
  EXPECT_EQ(quantile({}, 0.5), 0);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
}

TEST(CompareAnalysis, Fairness) {
  EXPECT_DOUBLE_EQ(jain_index({5, 5}), 1);
  EXPECT_DOUBLE_EQ(jain_index({5, 0}), 0.5);
  EXPECT_NEAR(jain_index({3, 1}), 0.8, 1e-9);
  EXPECT_EQ(jain_index({0, 0}), 0);
}

TEST(CompareAnalysis, TheLimitIsWhatTheLineCarriesOfPayload) {
  EXPECT_NEAR(physical_limit(200e6, 0, kTcpPacket), 200e6 * 1448 / 1538, 1);
  EXPECT_NEAR(physical_limit(200e6, 0.01, kTcpPacket), 200e6 * 0.99 * 1448 / 1538, 1);
  const FullPacket ours{1024, 1068};
  EXPECT_NEAR(ours.payload_share(), 1024.0 / 1106, 1e-9);
}

}  // namespace
}  // namespace farverbs::tools::compare
