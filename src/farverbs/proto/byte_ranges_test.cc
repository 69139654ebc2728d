#include "farverbs/proto/byte_ranges.h"

#include <gtest/gtest.h>

#include <string>

#include "farverbs/base/prng.h"

namespace farverbs::proto {
namespace {

std::string missing(const ByteRanges& ranges, uint32_t begin, uint32_t end) {
  std::string text;
  ranges.for_each_missing(begin, end, [&](uint32_t b, uint32_t e) {
    text += "[" + std::to_string(b) + "," + std::to_string(e) + ")";
  });
  return text;
}

TEST(ByteRanges, InOrderIsOneNumber) {
  ByteRanges ranges;
  for (uint32_t i = 0; i < 1000; ++i) EXPECT_TRUE(ranges.add(i * 100, i * 100 + 100));
  EXPECT_EQ(ranges.prefix(), 100'000u);
  EXPECT_EQ(ranges.memory_bytes(), 0u);
}

TEST(ByteRanges, PiecesJoin) {
  ByteRanges ranges;
  ranges.add(10, 20);
  ranges.add(30, 40);
  EXPECT_EQ(missing(ranges, 0, 50), "[0,10)[20,30)[40,50)");
  EXPECT_EQ(missing(ranges, 15, 35), "[20,30)");
  EXPECT_TRUE(ranges.contains(12, 20));
  EXPECT_FALSE(ranges.contains(12, 21));
  EXPECT_FALSE(ranges.contains(5, 12));
  ranges.add(18, 32);
  EXPECT_EQ(ranges.count(), 1u);
  EXPECT_EQ(ranges.prefix(), 0u);
  ranges.add(0, 10);
  EXPECT_EQ(ranges.prefix(), 40u);
  EXPECT_EQ(ranges.count(), 0u);
}

TEST(ByteRanges, APieceTooManyChangesNothing) {
  ByteRanges ranges;
  for (uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(ranges.add(10 + 2 * i, 11 + 2 * i, 4));
  EXPECT_FALSE(ranges.add(30, 31, 4));
  EXPECT_FALSE(ranges.contains(30, 31));
  EXPECT_TRUE(ranges.add(11, 12, 4));  // joins two
  EXPECT_TRUE(ranges.add(30, 31, 4));
  EXPECT_TRUE(ranges.add(0, 2, 4));  // the prefix is no piece
}

TEST(ByteRanges, AgreesWithOneFlagAByte) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng prng(seed);
    constexpr uint32_t kBytes = 400;
    const uint32_t longest = 1 + static_cast<uint32_t>(prng.below(30));
    std::vector<bool> flags(kBytes + 64);
    ByteRanges ranges;
    for (int i = 0; i < 200; ++i) {
      const auto begin = static_cast<uint32_t>(prng.below(kBytes));
      const auto end = begin + static_cast<uint32_t>(prng.below(longest));
      bool all = true;
      bool none = true;
      std::string expected;
      for (uint32_t b = begin; b < end; ++b) (flags[b] ? none : all) = false;
      for (uint32_t b = begin; b < end; ++b) {
        if (flags[b]) continue;
        if (b == begin || flags[b - 1]) expected += "[" + std::to_string(b) + ",";
        if (b + 1 == end || flags[b + 1]) expected += std::to_string(b + 1) + ")";
      }
      ASSERT_EQ(ranges.contains(begin, end), all);
      ASSERT_EQ(ranges.lacks(begin, end), none);
      ASSERT_EQ(missing(ranges, begin, end), expected);
      ASSERT_TRUE(ranges.add(begin, end));
      for (uint32_t b = begin; b < end; ++b) flags[b] = true;
      uint32_t prefix = 0;
      while (flags[prefix]) ++prefix;
      ASSERT_EQ(ranges.prefix(), prefix);
      uint32_t last = static_cast<uint32_t>(flags.size());
      while (last > 0 && !flags[last - 1]) --last;
      ASSERT_EQ(ranges.end(), last);
    }
  }
}

}  // namespace
}  // namespace farverbs::proto
