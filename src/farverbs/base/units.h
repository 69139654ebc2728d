// BitRate: bits per second, and what a rate means for bytes and time.
#pragma once

#include <compare>
#include <cstdint>

#include "farverbs/base/time.h"

namespace farverbs {

class BitRate {
 public:
  constexpr BitRate() = default;
  static constexpr BitRate bits_per_second(uint64_t n) { return BitRate(n); }
  static constexpr BitRate bytes_in(uint64_t bytes, Duration d) {
    if (d.ns() <= 0) return BitRate(0);
    return BitRate(static_cast<uint64_t>(static_cast<__uint128_t>(bytes) * 8'000'000'000u /
                                         static_cast<uint64_t>(d.ns())));
  }
  constexpr uint64_t bps() const { return bps_; }
  constexpr bool is_zero() const { return bps_ == 0; }

  // How long `bytes` take at this rate; Duration::max() at rate 0.
  constexpr Duration time_for(uint64_t bytes) const {
    if (bps_ == 0) return Duration::max();
    return Duration::nanoseconds(
        static_cast<int64_t>(static_cast<__uint128_t>(bytes) * 8'000'000'000u / bps_));
  }
  // Whole bytes that pass in `d`.
  constexpr uint64_t bytes_for(Duration d) const {
    if (d.ns() <= 0) return 0;
    return static_cast<uint64_t>(static_cast<__uint128_t>(bps_) * static_cast<uint64_t>(d.ns()) /
                                 8'000'000'000u);
  }
  constexpr auto operator<=>(const BitRate&) const = default;

 private:
  constexpr explicit BitRate(uint64_t n) : bps_(n) {}
  uint64_t bps_ = 0;
};

}  // namespace farverbs
