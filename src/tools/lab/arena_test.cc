#include "tools/lab/arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>

#include "farverbs/base/prng.h"
#include "tools/lab/delay_line.h"
#include "tools/lab/histogram.h"

namespace farverbs::tools::lab {
namespace {

TEST(Arena, StartsOverWhenEmpty) {
  Arena arena(0);
  Super* first = arena.reserve();
  arena.keep(first, 60, 1);
  arena.release(first);
  EXPECT_TRUE(arena.empty());
  EXPECT_EQ(arena.reserve(), first);
}

TEST(Arena, SaysWhenItIsFullAndRecovers) {
  Arena arena(0);
  std::deque<Super*> kept;
  while (Super* super = arena.reserve()) {
    arena.keep(super, 65'000, 1);
    kept.push_back(super);
  }
  EXPECT_GE(kept.size(), 3u);
  arena.release(kept.front());
  arena.release(kept[1]);
  EXPECT_NE(arena.reserve(), nullptr);
}

// Random sizes and lifetimes: nobody's bytes are overwritten while they are referenced.
TEST(Arena, KeepsBytesUntilTheLastReference) {
  Arena arena(0);
  Prng prng(1);
  struct Kept {
    Super* super;
    uint32_t bytes;
    uint32_t references;
    int fill;
  };
  std::deque<Kept> kept;
  int full = 0;
  for (int i = 0; i < 50'000; ++i) {
    if (Super* super = arena.reserve(); super != nullptr) {
      const auto bytes = static_cast<uint32_t>(prng.between(20, prng.chance(0.2) ? 65'000 : 1500));
      const auto references = static_cast<uint32_t>(prng.between(0, 3));
      std::memset(super->data(), i & 0xFF, bytes);
      if (references > 0) {
        arena.keep(super, bytes, references);
        kept.push_back({super, bytes, references, i & 0xFF});
      }
    } else {
      ++full;
    }
    while (!kept.empty() && (kept.size() > 40 || prng.chance(0.4))) {
      Kept& one = kept[prng.below(std::min<size_t>(kept.size(), 4))];
      ASSERT_EQ(static_cast<int>(one.super->data()[0]), one.fill);
      ASSERT_EQ(static_cast<int>(one.super->data()[one.bytes - 1]), one.fill);
      arena.release(one.super);
      if (--one.references == 0) {
        const Super* gone = one.super;
        std::erase_if(kept, [&](const Kept& k) { return k.super == gone; });
      }
    }
  }
  EXPECT_GT(full, 0);
  EXPECT_LT(full, 40'000);
}

TEST(DelayLine, GivesPacketsByDueTime) {
  DelayLine line;
  const auto push = [&](int64_t due, bool late) {
    InFlight packet;
    packet.due = Time::from_ns(due);
    line.push(packet, late);
  };
  EXPECT_TRUE(line.next_due().is_never());
  push(10, false);
  push(35, true);
  push(20, false);
  push(25, true);
  push(30, false);
  for (const int64_t due : {10, 20, 25, 30, 35}) {
    EXPECT_EQ(line.next_due().ns(), due);
    EXPECT_EQ(line.pop().due.ns(), due);
  }
  EXPECT_TRUE(line.empty());
}

TEST(DelayLine, GrowsWithoutLosingOrder) {
  DelayLine line;
  InFlight packet;
  for (int i = 0; i < 40'000; ++i) line.push(packet, false);
  for (int i = 0; i < 40'000; ++i) line.pop();
  for (int i = 0; i < 300'000; ++i) {
    packet.due = Time::from_ns(i);
    line.push(packet, false);
  }
  for (int i = 0; i < 300'000; ++i) ASSERT_EQ(line.pop().due.ns(), i);
}

TEST(Histogram, QuantilesAreRightWithinABucket) {
  Histogram histogram;
  EXPECT_EQ(histogram.quantile(0.5), Duration());
  for (int i = 1; i <= 1000; ++i) histogram.add(Duration::microseconds(i));
  EXPECT_NEAR(histogram.quantile(0.5).to_microseconds(), 500, 32);
  EXPECT_NEAR(histogram.quantile(0.99).to_microseconds(), 990, 62);
  EXPECT_NEAR(histogram.quantile(1).to_microseconds(), 1000, 62);
  histogram.add(-Duration::seconds(1));
  EXPECT_EQ(histogram.quantile(0).ns(), 0);
  Histogram extreme;
  extreme.add(Duration::max());
  EXPECT_GT(extreme.quantile(0.5).to_seconds(), 8e9);
}

}  // namespace
}  // namespace farverbs::tools::lab
