// TimerHeap: deadlines of many QPs, one each. A 4-ary heap of entries that know their place, so
// that moving a deadline later, the common case for retransmission timers, is a store: a popped
// entry whose own deadline lies ahead goes back in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "farverbs/base/time.h"

namespace farverbs::engine {

struct TimerEntry {
  static constexpr uint32_t kNowhere = UINT32_MAX;
  Time deadline = Time::never();       // what is wanted
  Time heap_deadline = Time::never();  // what the heap is ordered by; never later than wanted
  uint32_t place = kNowhere;
  void* owner = nullptr;  // whose timer it is
};

class TimerHeap {
 public:
  // Sets or moves the deadline; never() takes the entry out lazily.
  void set(TimerEntry& entry, Time deadline);
  // Takes the entry out at once (before it dies).
  void remove(TimerEntry& entry);
  // A lower bound of the earliest deadline.
  Time next() const { return heap_.empty() ? Time::never() : heap_.front()->heap_deadline; }
  // An entry whose deadline has come, or nullptr. The entry is out and its deadline never().
  TimerEntry* pop_expired(Time now);
  size_t size() const { return heap_.size(); }

 private:
  void place(TimerEntry* entry, uint32_t index);
  void sift_up(uint32_t index);
  void sift_down(uint32_t index);
  std::vector<TimerEntry*> heap_;
};

}  // namespace farverbs::engine
