// LatencyHistogram: times counted in buckets whose width is at most 1/128 of their value, so that
// percentiles of any number of samples cost constant memory, no allocation while measuring and less
// than one percent of error. Below 256 ns it is exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "farverbs/base/time.h"

namespace farverbs::tools {

class LatencyHistogram {
 public:
  LatencyHistogram();

  // Negative times count as zero.
  void add(Duration sample);
  void clear();

  uint64_t count() const { return count_; }
  // All of these are zero without samples.
  Duration min() const { return count_ == 0 ? Duration() : Duration::nanoseconds(min_); }
  Duration max() const { return Duration::nanoseconds(max_); }
  Duration mean() const;
  // The smallest time that at least this part (0 to 1) of the samples did not exceed, up to the
  // bucket's width; 0 gives min(), 1 gives max().
  Duration quantile(double part) const;

 private:
  static constexpr unsigned kSubBits = 7;  // 128 buckets per power of two
  static size_t bucket_of(uint64_t ns);
  static uint64_t highest_in(size_t bucket);

  std::vector<uint64_t> buckets_;
  uint64_t count_ = 0;
  double sum_ns_ = 0;
  int64_t min_ = 0;
  int64_t max_ = 0;
};

}  // namespace farverbs::tools
