#include "farverbs/cc/train_estimate.h"

#include <algorithm>

namespace farverbs::cc {
namespace {

// Shorter spans are the granularity of wake-ups and merges rather than of the bottleneck.
constexpr Duration kLeastSpan = Duration::microseconds(200);
constexpr uint32_t kLeastAcknowledgements = 1;

}  // namespace

bool TrainEstimate::on_delivered(Time now, uint64_t delivered, uint64_t inflight) {
  if (!started_) return false;
  if (inflight > bytes_) {
    // What follows the train is paced.
    started_ = false;
    return true;
  }
  if (!seen_) {
    seen_ = true;
    first_ = now;
    first_delivered_ = delivered;
  } else if (now - first_ >= kLeastSpan) {
    // The last acknowledgement may have waited for more packets that did not come; the best of the
    // later part is not spoiled by it.
    ++acknowledgements_;
    const uint64_t gained = delivered - first_delivered_;
    if (acknowledgements_ >= kLeastAcknowledgements && gained >= bytes_ / 4) {
      best_ = std::max(best_, BitRate::bytes_in(gained, now - first_));
    }
  }
  // Some may have been lost on the way.
  if (delivered - begin_ < bytes_ * 3 / 4) return false;
  started_ = false;
  return true;
}

}  // namespace farverbs::cc
