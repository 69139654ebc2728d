// PollHabit: how an application waits, learned, so that the background thread knows how closely to
// watch the port. One that polls its queue all the time needs no help, and a second thread at the
// same port only disturbs it. One that polls now and then, for instance because it spins on memory
// that a peer writes, looks the same while it polls and then leaves packets lying.
#pragma once

#include <atomic>
#include <cstdint>

namespace farverbs::engine {

class PollHabit {
 public:
  // Polls in a row without a completion that make an active poller: a program that sleeps between
  // events drains its queue and arms it again long before.
  static constexpr uint32_t kActiveAfterIdlePolls = 16;
  // So often in a row must packets have been left lying, with few polls between, before the habit
  // counts as one: a thread that lost its processor polled much more before.
  static constexpr uint32_t kHabitAfter = 3;
  static constexpr uint64_t kFewPolls = 1'000;
  // It is forgotten when of so many turns of the background thread only so many found something.
  static constexpr uint32_t kTurnsJudged = 64;
  static constexpr uint32_t kLeastFinds = 20;

  // --- Application threads ---

  // True if the application now counts as an active poller, whom the background thread leaves the
  // port to.
  bool polled(bool moved) {
    if (moved) {
      idle_polls_.store(0, std::memory_order_relaxed);
      return false;
    }
    const uint32_t idle = idle_polls_.load(std::memory_order_relaxed) + 1;
    idle_polls_.store(idle, std::memory_order_relaxed);
    return idle == kActiveAfterIdlePolls && !leaves_.load(std::memory_order_relaxed);
  }
  void stopped() { idle_polls_.store(0, std::memory_order_relaxed); }

  // --- The background thread ---

  // An active poller was found to poll no more, after so many polls in all.
  void went_silent(uint64_t polls) {
    stopped();
    if (polls - polls_before_ > kFewPolls) left_lying_ = 0;
    polls_before_ = polls;
    silent_ = true;
  }
  // A turn of the background thread; `moved` if it found something.
  void background_turn(bool moved) {
    if (silent_) {
      silent_ = false;
      left_lying_ = moved ? left_lying_ + 1 : 0;
      if (left_lying_ >= kHabitAfter) leaves_.store(true, std::memory_order_relaxed);
    }
    if (!leaves_.load(std::memory_order_relaxed)) return;
    finds_ += moved;
    if (++turns_ < kTurnsJudged) return;
    if (finds_ < kLeastFinds) {
      leaves_.store(false, std::memory_order_relaxed);
      left_lying_ = 0;
    }
    turns_ = finds_ = 0;
  }

  // It polls, but not all the time: the port is watched beside it.
  bool leaves() const { return leaves_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint32_t> idle_polls_{0};
  std::atomic<bool> leaves_{false};
  bool silent_ = false;
  uint32_t left_lying_ = 0;
  uint64_t polls_before_ = 0;
  uint32_t turns_ = 0;
  uint32_t finds_ = 0;
};

}  // namespace farverbs::engine
