// TrainEstimate: the bottleneck's rate from one train of packets that left back to back. The queue
// in front of the bottleneck spreads them, and the acknowledgements come back at its rate (packet
// pair and train dispersion, Dovrolis et al.). One train sees cross traffic, batching and jitter,
// so its answer is a hint, to be confirmed by a delivery rate.
#pragma once

#include <cstdint>

#include "farverbs/base/time.h"
#include "farverbs/base/units.h"

namespace farverbs::cc {

class TrainEstimate {
 public:
  // A train of this many bytes leaves now, when `delivered` bytes had arrived before.
  void start(uint64_t bytes, uint64_t delivered) {
    bytes_ = bytes;
    begin_ = delivered;
    started_ = true;
    seen_ = false;
    best_ = {};
    acknowledgements_ = 0;
  }
  bool measuring() const { return started_; }
  // An acknowledgement: everything delivered up to now, and what was in flight when its newest
  // packet had left. Returns true when the train is over and rate() is as good as it gets.
  bool on_delivered(Time now, uint64_t delivered, uint64_t inflight);
  // Zero: nothing is known, as when one acknowledgement told of the whole train.
  BitRate rate() const { return best_; }

 private:
  uint64_t bytes_ = 0;
  uint64_t begin_ = 0;
  bool started_ = false;
  bool seen_ = false;
  uint32_t acknowledgements_ = 0;
  Time first_;
  uint64_t first_delivered_ = 0;
  BitRate best_;
};

}  // namespace farverbs::cc
