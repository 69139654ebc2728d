// Shard: a packet loop with a lock, a background thread and the rules for who drives it when.
//
//   an application thread that polls     takes the lock if it is free and runs a step in place;
//   an application thread that waits     (the leader) sleeps on the port itself: one wake-up from a
//                                        packet's arrival to its completion;
//   the background thread                sleeps on the port whenever neither is there, so that
//   peers'
//                                        one-sided operations and retransmissions progress.
//
// While an application polls, the background thread stands by: it does not watch the port, it only
// looks in every millisecond whether the polling went on, unless the application has the habit of
// polling now and then only (PollHabit): then both watch it. Work that is posted while somebody
// else holds the lock is seen by the holder before it goes (Loop::ring, Loop::has_work).
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "farverbs/engine/linger.h"
#include "farverbs/engine/loop.h"
#include "farverbs/engine/poll_habit.h"
#include "farverbs/io/os_clock.h"
#include "farverbs/io/waker.h"

namespace farverbs::engine {

// Threads that wait for completions which another thread's step may bring.
struct Followers {
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<int> count{0};
  void notify();
};

class Shard {
 public:
  // The port is the shard's from here on; `slot` is the top byte of its QPNs. Followers outlive it.
  static Result<std::unique_ptr<Shard>> create(std::unique_ptr<io::Port> port,
                                               model::MemoryTable& memory, Entropy& entropy,
                                               const LoopConfig& config, uint8_t slot,
                                               Followers& followers, bool background);
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // Runs f(loop, now) under the lock, and sees to what it caused (work, deadlines).
  template <typename F>
  auto with_loop(F&& f) {
    struct Leave {
      Shard& shard;
      ~Leave() { shard.unlock(); }
    };
    mutex_.lock();
    Leave leave{*this};
    return f(loop_, io::os_now());
  }

  // An application thread polls: one step in place if the loop is free. True if anything moved.
  bool poll();
  // Large bursts are arriving, as far as polls have seen.
  bool streaming() const { return streaming_.load(std::memory_order_relaxed); }
  // `count` requests were queued at `qp` by this thread.
  void posted(LoopQp& qp, size_t count);
  // The application stops polling for now (it armed a notification, or leaves): the background
  // thread takes over, nothing stays owed.
  void hand_over();
  // Sleeps until something moved, `deadline`, or done(); false at once if another thread already
  // leads. `done` is asked after the port is watched, so that nothing is missed.
  template <typename Done>
  bool lead(Time deadline, Done&& done);
  // Ends lead() early.
  void wake_leader() const { leader_waker_.wake(); }
  // Returns when no step that began before is still running.
  void quiesce() { std::lock_guard lock(mutex_); }

  // See io::Port; takes no lock.
  std::vector<int> sockets() const { return port_->sockets(); }

  struct Counters {
    uint64_t inline_steps = 0;
    uint64_t background_steps = 0;
    uint64_t background_wakeups = 0;
  };
  Counters counters() const;

 private:
  Shard(std::unique_ptr<io::Port> port, model::MemoryTable& memory, Entropy& entropy,
        const LoopConfig& config, uint8_t slot, Followers& followers, io::Waker background_waker,
        io::Waker leader_waker);
  void background();
  void background_turn();
  void stand_by();
  // Releases the lock; takes care of work rung meanwhile and of sleepers with a later deadline.
  void unlock();
  bool begin_lead(Time deadline);
  void sleep_on_port(const io::Waker& waker, Time deadline);
  void end_lead();

  std::unique_ptr<io::Port> port_;
  Loop loop_;
  Followers& followers_;
  std::mutex mutex_;
  io::Waker background_waker_;
  io::Waker leader_waker_;

  // Counts polls, so that the background thread can see whether they go on.
  std::atomic<uint64_t> polls_{0};
  PollHabit habit_;
  Linger linger_;                         // the background thread's own
  std::atomic<bool> polling_{false};      // an application polls actively, or leads
  std::atomic<bool> leading_{false};      // an application thread is inside lead()
  std::atomic<bool> standing_by_{false};  // the background thread looks in every millisecond
  std::atomic<bool> parked_{false};       // it sleeps until woken, because a leader sleeps
  bool leader_idle_ = false;  // background thread's own: the leader slept since the last look
  // Until when the sleeper on the port would sleep; Time() while nobody sleeps there.
  std::atomic<int64_t> background_sleeps_until_{0};
  std::atomic<int64_t> leader_sleeps_until_{0};
  std::atomic<uint64_t> inline_steps_{0};
  std::atomic<uint64_t> background_steps_{0};
  std::atomic<uint64_t> background_wakeups_{0};
  std::atomic<bool> streaming_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

template <typename Done>
bool Shard::lead(Time deadline, Done&& done) {
  if (!begin_lead(deadline)) return false;
  if (!done()) {
    sleep_on_port(leader_waker_, Time::from_ns(leader_sleeps_until_.load()));
    // Awake: its own step must not take it for a sleeper.
    leader_sleeps_until_.store(0, std::memory_order_seq_cst);
    poll();
  }
  end_lead();
  return true;
}

}  // namespace farverbs::engine
