#include "farverbs/cc/pacer.h"

#include <algorithm>
#include <limits>

namespace farverbs::cc {
namespace {

// Bursts this far apart cost a few percent of a core (at 1 Gb/s 6 %, against 25 % with bursts of 8
// packets), and are short against any path that is paced.
constexpr Duration kBurstInterval = Duration::microseconds(500);
// One GSO super-buffer of 1 KB packets.
constexpr uint64_t kMostSegments = 62;
// A sleeping thread wakes 60 to 120 us late, at times 600. What it missed within this long may be
// caught up; more would be a burst that the path's queue has to take. Only a sender that was told
// to wait has missed anything: one that had nothing to send, or no window, may begin with one
// burst.
constexpr Duration kCatchUp = Duration::milliseconds(1);

}  // namespace

uint64_t Pacer::burst_bytes() const {
  return std::clamp<uint64_t>(rate_.bytes_for(kBurstInterval), segment_bytes_,
                              kMostSegments * segment_bytes_);
}

int64_t Pacer::most_credit() const {
  return static_cast<int64_t>(burst_bytes() + (waiting_ ? rate_.bytes_for(kCatchUp) : 0));
}

void Pacer::earn(Time now) {
  if (now <= earned_until_) return;
  const int64_t room = std::max<int64_t>(0, most_credit() - credit_);
  const auto earned = static_cast<int64_t>(rate_.bytes_for(now - earned_until_));
  if (earned >= room) {
    credit_ += room;
    earned_until_ = now;
    return;
  }
  if (earned <= 0) return;
  credit_ += earned;
  // Only the time that whole bytes took is used up, so that nothing is lost to rounding.
  earned_until_ = std::min(now, earned_until_ + rate_.time_for(static_cast<uint64_t>(earned)));
}

void Pacer::set_rate(Time now, BitRate rate) {
  if (rate == rate_) return;
  if (!started_ || rate_.is_zero()) {
    // The first burst may leave at once.
    rate_ = rate;
    credit_ = static_cast<int64_t>(burst_bytes());
    earned_until_ = now;
    started_ = true;
    return;
  }
  if (!rate.is_zero()) earn(now);
  rate_ = rate;
  credit_ = std::min(credit_, most_credit());
  earned_until_ = std::max(earned_until_, now);
}

uint64_t Pacer::available(Time now, uint64_t wanted) {
  if (rate_.is_zero()) return std::numeric_limits<uint64_t>::max();
  earn(now);
  const uint64_t least = std::min(wanted, burst_bytes());
  if (credit_ <= 0 || static_cast<uint64_t>(credit_) < least) {
    waiting_ = true;
    return 0;
  }
  return static_cast<uint64_t>(credit_);
}

Time Pacer::next(Time now, uint64_t wanted) {
  if (rate_.is_zero()) return now;
  earn(now);
  const auto least = static_cast<int64_t>(std::min(wanted, burst_bytes()));
  if (credit_ >= least) return now;
  waiting_ = true;
  // One nanosecond more, because both divisions round down.
  return std::max(now, earned_until_ + rate_.time_for(static_cast<uint64_t>(least - credit_)) +
                           Duration::nanoseconds(1));
}

void Pacer::charge(Time now, uint64_t bytes) {
  if (rate_.is_zero()) return;
  earn(now);
  credit_ -= static_cast<int64_t>(bytes);
}

void Pacer::on_sent(Time now, uint64_t bytes) {
  if (rate_.is_zero()) return;
  earn(now);
  waiting_ = false;
  credit_ -= static_cast<int64_t>(bytes);
}

}  // namespace farverbs::cc
