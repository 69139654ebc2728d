#include "farverbs/cc/cubic_window.h"

#include <algorithm>
#include <cmath>

namespace farverbs::cc {
namespace {

constexpr double kC = 0.4;  // packets per cubic second
// Growth of Reno with the same average window at a decrease of 0.7 (RFC 9438, section 4.3).
constexpr double kRenoGrowth = 3 * (1 - CubicWindow::kBeta) / (1 + CubicWindow::kBeta);

}  // namespace

void CubicWindow::start(Time now, double window_bytes) {
  window_ = greatest_ = reno_ = window_bytes;
  k_ = 0;
  epoch_ = now;
  before_window_ = 0;
}

void CubicWindow::on_acknowledged(Time now, uint64_t bytes, Duration rtt) {
  const double acked = static_cast<double>(bytes);
  reno_ += (reno_ < greatest_ ? kRenoGrowth : 1.0) * packet_ * acked / window_;
  const double t = (now - epoch_ + rtt).to_seconds() - k_;
  const double target = greatest_ + kC * t * t * t * packet_;
  if (target > window_) {
    window_ += (std::min(target, 1.5 * window_) - window_) * std::min(1.0, acked / window_);
  }
  window_ = std::max(window_, reno_);
}

void CubicWindow::on_congestion(Time now) {
  before_window_ = window_;
  before_greatest_ = greatest_;
  // Fast convergence: who has to yield again before it was back gives room.
  greatest_ = window_ < greatest_ ? window_ * (1 + kBeta) / 2 : window_;
  window_ = std::max(window_ * kBeta, 2 * packet_);
  reno_ = window_;
  k_ = std::cbrt(std::max(0.0, greatest_ - window_) / packet_ / kC);
  epoch_ = now;
}

void CubicWindow::undo() {
  if (before_window_ <= window_) return;
  window_ = reno_ = before_window_;
  greatest_ = std::max(before_greatest_, before_window_);
  before_window_ = 0;
}

}  // namespace farverbs::cc
