#include "farverbs/cc/start_hint.h"

#include <algorithm>

namespace farverbs::cc {
namespace {

// That part of what was sent has to come back.
constexpr double kConfirmed = 0.88;
constexpr double kOutgrown = 0.97;
// A hint may be wrong by much: no more than so many times what came back is tried next.
constexpr double kStage = 4;
// Then a little more than the hint shows whether the line has more, at the price of little queue;
// and if it has, the bound rises by rounds.
constexpr double kMargin = 1.1;
constexpr double kGrowth = 1.5;

}  // namespace

void StartHint::learn(double bps, double trust, double most_bps) {
  bps_ = bps;
  tried_ = std::min(trust * bps, most_bps);
  most_ = kMargin * bps;
  outgrown_ = false;
}

void StartHint::on_interval(double carried_bps, bool queued) {
  if (!known() || queued) return;
  if (tried_ < bps_) {
    if (carried_bps >= kConfirmed * tried_) tried_ = std::min(bps_, kStage * tried_);
  } else if (carried_bps >= kOutgrown * most_) {
    // The line has more than the hint said: soon there is none.
    most_ = outgrown_ ? 0 : most_ * kGrowth;
    if (outgrown_) bps_ = 0;
    outgrown_ = true;
  }
}

double StartHint::rate(double own) const {
  if (!known()) return own;
  return tried_ < bps_ ? std::clamp(own, tried_, bps_) : std::clamp(own, bps_, most_);
}

}  // namespace farverbs::cc
