#include "farverbs/cc/dcqcn.h"

#include <algorithm>
#include <limits>

namespace farverbs::cc {
namespace {

constexpr double kLossCut = 0.5;
// What is this close to the line's rate is not worth pacing.
constexpr double kAsGoodAsLine = 0.99;
// Intervals without feedback that are made up for at once, at most.
constexpr int kMostIntervals = 64;
// Pacing is by bursts of half a millisecond; that and the round trip bound what is in flight.
constexpr Duration kBurst = Duration::microseconds(500);

}  // namespace

Dcqcn::Dcqcn(const DcqcnConfig& config)
    : config_(config),
      rate_(static_cast<double>(config.line_rate.bps())),
      target_(static_cast<double>(config.line_rate.bps())) {}

BitRate Dcqcn::rate() const { return BitRate::bits_per_second(static_cast<uint64_t>(rate_)); }

Duration Dcqcn::interval() const { return std::max(config_.interval, min_rtt_); }

void Dcqcn::on_sent(Time now, uint64_t bytes, uint64_t) {
  if (!limited_) return;
  bytes_ += bytes;
  if (bytes_ >= config_.bytes_per_step) {
    bytes_ -= config_.bytes_per_step;
    step(++byte_stage_, time_stage_);
  }
  pass_time(now);
}

void Dcqcn::on_feedback(const Sample& sample) {
  if (sample.has_rtt && sample.rtt > Duration{}) {
    const bool first = min_rtt_ == Duration{};
    min_rtt_ = first ? sample.rtt : std::min(min_rtt_, sample.rtt);
    smoothed_rtt_ = first ? sample.rtt : smoothed_rtt_ + (sample.rtt - smoothed_rtt_) / 8;
  }
  pass_time(sample.now);
  acked_bytes_ += sample.acked_bytes;
  marked_bytes_ += sample.congestion_marked_bytes;
  if (sample.congestion_marked_bytes > 0) cut(sample.now, alpha_ / 2);
  // A queue that overflowed although it marks.
  if (sample.lost_bytes > sample.spurious_bytes) cut(sample.now, kLossCut);
}

void Dcqcn::cut(Time now, double share) {
  // What is marked within a round trip of a cut left before it.
  if (limited_ && now - cut_at_ < std::max(interval(), smoothed_rtt_)) return;
  if (!ever_limited_) alpha_at_ = now;
  limited_ = ever_limited_ = true;
  cut_at_ = now;
  target_ = rate_;
  rate_ = std::max(rate_ * (1 - share), static_cast<double>(config_.least_rate.bps()));
  time_stage_ = byte_stage_ = 0;
  bytes_ = 0;
  stage_at_ = now;
}

// Each interval alpha follows what was marked, and each interval without a cut is a step back up.
void Dcqcn::pass_time(Time now) {
  if (!ever_limited_) return;
  const Duration length = interval();
  for (int i = 0; i < kMostIntervals && now - alpha_at_ >= length; ++i) {
    alpha_at_ = alpha_at_ + length;
    const double share =
        acked_bytes_ > 0 ? static_cast<double>(marked_bytes_) / static_cast<double>(acked_bytes_)
                         : 0;
    alpha_ += config_.alpha_gain * (std::min(share, 1.0) - alpha_);
    acked_bytes_ = marked_bytes_ = 0;
  }
  if (now - alpha_at_ >= length) alpha_at_ = now;
  if (!limited_) return;
  const Duration pause = std::max(config_.step_interval, min_rtt_);
  for (int i = 0; i < kMostIntervals && now - stage_at_ >= pause; ++i) {
    stage_at_ = stage_at_ + pause;
    step(++time_stage_, byte_stage_);
  }
  if (now - stage_at_ >= pause) stage_at_ = now;
}

void Dcqcn::step(uint32_t stage, uint32_t other_stage) {
  const uint32_t most = std::max(stage, other_stage);
  const uint32_t least = std::min(stage, other_stage);
  if (most > config_.fast_recovery_steps) {
    const bool hyper = least > config_.fast_recovery_steps;
    target_ += static_cast<double>((hyper ? config_.hyper_step : config_.additive_step).bps());
  }
  const auto line = static_cast<double>(config_.line_rate.bps());
  target_ = std::min(target_, line);
  rate_ = (rate_ + target_) / 2;
  if (rate_ >= kAsGoodAsLine * line) {
    rate_ = target_ = line;
    limited_ = false;
  }
}

void Dcqcn::on_timeout(Time now) {
  cut_at_ = Time::from_ns(std::numeric_limits<int64_t>::min() / 2);
  cut(now, kLossCut);
}

Allowance Dcqcn::allowance() const {
  const uint64_t flight = rate().bytes_for(min_rtt_ * 2 + kBurst);
  const uint64_t window = std::max(config_.max_window_bytes, flight);
  return {std::max(window, 4 * config_.packet_bytes), limited_ ? rate() : BitRate{}};
}

}  // namespace farverbs::cc
