#include "farverbs/engine/timers.h"

#include <algorithm>

#include "farverbs/base/check.h"

namespace farverbs::engine {
namespace {
constexpr uint32_t kArity = 4;
}

void TimerHeap::place(TimerEntry* entry, uint32_t index) {
  heap_[index] = entry;
  entry->place = index;
}

void TimerHeap::sift_up(uint32_t index) {
  TimerEntry* entry = heap_[index];
  while (index > 0) {
    const uint32_t parent = (index - 1) / kArity;
    if (heap_[parent]->heap_deadline <= entry->heap_deadline) break;
    place(heap_[parent], index);
    index = parent;
  }
  place(entry, index);
}

void TimerHeap::sift_down(uint32_t index) {
  TimerEntry* entry = heap_[index];
  const auto size = static_cast<uint32_t>(heap_.size());
  for (;;) {
    const uint32_t first = index * kArity + 1;
    if (first >= size) break;
    uint32_t least = first;
    for (uint32_t child = first + 1; child < std::min(first + kArity, size); ++child) {
      if (heap_[child]->heap_deadline < heap_[least]->heap_deadline) least = child;
    }
    if (entry->heap_deadline <= heap_[least]->heap_deadline) break;
    place(heap_[least], index);
    index = least;
  }
  place(entry, index);
}

void TimerHeap::set(TimerEntry& entry, Time deadline) {
  entry.deadline = deadline;
  if (entry.place == TimerEntry::kNowhere) {
    if (deadline.is_never()) return;
    entry.heap_deadline = deadline;
    heap_.push_back(&entry);
    entry.place = static_cast<uint32_t>(heap_.size() - 1);
    sift_up(entry.place);
  } else if (deadline < entry.heap_deadline) {
    entry.heap_deadline = deadline;
    sift_up(entry.place);
  }
}

void TimerHeap::remove(TimerEntry& entry) {
  entry.deadline = Time::never();
  if (entry.place == TimerEntry::kNowhere) return;
  const uint32_t index = entry.place;
  entry.place = TimerEntry::kNowhere;
  TimerEntry* last = heap_.back();
  heap_.pop_back();
  if (last == &entry) return;
  place(last, index);
  sift_up(index);
  sift_down(last->place);
}

TimerEntry* TimerHeap::pop_expired(Time now) {
  while (!heap_.empty() && heap_.front()->heap_deadline <= now) {
    TimerEntry* entry = heap_.front();
    if (entry->deadline <= now) {
      remove(*entry);
      return entry;
    }
    if (entry->deadline.is_never()) {
      remove(*entry);
    } else {
      entry->heap_deadline = entry->deadline;
      sift_down(0);
    }
  }
  return nullptr;
}

}  // namespace farverbs::engine
