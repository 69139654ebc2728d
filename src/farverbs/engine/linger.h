// Linger: whether it pays to go on looking for what comes next instead of sleeping until it comes.
// A sleep costs both sides: the peer wakes this thread in its send call (an interrupt to another
// processor), and this thread is late. Bursts that follow one another within about that time are
// better waited for; on a slower line that would only burn a processor.
#pragma once

#include <algorithm>

#include "farverbs/base/time.h"

namespace farverbs::engine {

class Linger {
 public:
  static constexpr Duration kLongest = Duration::microseconds(40);

  // A look found something.
  void found(Time now) {
    if (!last_.is_never()) gap_ns_ += (std::min(now - last_, kCapped).ns() - gap_ns_) / 8;
  }
  // What was found has been dealt with.
  void dealt(Time now) { last_ = now; }
  // True: look again rather than sleep.
  bool worth(Time now) const {
    return gap_ns_ < kShort.ns() && !last_.is_never() && now - last_ < kLongest;
  }

 private:
  // Beyond that all gaps are alike: one of them outweighs several short ones.
  static constexpr Duration kCapped = Duration::microseconds(200);
  static constexpr Duration kShort = Duration::microseconds(30);
  Time last_ = Time::never();
  int64_t gap_ns_ = kCapped.ns();
};

}  // namespace farverbs::engine
