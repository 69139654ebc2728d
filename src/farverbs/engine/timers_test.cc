#include "farverbs/engine/timers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "farverbs/base/prng.h"

namespace farverbs::engine {
namespace {

Time at(int64_t us) { return Time::from_ns(us * 1000); }

TEST(TimerHeap, PopsInOrderOfDeadlines) {
  TimerHeap heap;
  std::vector<TimerEntry> entries(5);
  for (size_t i = 0; i < entries.size(); ++i) {
    heap.set(entries[i], at(static_cast<int64_t>(50 - i * 10)));
  }
  EXPECT_EQ(heap.next(), at(10));
  EXPECT_EQ(heap.pop_expired(at(5)), nullptr);
  EXPECT_EQ(heap.pop_expired(at(100)), &entries[4]);
  EXPECT_EQ(heap.pop_expired(at(100)), &entries[3]);
}

TEST(TimerHeap, LaterDeadlinesTakeEffectLazily) {
  TimerHeap heap;
  TimerEntry entry;
  heap.set(entry, at(10));
  heap.set(entry, at(20));
  EXPECT_EQ(heap.pop_expired(at(15)), nullptr);
  EXPECT_EQ(heap.next(), at(20));
  EXPECT_EQ(heap.pop_expired(at(20)), &entry);
  EXPECT_EQ(heap.size(), 0u);
}

TEST(TimerHeap, NeverTakesATimerOut) {
  TimerHeap heap;
  TimerEntry entry;
  heap.set(entry, at(10));
  heap.set(entry, Time::never());
  EXPECT_EQ(heap.pop_expired(at(1000)), nullptr);
  EXPECT_EQ(heap.size(), 0u);
}

TEST(TimerHeap, AgreesWithASortedListUnderRandomUse) {
  Prng prng(7);
  TimerHeap heap;
  std::vector<TimerEntry> entries(200);
  for (int64_t now = 0; now < 3000; ++now) {
    TimerEntry& entry = entries[prng.below(entries.size())];
    switch (prng.below(4)) {
      case 0:
        heap.remove(entry);
        break;
      case 1:
        heap.set(entry, Time::never());
        break;
      default:
        heap.set(entry, at(now + static_cast<int64_t>(prng.below(300)) + 1));
    }
    Time earliest = Time::never();
    for (const TimerEntry& e : entries) earliest = std::min(earliest, e.deadline);
    EXPECT_LE(heap.next(), earliest);
    while (TimerEntry* expired = heap.pop_expired(at(now))) {
      EXPECT_TRUE(expired->deadline.is_never());
      EXPECT_EQ(expired->place, TimerEntry::kNowhere);
    }
    for (const TimerEntry& e : entries) EXPECT_GT(e.deadline, at(now));
  }
  for (TimerEntry& entry : entries) heap.remove(entry);
}

}  // namespace
}  // namespace farverbs::engine
