#include "farverbs/cc/path_control.h"

#include <algorithm>

namespace farverbs::cc {
namespace {

// Longer ones leave the site.
constexpr Duration kShort = Duration::milliseconds(1);
// One mark can be anybody's mistake.
constexpr uint64_t kMarkedPackets = 4;
// What a path delivered before it was marked is about what it can: some more as its line's rate.
constexpr uint64_t kLeastLine = 1'000'000'000;

}  // namespace

PathControl::PathControl(const FarConfig& config, ControlChoice choice)
    : packet_bytes_(config.packet_bytes), choice_(choice), far_(config) {
  if (choice == ControlChoice::kDataCentre) become_data_centre();
}

void PathControl::become_data_centre() {
  DcqcnConfig config;
  config.packet_bytes = packet_bytes_;
  const uint64_t seen = far_.bandwidth().bps();
  if (seen > 0) {
    config.line_rate = BitRate::bits_per_second(std::max(seen + seen / 2, kLeastLine));
  }
  dcqcn_.emplace(config);
}

void PathControl::on_sent(Time now, uint64_t bytes, uint64_t inflight_bytes) {
  if (dcqcn_.has_value()) return dcqcn_->on_sent(now, bytes, inflight_bytes);
  far_.on_sent(now, bytes, inflight_bytes);
}

void PathControl::on_feedback(const Sample& sample) {
  if (!dcqcn_.has_value()) {
    far_.on_feedback(sample);
    marked_bytes_ += sample.congestion_marked_bytes;
    const bool marked = marked_bytes_ >= kMarkedPackets * packet_bytes_;
    const bool is_short = far_.min_rtt() > Duration() && far_.min_rtt() < kShort;
    if (choice_ != ControlChoice::kBySigns || !marked || !is_short) return;
    become_data_centre();
  }
  dcqcn_->on_feedback(sample);
}

void PathControl::on_timeout(Time now) {
  if (dcqcn_.has_value()) return dcqcn_->on_timeout(now);
  far_.on_timeout(now);
}

Allowance PathControl::allowance() const {
  return dcqcn_.has_value() ? dcqcn_->allowance() : far_.allowance();
}

}  // namespace farverbs::cc
