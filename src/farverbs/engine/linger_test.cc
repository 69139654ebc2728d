#include "farverbs/engine/linger.h"

#include <gtest/gtest.h>

namespace farverbs::engine {
namespace {

struct Stream {
  Linger linger;
  Time now = Time::from_ns(1'000'000);
  void bursts(int count, Duration gap) {
    for (int i = 0; i < count; ++i) {
      linger.found(now = now + gap);
      linger.dealt(now = now + Duration::microseconds(10));
    }
  }
};

TEST(Linger, NotBeforeAnythingWasFound) {
  const Linger linger;
  EXPECT_FALSE(linger.worth(Time::from_ns(0)));
  EXPECT_FALSE(linger.worth(Time::from_ns(1'000'000)));
}

TEST(Linger, CloseBurstsAreWaitedForAndNotForLong) {
  Stream s;
  s.bursts(3, Duration::microseconds(5));
  EXPECT_FALSE(s.linger.worth(s.now)) << "three may be chance";
  s.bursts(30, Duration::microseconds(5));
  EXPECT_TRUE(s.linger.worth(s.now));
  EXPECT_TRUE(s.linger.worth(s.now + Duration::microseconds(39)));
  EXPECT_FALSE(s.linger.worth(s.now + Linger::kLongest));
}

TEST(Linger, ASlowLineBurnsNoProcessor) {
  Stream s;
  s.bursts(30, Duration::microseconds(500));
  EXPECT_FALSE(s.linger.worth(s.now));
  s.bursts(30, Duration::microseconds(5));
  EXPECT_TRUE(s.linger.worth(s.now));
  // One pause is no change of the line, a few are.
  s.bursts(1, Duration::milliseconds(50));
  s.bursts(3, Duration::microseconds(5));
  EXPECT_TRUE(s.linger.worth(s.now));
  s.bursts(3, Duration::milliseconds(50));
  EXPECT_FALSE(s.linger.worth(s.now));
}

}  // namespace
}  // namespace farverbs::engine
