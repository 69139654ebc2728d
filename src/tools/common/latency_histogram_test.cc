#include "tools/common/latency_histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "farverbs/base/prng.h"

namespace farverbs::tools {
namespace {

TEST(LatencyHistogram, WithoutSamplesIsZero) {
  const LatencyHistogram h;
  EXPECT_EQ(h.count(), 0u);
  EXPECT_EQ(h.min().ns(), 0);
  EXPECT_EQ(h.max().ns(), 0);
  EXPECT_EQ(h.mean().ns(), 0);
  EXPECT_EQ(h.quantile(0.5).ns(), 0);
}

TEST(LatencyHistogram, SmallTimesAreExact) {
  LatencyHistogram h;
  for (int64_t ns = 1; ns <= 100; ++ns) h.add(Duration::nanoseconds(ns));
  EXPECT_EQ(h.quantile(0).ns(), 1);
  EXPECT_EQ(h.quantile(0.5).ns(), 50);
  EXPECT_EQ(h.quantile(0.99).ns(), 99);
  EXPECT_EQ(h.quantile(1).ns(), 100);
  EXPECT_EQ(h.mean().ns(), 51);  // 50.5
}

TEST(LatencyHistogram, OneSampleIsEveryQuantile) {
  for (int64_t ns : {int64_t{0}, int64_t{255}, int64_t{256}, int64_t{257}, int64_t{123'456'789},
                     std::numeric_limits<int64_t>::max()}) {
    LatencyHistogram h;
    h.add(Duration::nanoseconds(ns));
    for (double part : {0.0, 0.5, 0.999, 1.0}) EXPECT_EQ(h.quantile(part).ns(), ns);
  }
}

TEST(LatencyHistogram, NegativeCountsAsZero) {
  LatencyHistogram h;
  h.add(Duration::nanoseconds(-5));
  EXPECT_EQ(h.count(), 1u);
  EXPECT_EQ(h.max().ns(), 0);
}

TEST(LatencyHistogram, QuantilesAreWithinOnePercentOfSorted) {
  Prng prng(1);
  LatencyHistogram h;
  std::vector<int64_t> samples;
  for (int i = 0; i < 20'000; ++i) {
    const auto ns = static_cast<int64_t>(std::exp(prng.unit() * 20));  // 1 ns to 485 ms
    samples.push_back(ns);
    h.add(Duration::nanoseconds(ns));
  }
  std::sort(samples.begin(), samples.end());
  for (double part : {0.01, 0.1, 0.5, 0.9, 0.99, 0.999}) {
    const auto index = static_cast<size_t>(std::ceil(part * 20'000)) - 1;
    const auto exact = static_cast<double>(samples[index]);
    EXPECT_NEAR(static_cast<double>(h.quantile(part).ns()), exact, exact * 0.01) << part;
  }
}

TEST(LatencyHistogram, ClearForgets) {
  LatencyHistogram h;
  h.add(Duration::seconds(1));
  h.clear();
  h.add(Duration::nanoseconds(3));
  EXPECT_EQ(h.count(), 1u);
  EXPECT_EQ(h.max().ns(), 3);
}

}  // namespace
}  // namespace farverbs::tools
