#include "farverbs/cc/path_model.h"

#include <algorithm>
#include <cmath>

namespace farverbs::cc {
namespace {

// Packets after which half is forgotten.
constexpr double kOrdinaryHorizon = 4000;
constexpr double kLowHorizon = 8000;
// More than this is never taken for chance.
constexpr double kMostFloor = 0.25;
constexpr double kWorthKnowing = 0.004;
// A change of the queue that is seen for sure, and the intervals (quarters of a round trip) it
// takes at least. After the most it should be gone in any case.
constexpr size_t kLeastIntervals = 16;
constexpr size_t kMostIntervals = 60;
constexpr Duration kLeastChange = Duration::from_seconds(0.0015);
constexpr double kForeignShare = 0.3;

}  // namespace

bool LeastRtt::add(Time now, Duration rtt) {
  if (now - since_ >= kSpan && now >= held_until_) {
    since_ = now;
    at_ = (at_ + 1) % buckets_.size();
    buckets_[at_] = Duration::max();
  }
  const bool good = rtt <= least_ + least_ / 64 + Duration::microseconds(50);
  buckets_[at_] = std::min(buckets_[at_], rtt);
  least_ = *std::min_element(buckets_.begin(), buckets_.end());
  if (!good && rtt != least_) return false;
  better_ = now;
  return true;
}

void LeastRtt::restart(Time now, Duration rtt) {
  buckets_.fill(Duration::max());
  buckets_[at_] = least_ = rtt;
  since_ = now;
  held_until_ = {};
}

double QueueWitness::share(const View& from, const View& to, double bps) {
  const double less = static_cast<double>(from.inflight) - static_cast<double>(to.inflight);
  const double expected = less * 8 / bps;
  if (expected <= 0) return 0;
  return (from.queue - to.queue).to_seconds() / expected;
}

void QueueWitness::add(Duration queue, uint64_t inflight, double bps, double batch_bytes,
                       double chance_bytes) {
  to_ = {queue, inflight, bps};
  batch_ = batch_bytes;
  chance_ = chance_bytes;
  if (count_ == 0 || count_ >= kMostIntervals) {
    from_ = to_;
    count_ = 0;
  }
  ++count_;
}

bool QueueWitness::foreign() const {
  if (count_ < kLeastIntervals) return false;
  const double less = static_cast<double>(from_.inflight) - static_cast<double>(to_.inflight);
  if (count_ >= kMostIntervals) return less > chance_ && to_.queue > from_.queue * 3 / 4;
  if (less < batch_ + chance_ || less * 8 / to_.bps < kLeastChange.to_seconds()) return false;
  return share(from_, to_, to_.bps) < kForeignShare;
}

double RoundRates::greatest() const { return *std::max_element(rates_.begin(), rates_.end()); }

double RoundRates::mean() const {
  double sum = 0;
  int count = 0;
  for (const double bps : rates_) {
    sum += bps;
    count += bps > 0 ? 1 : 0;
  }
  return count > 0 ? sum / count : 0;
}

void LossFloor::Count::add(double acked, double gone, double horizon) {
  total += acked + gone;
  lost += gone;
  if (total > horizon) {
    const double keep = horizon / total;
    total *= keep;
    lost *= keep;
  }
}

void LossFloor::add(double acked, double lost, bool low) {
  (low ? low_ : ordinary_).add(acked, lost, low ? kLowHorizon : kOrdinaryHorizon);
}

void LossFloor::begin_low() {
  low_.total /= 2;
  low_.lost /= 2;
}

double LossFloor::ordinary() const { return ordinary_.share(); }

double LossFloor::floor() const {
  double share = ordinary_.share();
  if (low_.total >= kLeastLow) {
    // Two standard deviations of what few packets can tell.
    const double noise = 2 * std::sqrt(std::max(low_.lost, 1.0)) / low_.total;
    share = std::min(share, low_.share() + noise);
  }
  return std::clamp(share, 0.0, kMostFloor);
}

bool LossFloor::wants_low() const {
  return ordinary_.total >= 200 && ordinary_.share() > kWorthKnowing &&
         (low_.total < kLeastLow || ordinary_.share() > floor() + kWorthKnowing);
}

}  // namespace farverbs::cc
