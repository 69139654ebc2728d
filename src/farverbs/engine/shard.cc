#include "farverbs/engine/shard.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>

#include "farverbs/base/fault_guard.h"
#include "farverbs/base/quiet_signals.h"

namespace farverbs::engine {
namespace {

// How often the background thread looks in on an active poller.
constexpr int64_t kLookInNs = 1'000'000;
// Turns of the background thread in a row under one lock, so that others get it too.
constexpr int kTurnsPerLock = 8;

// Sleeps until one of the descriptors is readable or `deadline`.
// True if the second one is.
bool sleep_until_readable(int first_fd, int second_fd, Time deadline) {
  pollfd fds[2] = {{first_fd, POLLIN, 0}, {second_fd, POLLIN, 0}};
  timespec timeout{};
  const timespec* wait = nullptr;
  if (!deadline.is_never()) {
    const int64_t ns = std::max<int64_t>(0, (deadline - io::os_now()).ns());
    timeout.tv_sec = ns / 1'000'000'000;
    timeout.tv_nsec = ns % 1'000'000'000;
    wait = &timeout;
  }
  // A negative descriptor is ignored; an interrupted sleep is as good as a short one.
  return ::ppoll(fds, 2, wait, nullptr) > 0 && fds[1].revents != 0;
}

}  // namespace

void Followers::notify() {
  if (count.load(std::memory_order_seq_cst) == 0) return;
  std::lock_guard lock(mutex);
  changed.notify_all();
}

Result<std::unique_ptr<Shard>> Shard::create(std::unique_ptr<io::Port> port,
                                             model::MemoryTable& memory, Entropy& entropy,
                                             const LoopConfig& config, uint8_t slot,
                                             Followers& followers, bool background) {
  FV_ASSIGN(io::Waker background_waker, io::Waker::create());
  FV_ASSIGN(io::Waker leader_waker, io::Waker::create());
  install_fault_guard();
  std::unique_ptr<Shard> shard(new Shard(std::move(port), memory, entropy, config, slot, followers,
                                         std::move(background_waker), std::move(leader_waker)));
  if (background) {
    const QuietSignals quiet;
    shard->thread_ = std::thread([s = shard.get()] { s->background(); });
  }
  return shard;
}

Shard::Shard(std::unique_ptr<io::Port> port, model::MemoryTable& memory, Entropy& entropy,
             const LoopConfig& config, uint8_t slot, Followers& followers,
             io::Waker background_waker, io::Waker leader_waker)
    : port_(std::move(port)),
      loop_(*port_, memory, entropy, config, slot),
      followers_(followers),
      background_waker_(std::move(background_waker)),
      leader_waker_(std::move(leader_waker)) {}

Shard::~Shard() {
  stopping_.store(true);
  background_waker_.wake();
  if (thread_.joinable()) thread_.join();
}

Shard::Counters Shard::counters() const {
  return {inline_steps_.load(std::memory_order_relaxed),
          background_steps_.load(std::memory_order_relaxed),
          background_wakeups_.load(std::memory_order_relaxed)};
}

// --- Application threads ---

bool Shard::poll() {
  polls_.store(polls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (!mutex_.try_lock()) return false;
  const bool moved = loop_.step(io::os_now(), StepKind::kPolling);
  streaming_.store(loop_.streaming(), std::memory_order_relaxed);
  inline_steps_.store(inline_steps_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (habit_.polled(moved)) polling_.store(true, std::memory_order_seq_cst);
  unlock();
  if (moved) followers_.notify();
  return moved;
}

void Shard::posted(LoopQp& qp, size_t count) {
  loop_.ring(qp);
  // An active poller comes back at once: when earlier requests are still on their way, small ones
  // gather until then and leave together.
  const model::SendQueue& queue = qp.pair.qp().send_queue;
  if (polling_.load(std::memory_order_relaxed) && standing_by_.load(std::memory_order_relaxed) &&
      !leading_.load(std::memory_order_relaxed) && queue.tail() - queue.head() > count) {
    return;
  }
  if (!mutex_.try_lock()) return;  // the holder sees it
  loop_.step_transmit(io::os_now(), polling_.load(std::memory_order_relaxed) ? StepKind::kPolling
                                                                             : StepKind::kLeaving);
  unlock();
}

void Shard::hand_over() {
  habit_.stopped();
  const bool was_polling = polling_.exchange(false, std::memory_order_seq_cst);
  if (mutex_.try_lock()) {
    loop_.step_transmit(io::os_now(), StepKind::kLeaving);
    unlock();
  }
  if (was_polling) background_waker_.wake();
}

void Shard::unlock() {
  for (;;) {
    const Time deadline = loop_.next_deadline();
    mutex_.unlock();
    // Somebody may have rung while the lock was held and found it taken.
    if (!loop_.has_work() || !mutex_.try_lock()) {
      // A sleeper must not sleep past the new deadline. Its own later wake-up is no harm.
      if (deadline.ns() < background_sleeps_until_.load(std::memory_order_seq_cst)) {
        background_waker_.wake();
      }
      if (deadline.ns() < leader_sleeps_until_.load(std::memory_order_seq_cst)) {
        leader_waker_.wake();
      }
      return;
    }
    loop_.step_transmit(io::os_now(), StepKind::kPolling);
  }
}

bool Shard::begin_lead(Time deadline) {
  if (leading_.exchange(true, std::memory_order_seq_cst)) return false;
  polling_.store(true, std::memory_order_seq_cst);
  mutex_.lock();
  // What has arrived meanwhile ends the sleep at once; here only nothing may stay owed.
  loop_.step_transmit(io::os_now(), StepKind::kLeaving);
  const Time wake_at = std::min(deadline, loop_.next_deadline());
  leader_sleeps_until_.store(wake_at.ns(), std::memory_order_seq_cst);
  mutex_.unlock();
  if (loop_.has_work()) leader_waker_.wake();
  return true;
}

void Shard::sleep_on_port(const io::Waker& waker, Time deadline) {
  if (sleep_until_readable(port_->wait_fd(), waker.fd(), deadline)) waker.drain();
}

void Shard::end_lead() {
  leader_sleeps_until_.store(0, std::memory_order_seq_cst);
  leading_.store(false, std::memory_order_seq_cst);
  // From here on this thread counts as polling; a parked background thread must watch that.
  if (parked_.load(std::memory_order_seq_cst)) background_waker_.wake();
  followers_.notify();
}

// --- The background thread ---

void Shard::background() {
  pthread_setname_np(pthread_self(), "farverbs");
  // Pacing and retransmission deadlines are tens of microseconds; the default slack is 50.
  ::prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  while (!stopping_.load(std::memory_order_seq_cst)) {
    if (polling_.load(std::memory_order_seq_cst)) {
      stand_by();
    } else {
      background_turn();
    }
  }
}

void Shard::stand_by() {
  standing_by_.store(true, std::memory_order_seq_cst);
  bool woken = false;
  const uint64_t seen = polls_.load(std::memory_order_relaxed);
  if (leader_idle_ && leading_.load(std::memory_order_seq_cst)) {
    parked_.store(true, std::memory_order_seq_cst);
    // Asked again: the leader may have left before it could see that we park.
    if (leading_.load(std::memory_order_seq_cst)) {
      woken = sleep_until_readable(-1, background_waker_.fd(), Time::never());
    }
    parked_.store(false, std::memory_order_seq_cst);
    leader_idle_ = false;
  } else {
    woken = sleep_until_readable(-1, background_waker_.fd(),
                                 io::os_now() + Duration::nanoseconds(kLookInNs));
    const bool unchanged = polls_.load(std::memory_order_relaxed) == seen;
    const bool leading = leading_.load(std::memory_order_seq_cst);
    // A leader that slept all the time may sleep for long: looking in on it would be waste.
    leader_idle_ = leading && unchanged;
    if (!leading && unchanged) {
      polling_.store(false, std::memory_order_seq_cst);
      habit_.went_silent(seen);
    }
  }
  if (woken) background_waker_.drain();
  standing_by_.store(false, std::memory_order_seq_cst);
}

void Shard::background_turn() {
  bool any = false;
  bool yield = false;
  Time deadline;
  {
    std::lock_guard lock(mutex_);
    bool moved = true;
    Time now;
    for (int turn = 0; turn < kTurnsPerLock && moved; ++turn) {
      now = io::os_now();
      moved = loop_.step(now, StepKind::kLeaving);
      if (moved && !any) linger_.found(now);
      any |= moved;
      background_steps_.store(background_steps_.load(std::memory_order_relaxed) + 1,
                              std::memory_order_relaxed);
      if (loop_.drained()) moved = false;
    }
    if (any) linger_.dealt(io::os_now());
    yield = (any && loop_.streaming()) || linger_.worth(now);
    deadline = moved || yield ? Time() : loop_.next_deadline();
    // Set under the lock: every later step by others compares its deadline with this.
    background_sleeps_until_.store(deadline.ns(), std::memory_order_seq_cst);
  }
  habit_.background_turn(any);
  if (any) followers_.notify();
  // In the midst of a long message it lets others run and looks once more before it sleeps, and for
  // longer where things come close: a peer on the same processor sends all that it may, instead of
  // waking this thread for each burst.
  if (yield) ::sched_yield();
  if (deadline > io::os_now() && !loop_.has_work() && !polling_.load(std::memory_order_seq_cst) &&
      !stopping_.load(std::memory_order_seq_cst)) {
    sleep_on_port(background_waker_, deadline);
    background_wakeups_.store(background_wakeups_.load(std::memory_order_relaxed) + 1,
                              std::memory_order_relaxed);
  }
  background_sleeps_until_.store(0, std::memory_order_seq_cst);
}

}  // namespace farverbs::engine
