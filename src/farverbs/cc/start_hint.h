// StartHint: what startup may believe of the rate before it has measured it: from the first train
// of packets, or remembered from an earlier connection (careful resume,
// draft-ietf-tsvwg-careful-resume). A part of it is tried first; when that much comes back and no
// queue is seen, the whole is the rate to aim at, until startup has outgrown it.
#pragma once

#include <cstdint>

namespace farverbs::cc {

class StartHint {
 public:
  bool known() const { return bps_ > 0; }
  // trust: the part to try first. most_bps: but no more than this, until it has come back.
  void learn(double bps, double trust, double most_bps);
  // What the line carried over a quarter of a round trip, chance losses included.
  void on_interval(double carried_bps, bool queued);
  // The rate to send at, if startup alone would send at `own`.
  double rate(double own) const;

 private:
  double bps_ = 0;
  double tried_ = 0;  // of which is tried now
  double most_ = 0;   // once all of it came back
  bool outgrown_ = false;
};

}  // namespace farverbs::cc
