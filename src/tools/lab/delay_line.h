// DelayLine: the wire packets of one direction that are on their way, by due time. Nearly all fall
// due in the order they came and wait in a queue; those taken out of order wait in a heap.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "farverbs/base/time.h"
#include "tools/lab/arena.h"

namespace farverbs::tools::lab {

struct InFlight {
  Time due;
  Super* super = nullptr;
  uint16_t index = 0;
  bool mark = false;
  bool corrupt = false;
  uint32_t noise = 0;
};

class DelayLine {
 public:
  DelayLine() : ring_(1 << 16) {}

  // `late` packets may fall due after those pushed later; the others never before one pushed
  // earlier.
  void push(const InFlight& packet, bool late) {
    if (late) {
      late_.push(packet);
      return;
    }
    if (tail_ - head_ == ring_.size()) grow();
    ring_[tail_++ & (ring_.size() - 1)] = packet;
  }
  bool empty() const { return head_ == tail_ && late_.empty(); }
  size_t size() const { return tail_ - head_ + late_.size(); }
  Time next_due() const {
    const Time in_order = head_ == tail_ ? Time::never() : front().due;
    return late_.empty() ? in_order : std::min(in_order, late_.top().due);
  }
  // The packet due next; only when not empty.
  InFlight pop() {
    if (!late_.empty() && (head_ == tail_ || late_.top().due < front().due)) {
      const InFlight packet = late_.top();
      late_.pop();
      return packet;
    }
    return ring_[head_++ & (ring_.size() - 1)];
  }

 private:
  struct Later {
    bool operator()(const InFlight& a, const InFlight& b) const { return a.due > b.due; }
  };
  const InFlight& front() const { return ring_[head_ & (ring_.size() - 1)]; }
  void grow() {
    std::vector<InFlight> bigger(ring_.size() * 2);
    for (size_t i = head_; i != tail_; ++i) {
      bigger[i & (bigger.size() - 1)] = ring_[i & (ring_.size() - 1)];
    }
    ring_.swap(bigger);
  }

  std::vector<InFlight> ring_;
  size_t head_ = 0;
  size_t tail_ = 0;
  std::priority_queue<InFlight, std::vector<InFlight>, Later> late_;
};

}  // namespace farverbs::tools::lab
