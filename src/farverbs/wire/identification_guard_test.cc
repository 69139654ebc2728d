#include <gtest/gtest.h>

#include "farverbs/wire/icrc.h"

namespace farverbs::wire {
namespace {

TEST(IdentificationGuard, RefusesStrangeNumbersOnceAFlowHasShownItsOwn) {
  IdentificationGuard guard;
  EXPECT_TRUE(guard.accept(40'000));  // nothing is known yet
  for (uint16_t i = 0; i < 16; ++i) EXPECT_TRUE(guard.accept(i));
  EXPECT_FALSE(guard.accept(40'000));
  EXPECT_TRUE(guard.accept(127));
  EXPECT_FALSE(guard.accept(128));
}

TEST(IdentificationGuard, LetsASenderThatCountsDifferentlyThroughAgain) {
  IdentificationGuard guard;
  for (uint16_t i = 0; i < 16; ++i) EXPECT_TRUE(guard.accept(i));
  EXPECT_FALSE(guard.accept(1'000));
  EXPECT_FALSE(guard.accept(1'001));
  EXPECT_FALSE(guard.accept(1'002));
  EXPECT_TRUE(guard.accept(1'003));
  EXPECT_TRUE(guard.accept(1'004));
}

TEST(IdentificationGuard, ForeignSendersThatWrapAroundAreNeverStuck) {
  IdentificationGuard guard;
  int refused = 0;
  for (uint32_t i = 0; i < 200'000; ++i) refused += guard.accept(static_cast<uint16_t>(i)) ? 0 : 1;
  EXPECT_LE(refused, 12);  // a few after each wrap
}

}  // namespace
}  // namespace farverbs::wire
