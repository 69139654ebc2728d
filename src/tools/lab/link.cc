#include "tools/lab/link.h"

#include <algorithm>

namespace farverbs::tools::lab {

// Gilbert and Elliott's two-state chain with a bad state that loses all: runs of mean length
// `burst`, entered so often that the share of lost packets is `loss`.
Link::Link(const LinkConfig& config)
    : config_(config),
      loss_(config.seed * 8 + 1),
      order_(config.seed * 8 + 2),
      copies_(config.seed * 8 + 3),
      errors_(config.seed * 8 + 4),
      jitter_(config.seed * 8 + 5) {
  change(config);
  wander_end_ = jitter_.unit();
}

void Link::change(const LinkConfig& config) {
  config_ = config;
  leave_burst_ = 1 / std::max(config.burst, 1.0);
  enter_burst_ =
      config.loss < 1 ? std::min(1.0, config.loss * leave_burst_ / (1 - config.loss)) : 1;
  // A change of half the jitter per jitter's length keeps packets in order by itself.
  wander_period_ = std::max(config.jitter * 2, Duration::milliseconds(1));
}

uint64_t Link::backlog(Time now) const { return config_.rate.bytes_for(busy_until_ - now); }

Fate Link::offer(Time now, uint32_t bytes) {
  Fate fate;
  if (config_.down) {
    fate.lost = true;
    return fate;
  }
  Time sent = now;
  if (!config_.rate.is_zero()) {
    const uint64_t waiting = backlog(now);
    const uint64_t frame = uint64_t{bytes} + kFrameOverhead;
    // An idle link takes a packet whatever the queue's size: it goes straight onto the wire.
    if (waiting > 0 && waiting + frame > config_.queue_bytes) {
      fate.queue_drop = true;
      return fate;
    }
    fate.mark = config_.ecn_bytes > 0 && waiting > config_.ecn_bytes;
    const Time start = std::max(now, busy_until_);
    fate.queued = start - now;
    busy_until_ = sent = start + config_.rate.time_for(frame);
  }
  fate.lost = draw_loss();
  if (config_.reorder > 0) fate.late = order_.chance(config_.reorder);
  if (config_.duplicate > 0) fate.duplicate = copies_.chance(config_.duplicate);
  if (config_.corrupt > 0) {
    fate.corrupt = errors_.chance(config_.corrupt);
    if (fate.corrupt) fate.noise = static_cast<uint32_t>(errors_.next());
  }
  const Time due = std::max(last_due_, sent + config_.delay + wander(sent));
  last_due_ = due;
  fate.due = fate.late ? due + config_.reorder_by : due;
  return fate;
}

bool Link::draw_loss() {
  if (config_.loss <= 0) return false;
  if (config_.burst <= 1) return loss_.chance(config_.loss);
  in_burst_ = loss_.chance(in_burst_ ? 1 - leave_burst_ : enter_burst_);
  return in_burst_;
}

// Straight lines between random points, one every period.
Duration Link::wander(Time now) {
  if (config_.jitter <= Duration()) return Duration();
  while (now >= wander_from_ + wander_period_) {
    const int64_t behind = (now - wander_from_).ns() / wander_period_.ns();
    wander_from_ = wander_from_ + wander_period_ * behind;
    wander_start_ = wander_end_;
    wander_end_ = jitter_.unit();
  }
  const double along =
      static_cast<double>((now - wander_from_).ns()) / static_cast<double>(wander_period_.ns());
  const double share = wander_start_ + (wander_end_ - wander_start_) * std::max(along, 0.0);
  return Duration::from_seconds(share * config_.jitter.to_seconds());
}

}  // namespace farverbs::tools::lab
