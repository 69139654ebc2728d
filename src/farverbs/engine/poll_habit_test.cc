#include "farverbs/engine/poll_habit.h"

#include <gtest/gtest.h>

namespace farverbs::engine {
namespace {

// True if the streak made an active poller.
bool idle_streak(PollHabit& habit) {
  bool active = false;
  for (uint32_t i = 0; i < 2 * PollHabit::kActiveAfterIdlePolls; ++i) active |= habit.polled(false);
  return active;
}
// Polls `polls` times, and leaves what comes then to the background thread.
struct Application {
  PollHabit habit;
  uint64_t polls = 0;
  void leave_lying(uint64_t more = 100, bool something = true) {
    habit.stopped();
    ASSERT_TRUE(idle_streak(habit));
    habit.went_silent(polls += more);
    habit.background_turn(something);
  }
};

TEST(PollHabit, ManyPollsInARowMakeAnActivePoller) {
  PollHabit habit;
  for (uint32_t i = 1; i < PollHabit::kActiveAfterIdlePolls; ++i) EXPECT_FALSE(habit.polled(false));
  EXPECT_FALSE(habit.polled(true));  // and from the beginning
  for (uint32_t i = 1; i < PollHabit::kActiveAfterIdlePolls; ++i) EXPECT_FALSE(habit.polled(false));
  EXPECT_TRUE(habit.polled(false));
  EXPECT_FALSE(habit.polled(false));  // told once
  habit.stopped();
  EXPECT_TRUE(idle_streak(habit));
}

TEST(PollHabit, WhoLeavesPacketsLyingIsNotLeftAloneAgain) {
  Application a;
  for (uint32_t i = 0; i < PollHabit::kHabitAfter; ++i) {
    EXPECT_FALSE(a.habit.leaves());
    a.leave_lying();
  }
  EXPECT_TRUE(a.habit.leaves());
  EXPECT_FALSE(idle_streak(a.habit));
}

TEST(PollHabit, APauseInWhichNothingCameIsNoHabit) {
  Application a;
  for (int i = 0; i < 20; ++i) a.leave_lying(100, i % 3 != 0);
  EXPECT_FALSE(a.habit.leaves());
}

TEST(PollHabit, WhoLosesItsProcessorNowAndThenIsAPollerStill) {
  Application a;
  for (int i = 0; i < 20; ++i) a.leave_lying(10'000);
  EXPECT_FALSE(a.habit.leaves());
}

TEST(PollHabit, IsForgottenWhenTheBackgroundThreadFindsLittle) {
  Application a;
  for (uint32_t i = 0; i < PollHabit::kHabitAfter; ++i) a.leave_lying();
  // A spinner on memory: every other wake-up is for a packet that it polled for itself.
  for (int i = 0; i < 1'000; ++i) a.habit.background_turn(i % 2 == 0);
  EXPECT_TRUE(a.habit.leaves());
  for (int i = 0; i < 200; ++i) a.habit.background_turn(i % 8 == 0);
  EXPECT_FALSE(a.habit.leaves());
  a.habit.stopped();
  EXPECT_TRUE(idle_streak(a.habit));
  a.leave_lying();
  EXPECT_FALSE(a.habit.leaves());  // evidence is gathered anew
}

}  // namespace
}  // namespace farverbs::engine
