// Timeline: how many bytes had been confirmed in each step of time from the connection on, warm-up
// included, so that a ramp can be seen.
#pragma once

#include <cstdint>
#include <vector>

#include "farverbs/base/time.h"

namespace farverbs::tools::perf {

class Timeline {
 public:
  // A step of zero: nothing is recorded.
  explicit Timeline(Duration step) : step_(step) {}

  void begin(Time now) { begin_ = now; }
  // `total` bytes are confirmed at `now`; what came since the last call counts as of now.
  void note(Time now, uint64_t total) {
    if (step_ <= Duration() || total == total_) return;
    const auto at = static_cast<size_t>((now - begin_).ns() / step_.ns());
    if (at >= kMost) return;
    if (bytes_.size() <= at) bytes_.resize(at + 1, 0);
    bytes_[at] += total - total_;
    total_ = total;
  }

  Duration step() const { return step_; }
  const std::vector<uint64_t>& bytes() const { return bytes_; }

 private:
  static constexpr size_t kMost = 1'000'000;

  Duration step_;
  Time begin_;
  uint64_t total_ = 0;
  std::vector<uint64_t> bytes_;
};

}  // namespace farverbs::tools::perf
