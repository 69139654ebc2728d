// Link: the model of one direction of a wide-area path, pure arithmetic on virtual time. Each wire
// packet is offered once, in order of arrival, and gets its whole fate at once: a drop-tail
// bottleneck (computed from when the link falls idle, not simulated), then random loss, delay that
// wanders, late packets, duplicates, bit errors and congestion marks. Every kind of chance has a
// random sequence of its own, so that one seed gives the same losses whatever else is switched on.
#pragma once

#include <cstdint>

#include "farverbs/base/prng.h"
#include "farverbs/base/time.h"
#include "farverbs/base/units.h"

namespace farverbs::tools::lab {

// What a packet costs a link beyond its IP bytes: Ethernet header 14, FCS 4, preamble 8, gap 12.
inline constexpr uint32_t kFrameOverhead = 38;

struct LinkConfig {
  BitRate rate;        // of the bottleneck, counted in whole frames; zero: no bottleneck
  Duration delay;      // one way
  Duration jitter;     // delay wanders from `delay` to `delay + jitter`, keeping order
  double loss = 0;     // probability, after the bottleneck
  double burst = 1;    // mean length of a run of losses in packets, 1: independent losses
  double reorder = 0;  // probability that a packet is `reorder_by` late
  Duration reorder_by;
  double duplicate = 0;
  double corrupt = 0;
  uint64_t queue_bytes = 0;  // most that waits, with what is left of the frame on the wire
  uint64_t ecn_bytes = 0;    // waiting bytes above which packets are marked, zero: never
  uint64_t seed = 1;
  bool down = false;  // nothing passes: what is offered is lost before the bottleneck
};

struct Fate {
  bool queue_drop = false;  // the bottleneck had no room; nothing else is set
  bool lost = false;        // after the bottleneck, or because the link is down
  bool mark = false;        // congestion experienced, if the packet is ECN-capable
  bool late = false;        // taken out of order
  bool duplicate = false;   // a second copy follows at once
  bool corrupt = false;
  uint32_t noise = 0;  // random bits that say how it is corrupted
  Duration queued;     // time spent waiting for the bottleneck
  Time due;            // when it reaches the far end; in order unless `late`
};

class Link {
 public:
  explicit Link(const LinkConfig& config);

  // The fate of an IP packet of `bytes` that arrives at `now`; `now` never decreases.
  Fate offer(Time now, uint32_t bytes);
  // What the bottleneck has still to send at `now`, in bytes of the link.
  uint64_t backlog(Time now) const;

  const LinkConfig& config() const { return config_; }
  // From the next packet on; what waits or is on its way keeps its fate, chance goes on where it
  // is.
  void change(const LinkConfig& config);

 private:
  bool draw_loss();
  Duration wander(Time now);

  LinkConfig config_;
  Prng loss_;
  Prng order_;
  Prng copies_;
  Prng errors_;
  Prng jitter_;
  double enter_burst_ = 0;
  double leave_burst_ = 1;
  bool in_burst_ = false;
  Time busy_until_;
  Time last_due_;
  Time wander_from_;
  Duration wander_period_;
  double wander_start_ = 0;  // as a share of the jitter
  double wander_end_ = 0;
};

}  // namespace farverbs::tools::lab
