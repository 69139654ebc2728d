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
void leave_lying(PollHabit& habit) {
  habit.stopped();
  ASSERT_TRUE(idle_streak(habit));
  habit.went_silent();
  habit.background_turn(true);
}

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
  PollHabit habit;
  for (uint32_t i = 0; i < PollHabit::kHabitAfter; ++i) {
    EXPECT_FALSE(habit.leaves());
    leave_lying(habit);
  }
  EXPECT_TRUE(habit.leaves());
  EXPECT_FALSE(idle_streak(habit));
}

TEST(PollHabit, APauseInWhichNothingCameIsNoHabit) {
  PollHabit habit;
  for (int i = 0; i < 10; ++i) {
    leave_lying(habit);
    habit.stopped();
    ASSERT_TRUE(idle_streak(habit));
    habit.went_silent();
    habit.background_turn(false);
  }
  EXPECT_FALSE(habit.leaves());
}

TEST(PollHabit, IsForgottenWhenTheBackgroundThreadFindsNothingMore) {
  PollHabit habit;
  for (uint32_t i = 0; i < PollHabit::kHabitAfter; ++i) leave_lying(habit);
  // A spinner on memory: every other wake-up is for a packet of its own.
  for (int i = 0; i < 1'000; ++i) habit.background_turn(i % 2 == 0);
  EXPECT_TRUE(habit.leaves());
  for (uint32_t i = 0; i < PollHabit::kForgetAfter; ++i) habit.background_turn(false);
  EXPECT_FALSE(habit.leaves());
  habit.stopped();
  EXPECT_TRUE(idle_streak(habit));
  leave_lying(habit);
  EXPECT_FALSE(habit.leaves());  // evidence is gathered anew
}

}  // namespace
}  // namespace farverbs::engine
