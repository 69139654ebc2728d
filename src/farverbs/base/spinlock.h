// A lock for sections of some nanoseconds (a ring's ends). It yields after a short spin, since the
// machines this runs on may have fewer cores than threads.
#pragma once

#include <atomic>
#include <thread>

namespace farverbs {

class Spinlock {
 public:
  void lock() {
    for (int spins = 0; held_.exchange(true, std::memory_order_acquire);) {
      while (held_.load(std::memory_order_relaxed)) {
        if (++spins > 64) {
          std::this_thread::yield();
        } else {
          __builtin_ia32_pause();
        }
      }
    }
  }
  bool try_lock() {
    return !held_.load(std::memory_order_relaxed) &&
           !held_.exchange(true, std::memory_order_acquire);
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

}  // namespace farverbs
