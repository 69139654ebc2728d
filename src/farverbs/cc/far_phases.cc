#include "farverbs/cc/far_controller.h"

#include <algorithm>
#include <limits>

#include "farverbs/cc/far_tuning.h"

namespace farverbs::cc {

using namespace far;

// The phases of FarController: when each ends, and what it is for.

void FarController::enter(Phase phase, Time now) {
  if (phase_ == Phase::kRefresh && !competing_) low_end_ = delivered_;
  if (phase == Phase::kRefresh && !competing_) {
    low_begin_ = delivered_;
    low_end_ = std::numeric_limits<uint64_t>::max();
  }
  calm_begin_ = delivered_;
  phase_ = phase;
  phase_since_ = now;
  empty_intervals_ = 0;
}

void FarController::advance(const Sample& sample, bool round_ended) {
  if (phase_ == Phase::kDrain) {
    const bool small = static_cast<double>(sample.inflight_bytes) <=
                       product(wire_bps(), rtt_.least() + target()) + packet();
    if (small || sample.now - phase_since_ > rtt_.least() * 4) {
      gain_ = 1;
      enter(Phase::kCruise, sample.now);
      probe_after_ = sample.now;
    }
    return;
  }
  const Duration rise =
      std::clamp(rtt_.least() / 16, Duration::milliseconds(2), Duration::milliseconds(8));
  const bool queued = sample.now - round_.since >= rtt_.least() / 8 &&
                      round_.samples >= kLeastQueuedSamples && round_.least != Duration::max() &&
                      round_.least > rtt_.least() + rise;
  if (queued && !round_.limited) {
    leave_startup(sample.now);
    return;
  }
  if (round_ended) advance_startup();
}

void FarController::advance_startup() {
  const Time now = round_.since;
  const double total = static_cast<double>(round_.acked + round_.lost);
  if (total > 0 && static_cast<double>(round_.marked) > kStartupMarks * total) {
    leave_startup(now);
    return;
  }
  if (round_.limited) return;
  if (bps() >= kStartupGrowth * plateau_bps_) {
    plateau_bps_ = bps();
    plateau_rounds_ = 0;
    return;
  }
  ++plateau_rounds_;
  const bool lossy = static_cast<double>(round_.lost) > kStartupMuchLoss * total;
  if (plateau_rounds_ >= kPlateauRounds || lossy) leave_startup(now);
}

void FarController::leave_startup(Time now) {
  // The rate over a whole round lags behind the line's; with a queue the last quarters know it.
  if (interval_bps_ > bps()) rates_.raise(std::min(interval_bps_, 2 * bps()));
  enter(Phase::kDrain, now);
}

void FarController::begin_refresh(Time now) {
  const Duration rtt = std::max(rtt_.least(), Duration::milliseconds(4));
  const double depth = (queue_ + Duration::milliseconds(2)).to_seconds() / rtt.to_seconds();
  // A least that the last refresh made lower was queue; then this one goes deeper.
  const bool deeper = refresh_least_ > rtt_.least() + kRefreshFound;
  refresh_depth_ = std::clamp(deeper ? 2 * refresh_depth_ : depth, 0.05, 0.25);
  refresh_gain_ = 1 - refresh_depth_;
  refresh_least_ = rtt_.least();
  if (competing_) {
    test_from_ = {queue_, prior_inflight_};
    const double less = std::min(wire_bps() / 8 * queue_.to_seconds(), cubic_.bytes()) / 2;
    test_window_ = cubic_.bytes() - less;
    test_until_ = 0;
  } else {
    low_wait_ = loss_.by_load() ? std::min(low_wait_ * 2, kRefreshInterval) : kLowWait;
    loss_.begin_low();
    low_at_ = now;
  }
  enter(Phase::kRefresh, now);
}

void FarController::advance_refresh(const Sample& sample, bool interval_ended) {
  if (competing_) {
    // A round trip after less is in flight, and an interval to see it.
    if (test_until_ == 0 && static_cast<double>(inflight_) <= test_window_ + 2 * packet()) {
      test_until_ = delivered_ + inflight_;
    }
    if (test_until_ == 0 || sample.prior_delivered_bytes < test_until_ || !interval_ended) return;
    refreshed_ = sample.now;
    const QueueWitness::View now{queue_, prior_inflight_};
    const double share = QueueWitness::share(test_from_, now, wire_bps());
    ramping_ = share < kSmallShare && bps() < kSmallShare * peak_bps_;
    if (share > kOurShare) {
      compete(sample.now, false);
      relearn_ = true;
      enter(Phase::kDrain, sample.now);
    } else {
      enter(Phase::kCruise, sample.now);
    }
    return;
  }
  const Duration rtt = std::max(rtt_.least(), Duration::milliseconds(4));
  if (sample.now - phase_since_ < rtt * 3 / 2) return;
  refreshed_ = sample.now;
  enter(Phase::kCruise, sample.now);
}

bool FarController::found_lower(Time now) const {
  return refresh_least_ > rtt_.least() + kRefreshFound && now - phase_since_ > rtt_.least() * 3 / 2;
}

bool FarController::wants_low(Time now) const {
  return loss_.wants_low() && now - low_at_ > std::max(low_wait_, rtt_.least() * 10);
}

void FarController::compete(Time now, bool yes) {
  if (yes == competing_) return;
  competing_ = yes;
  // Beside others the queue may never be empty again.
  if (yes) rtt_.hold(Time::never());
  queue_cleared_ = 0;
  if (!yes) {
    competed_ = now;
    rtt_.hold(now + kHoldAfter);
    return;
  }
  // Soon it looks how large its share is.
  refreshed_ = now - kRefreshInterval + smoothed_rtt_ * 2;
  // What was given up to see whose queue it is comes back; who was away for a moment goes on where
  // it was.
  const bool again = competed_ > Time{} && now - competed_ < kCompeteMemory;
  const double before = again ? cubic_.bytes() : static_cast<double>(witness_.before().inflight);
  ramping_ = false;
  cubic_.start(now, std::max(product(wire_bps(), rtt_.least() + queue_), before));
}

void FarController::advance_cruise(Time now, bool interval_ended) {
  if (!interval_ended) return;
  if (local()) {
    // The window's own queue must not make it look longer.
    rtt_.hold(rtt_.last_better() + kLocalHold);
    return;
  }
  if (target_limit_ != Duration::max()) target_limit_ = scaled(target_limit_, 1.002);
  const Duration since = now - refreshed_;
  wary_ = competed_ > Time{} && now - competed_ < kCompeteMemory;
  // Whom the queue belongs to does not matter to who gives way to everybody; but it has to know
  // the RTT without a queue for long, since others may never empty it.
  if (config_.background) rtt_.hold(rtt_.last_better() + kBackgroundHold);
  const bool due = since > (competing_ ? kRefreshInterval
                                       : std::max(kRefreshInterval, rtt_.least() * kRefreshRounds));
  if (competing_) {
    queue_cleared_ =
        queue_ <= std::max(target() / 2, Duration::milliseconds(1)) ? queue_cleared_ + 1 : 0;
    if (queue_cleared_ >= kClearedIntervals) {
      compete(now, false);
    } else if (due) {
      begin_refresh(now);
    }
    return;
  }
  if (relearn_ && now - phase_since_ > smoothed_rtt_ * 2) {
    // Whatever the RTT is now, it is so without a queue of ours.
    relearn_ = false;
    if (pressed()) rtt_.restart(now, rtt_.least() + queue_);
  }
  const Duration error = target() - queue_now();
  const Duration rtt = std::max(rtt_.least(), kGainLeastRtt);
  gain_ = std::clamp(1 + kGainSlope * error.to_seconds() / rtt.to_seconds() - mark_share_ / 2,
                     kLeastGain, loss_.by_load() ? 1.0 : kMostGain);
  if (config_.background && pressed()) {
    const double over = -error.to_seconds() / target().to_seconds();
    gain_ = std::clamp(1 - kBackgroundSlope * over, kBackgroundLeastGain, 1.0);
  }
  empty_intervals_ = queue_ < target() / 2 && !round_.limited ? empty_intervals_ + 1 : 0;
  if (!round_.limited && !config_.background && witness_.foreign()) {
    compete(now, true);
  } else if (!round_.limited && (due || found_lower(now) || wants_low(now))) {
    begin_refresh(now);
  } else if (empty_intervals_ >= kEmptyIntervals && now >= probe_after_ && mark_share_ == 0) {
    probe_from_bps_ = bps();
    probe_rounds_ = 0;
    probe_gain_ = 1 + std::clamp(kProbeGainMs * 1e-3 / rtt_.least().to_seconds(), kLeastProbeGain,
                                 kMostProbeGain);
    enter(Phase::kProbe, now);
  }
}

void FarController::advance_probe(Time now, bool round_ended) {
  const Duration rise =
      std::max(target() * 3 / 2,
               std::clamp(rtt_.least() / 16, Duration::milliseconds(2), Duration::milliseconds(4)));
  const bool queued = queue_ > rise;
  if (!queued && !round_ended) return;
  if (round_ended) ++probe_rounds_;
  const bool grew = bps() > probe_from_bps_ * (1 + (std::min(probe_gain_, 1.25) - 1) / 2);
  if (!queued && probe_rounds_ < kProbeRounds && !grew) return;
  if (grew && !queued) {
    probe_from_bps_ = bps();
    probe_rounds_ = 0;
    probe_gain_ = std::min(1 + (probe_gain_ - 1) * kProbeStep, kFastProbeGain);
    probe_hold_ = kLeastProbeHold;
    return;
  }
  if (!grew) probe_hold_ = std::min(probe_hold_ * 2, kMostProbeHold);
  probe_after_ = now + std::max(probe_hold_, rtt_.least() * 4);
  enter(queued ? Phase::kDrain : Phase::kCruise, now);
}

void FarController::on_timeout(Time now) {
  // The line may be down. What was known of it is probably still true when it is back, so it is
  // kept; but the first packets after it probe.
  timed_out_ = true;
  if (phase_ == Phase::kProbe || phase_ == Phase::kRefresh) enter(Phase::kCruise, now);
  before_.valid = false;
  allow(now);
}

}  // namespace farverbs::cc
