#include "tools/common/latency_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace farverbs::tools {

// Values below 2^(kSubBits+1) have a bucket each; above, each power of two has 2^kSubBits of them.
size_t LatencyHistogram::bucket_of(uint64_t ns) {
  const unsigned width = static_cast<unsigned>(std::bit_width(ns));
  if (width <= kSubBits + 1) return static_cast<size_t>(ns);
  const unsigned shift = width - (kSubBits + 1);
  return (static_cast<size_t>(shift) << kSubBits) + static_cast<size_t>(ns >> shift);
}

uint64_t LatencyHistogram::highest_in(size_t bucket) {
  if (bucket < (size_t{2} << kSubBits)) return bucket;
  const unsigned shift = static_cast<unsigned>(bucket >> kSubBits) - 1;
  const uint64_t top = bucket - (static_cast<size_t>(shift) << kSubBits);
  return ((top + 1) << shift) - 1;
}

LatencyHistogram::LatencyHistogram() : buckets_((64 - kSubBits + 1) << kSubBits, 0) {}

void LatencyHistogram::add(Duration sample) {
  const int64_t ns = std::max<int64_t>(sample.ns(), 0);
  min_ = count_ == 0 ? ns : std::min(min_, ns);
  max_ = std::max(max_, ns);
  sum_ns_ += static_cast<double>(ns);
  ++count_;
  ++buckets_[bucket_of(static_cast<uint64_t>(ns))];
}

void LatencyHistogram::clear() { *this = LatencyHistogram(); }

Duration LatencyHistogram::mean() const {
  if (count_ == 0) return {};
  return Duration::nanoseconds(std::llround(sum_ns_ / static_cast<double>(count_)));
}

Duration LatencyHistogram::quantile(double part) const {
  if (count_ == 0) return {};
  if (part <= 0) return min();
  const auto wanted = static_cast<uint64_t>(
      std::clamp(std::ceil(part * static_cast<double>(count_)), 1.0, static_cast<double>(count_)));
  uint64_t seen = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen >= wanted) {
      return Duration::nanoseconds(std::clamp(static_cast<int64_t>(highest_in(i)), min_, max_));
    }
  }
  return max();
}

}  // namespace farverbs::tools
