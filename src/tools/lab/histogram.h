// Histogram: counts of durations in buckets a sixteenth of a power of two wide (quantiles are right
// within 6%). Plain memory that may lie in a mapping shared with another process.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "farverbs/base/time.h"

namespace farverbs::tools::lab {

class Histogram {
 public:
  // Negative durations count as zero.
  void add(Duration d) {
    const auto value = static_cast<uint64_t>(d.ns() > 0 ? d.ns() : 0);
    ++counts_[bucket(value)];
    ++total_;
  }
  uint64_t total() const { return total_; }
  // The duration that a share `q` (0 to 1) of the samples does not exceed; zero without samples.
  Duration quantile(double q) const {
    const auto rank = static_cast<uint64_t>(q * static_cast<double>(total_));
    uint64_t below = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      below += counts_[i];
      if (counts_[i] > 0 && below > rank) return middle(i);
    }
    for (size_t i = counts_.size(); i-- > 0;) {
      if (counts_[i] > 0) return middle(i);
    }
    return Duration();
  }

 private:
  static size_t bucket(uint64_t value) {
    if (value < 16) return value;
    const auto exponent = static_cast<size_t>(63 - std::countl_zero(value));
    return (exponent - 3) * 16 + ((value >> (exponent - 4)) & 15);
  }
  static Duration middle(size_t index) {
    if (index < 16) return Duration::nanoseconds(static_cast<int64_t>(index));
    const size_t shift = index / 16 - 1;
    const uint64_t low = (16 + index % 16) << shift;
    return Duration::nanoseconds(static_cast<int64_t>(low + ((uint64_t{1} << shift) / 2)));
  }

  std::array<uint64_t, 16 * 61> counts_{};
  uint64_t total_ = 0;
};

}  // namespace farverbs::tools::lab
