// Controller: congestion control of one path (a peer address), shared by all QPs to that peer. Four
// calls, time passed in, no I/O. Bytes are UDP payload bytes of the wire.
#pragma once

#include <cstdint>

#include "farverbs/base/time.h"
#include "farverbs/base/units.h"

namespace farverbs::cc {

struct Sample {
  Time now;
  uint64_t acked_bytes = 0;     // newly acknowledged
  uint64_t lost_bytes = 0;      // newly declared lost
  uint64_t inflight_bytes = 0;  // after this sample
  bool has_rtt = false;
  Duration rtt;                          // of the newest acknowledged packet, if has_rtt
  BitRate delivery_rate;                 // zero if unknown
  bool application_limited = false;      // the rate was limited by what there was to send
  uint64_t congestion_marked_bytes = 0;  // ECN CE
  // Told lost before, and arrived after all: the loss was none.
  uint64_t spurious_bytes = 0;
  // Everything that ever arrived on this path, this sample included, and what that count was when
  // the newest acknowledged packet left: a round trip has ended when the latter reaches what the
  // former was at the round's start.
  uint64_t delivered_bytes = 0;
  uint64_t prior_delivered_bytes = 0;
  // In flight when that packet had left, itself included.
  uint64_t prior_inflight_bytes = 0;
};

struct Allowance {
  uint64_t window_bytes = 0;  // most bytes in flight
  BitRate rate;               // pacing rate; zero: not paced
};

class Controller {
 public:
  virtual ~Controller() = default;
  virtual void on_sent(Time now, uint64_t bytes, uint64_t inflight_bytes) = 0;
  virtual void on_feedback(const Sample& sample) = 0;
  virtual void on_timeout(Time now) = 0;
  virtual Allowance allowance() const = 0;
};

}  // namespace farverbs::cc
