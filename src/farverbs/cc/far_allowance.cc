#include "farverbs/cc/far_controller.h"

#include <algorithm>

#include "farverbs/cc/far_tuning.h"

namespace farverbs::cc {

using namespace far;

// What FarController allows in each phase.

void FarController::set(double window, double rate_bps) {
  const double least = (config_.background ? 2 : 4) * packet();
  allowance_.window_bytes = static_cast<uint64_t>(
      std::clamp(window, least, static_cast<double>(config_.max_window_bytes)));
  allowance_.rate = BitRate::bits_per_second(static_cast<uint64_t>(std::min(rate_bps, kMostBps)));
}

void FarController::allow(Time) {
  if (timed_out_) {
    set(8 * packet(), std::max(bps() / 8, 1e5));
    return;
  }
  if (rtt_.least() == Duration{}) {
    allow_start();
    return;
  }
  if (local()) {
    allow_local();
    return;
  }
  if (phase_ == Phase::kStartup) {
    allow_startup();
    return;
  }
  const Duration least = rtt_.least();
  const double slack = 3 * packet() + batch_;
  if (competing_) {
    const double window = cubic_.bytes();
    set(phase_ == Phase::kRefresh ? test_window_ : window,
        1.2 * window * 8 / std::max(smoothed_rtt_, least).to_seconds());
    return;
  }
  double gain = gain_ * cut_;
  Duration room = std::clamp(smoothed_rtt_, least + target(), least + least / 2 + from_ms(10)) +
                  least / 8 + from_ms(1);
  switch (phase_) {
    case Phase::kDrain:
      gain = kDrainGain;
      room = least;
      break;
    case Phase::kProbe:
      gain = probe_gain_;
      room = scaled(room, probe_gain_);
      break;
    case Phase::kRefresh:
      // Below what arrived, so that a policer drops nothing.
      gain = std::min(refresh_gain_, kRefreshShare * (1 - loss_.floor()));
      break;
    default:
      break;
  }
  // With a queue the line carried what it can, and the mean tells what that is; the greatest of
  // the last rounds is for when it did not.
  const Duration aim = std::max(target(), Duration::microseconds(1));
  const double empty = std::clamp(1 - queue_now().to_seconds() / aim.to_seconds(), 0.0, 1.0);
  const double full = config_.background && pressed() ? rates_.last() : rates_.mean();
  const double base = (full + (bps() - full) * empty) / (1 - loss_.floor());
  set(product(wire_bps(), room) * (1 + loss_.floor() / 4) + slack,
      std::max((phase_ == Phase::kCruise ? base : wire_bps()) * gain, kLeastBps));
}

void FarController::allow_start() {
  // Nothing came back yet.
  if (hint_.known()) {
    const double rate = hint_.rate(0);
    set(1.2 * product(rate, config_.initial_rtt), rate);
    return;
  }
  const Duration rtt = config_.initial_rtt > Duration{} ? config_.initial_rtt : kUnknownRtt;
  if (train_left_ > 0) {
    set(static_cast<double>(train_bytes_), 0);
    return;
  }
  set(initial_window(), static_cast<double>(train_bytes_) * 8 / rtt.to_seconds());
}

double FarController::initial_window() const {
  return static_cast<double>(kInitialWindowTrains * train_bytes_);
}

void FarController::allow_startup() {
  const double initial = initial_window();
  const Duration least = rtt_.least();
  if (train_.measuring() && train_left_ > 0) {
    set(initial, 0);
    return;
  }
  const double rate = hint_.rate(std::max(kStartupGain * bps(), initial * 8 / least.to_seconds()));
  const double window =
      std::max(2 * product(bps(), least), hint_.known() ? 1.2 * product(hint_.rate(0), least) : 0);
  set(std::max(initial, window) + batch_, rate);
}

void FarController::allow_local() {
  const double bdp = product(bps(), rtt_.least());
  // What a slow line would need long for is no floor, but a queue.
  double floor = static_cast<double>(config_.local_floor_bytes);
  if (phase_ != Phase::kStartup) {
    floor = std::clamp(product(bps(), kLocalFloorTime), kLeastLocalFloor, floor);
  }
  double window = std::max(
      {floor, std::min(2 * bdp, static_cast<double>(config_.local_ceiling_bytes)), 1.25 * bdp});
  if (local_cap_ > 0) window = std::min(window, local_cap_);
  set(window, 0);
}

}  // namespace farverbs::cc
