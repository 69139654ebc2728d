// Pacer: a token bucket that says how many bytes may leave now, and when the next may. Sans-IO:
// time and rate are passed in. It lets bytes go in bursts, since a system call and a wake-up for
// each packet cost more than the packet.
#pragma once

#include <cstdint>

#include "farverbs/base/time.h"
#include "farverbs/base/units.h"

namespace farverbs::cc {

class Pacer {
 public:
  // segment_bytes > 0: the size of a full packet.
  explicit Pacer(uint32_t segment_bytes) : segment_bytes_(segment_bytes) {}

  // Zero: not paced, everything may leave. Credit earned so far is kept, up to what the new rate
  // allows.
  void set_rate(Time now, BitRate rate);
  BitRate rate() const { return rate_; }

  // Bytes that may leave now if `wanted` are waiting: 0 while there is credit for neither all of
  // them nor a burst, so that bulk leaves in bursts and a small message does not wait for one. A
  // packet that begins within the answer may be sent whole.
  uint64_t available(Time now, uint64_t wanted);
  // When available(..., wanted) is not 0 any more; `now` if it is so already. wanted > 0.
  Time next(Time now, uint64_t wanted);
  // More than was available may have been sent: it is owed.
  void on_sent(Time now, uint64_t bytes);
  // Somebody else used so much of what this pacer's senders share with him.
  void charge(Time now, uint64_t bytes);

  uint64_t burst_bytes() const;

 private:
  void earn(Time now);
  int64_t most_credit() const;

  uint32_t segment_bytes_;
  BitRate rate_;
  bool started_ = false;
  bool waiting_ = false;  // a sender was told to wait
  Time earned_until_;
  int64_t credit_ = 0;  // bytes; negative: owed
};

}  // namespace farverbs::cc
