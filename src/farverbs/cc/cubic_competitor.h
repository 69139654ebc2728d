// A kernel TCP with CUBIC, as far as the tests need one: slow start with HyStart's delay exit, the
// law of RFC 9438, one decrease per round trip, no pacing.
#pragma once

#include <algorithm>

#include "farverbs/cc/controller.h"
#include "farverbs/cc/cubic_window.h"

namespace farverbs::cc {

class CubicCompetitor final : public Controller {
 public:
  explicit CubicCompetitor(uint64_t packet_bytes = 1472)
      : packet_(packet_bytes), law_(packet_bytes), window_(10.0 * static_cast<double>(packet_)) {}

  void on_sent(Time, uint64_t, uint64_t) override {}
  void on_timeout(Time) override {
    slow_ = true;
    window_ = static_cast<double>(packet_);
  }
  Allowance allowance() const override { return {static_cast<uint64_t>(window_), BitRate{}}; }
  void on_feedback(const Sample& sample) override {
    if (sample.has_rtt) least_ = std::min(least_, sample.rtt);
    if (sample.prior_delivered_bytes >= round_end_) {
      round_end_ = sample.delivered_bytes;
      round_least_ = Duration::max();
      samples_ = 0;
    }
    if (sample.has_rtt) {
      round_least_ = std::min(round_least_, sample.rtt);
      ++samples_;
    }
    if (sample.lost_bytes > 0 && sample.prior_delivered_bytes >= recovery_end_) {
      // What is told lost later was sent up to here as well.
      recovery_end_ = sample.delivered_bytes + sample.inflight_bytes / 2;
      if (slow_) law_.start(sample.now, window_);
      slow_ = false;
      law_.on_congestion(sample.now);
      window_ = law_.bytes();
      return;
    }
    if (slow_) {
      window_ += static_cast<double>(sample.acked_bytes);
      const Duration rise =
          std::clamp(least_ / 8, Duration::milliseconds(4), Duration::milliseconds(16));
      if (samples_ >= 8 && round_least_ > least_ + rise) {
        slow_ = false;
        law_.start(sample.now, window_);
      }
    } else if (static_cast<double>(sample.inflight_bytes + sample.acked_bytes) >= 0.8 * window_) {
      law_.on_acknowledged(sample.now, sample.acked_bytes, least_);
      window_ = law_.bytes();
    }
  }

 private:
  uint64_t packet_;
  CubicWindow law_;
  double window_;
  bool slow_ = true;
  Duration least_ = Duration::max();
  Duration round_least_ = Duration::max();
  int samples_ = 0;
  uint64_t round_end_ = 0;
  uint64_t recovery_end_ = 0;
};

}  // namespace farverbs::cc
