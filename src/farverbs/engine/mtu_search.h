// MtuSearch: what datagram size a path carries, found by probes (DPLPMTUD, RFC 8899) and taken back
// when full packets stop arriving. Sizes are UDP payload bytes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "farverbs/base/time.h"

namespace farverbs::engine {

class MtuSearch {
 public:
  // IP packets of 1,280 bytes pass everywhere (RFC 8200 section 5); less headers.
  static constexpr uint32_t base_bytes(bool ipv4) { return 1'280 - (ipv4 ? 20 : 40) - 8; }

  // `ceiling`: what the local interface lets out.
  MtuSearch(bool ipv4, uint32_t ceiling)
      : base_(std::min(base_bytes(ipv4), ceiling) & ~3u),
        ceiling_(ceiling & ~3u),
        datagram_(base_),
        low_(base_),
        high_(ceiling_) {}

  uint32_t datagram_bytes() const { return datagram_; }
  // The size to be tried now; 0: none.
  uint32_t probe(Time now) {
    if (outstanding_ != 0 && now - sent_ < kPatience) return 0;
    if (outstanding_ != 0) on_lost(now);
    if (low_ >= high_) {
      if (low_ >= ceiling_ || now < again_) return 0;
      high_ = ceiling_;  // the path may have changed
      tries_ = 0;
    }
    // The interface's own size first: it is mostly right.
    const uint32_t middle = (low_ + (high_ - low_ + 1) / 2 + 3) & ~3u;
    return high_ == ceiling_ || high_ - low_ <= kStep ? high_ : middle;
  }
  void on_probe_sent(Time now, uint32_t bytes) {
    outstanding_ = bytes;
    sent_ = now;
  }
  void on_arrived(Time now, uint32_t bytes) {
    outstanding_ = 0;
    tries_ = 0;
    if (bytes <= low_ || bytes > high_) return;
    datagram_ = low_ = bytes;
    settle(now);
  }
  void on_lost(Time now) {
    const uint32_t bytes = outstanding_;
    outstanding_ = 0;
    if (bytes == 0 || ++tries_ < kTries) return;
    tries_ = 0;
    high_ = bytes <= low_ + kStep ? low_ : bytes - 4;
    if (high_ < low_) high_ = low_;
    settle(now);
  }
  // Nothing larger than the least seems to arrive: begin again from there.
  void on_black_hole(Time) {
    datagram_ = low_ = base_;
    high_ = ceiling_;
    outstanding_ = 0;
    tries_ = 0;
  }

 private:
  static constexpr uint32_t kStep = 16;
  static constexpr uint32_t kTries = 3;
  static constexpr Duration kPatience = Duration::seconds(5);
  static constexpr Duration kAgain = Duration::seconds(600);

  void settle(Time now) {
    if (high_ - low_ < kStep) high_ = low_;
    if (low_ >= high_) again_ = now + kAgain;
  }

  uint32_t base_;
  uint32_t ceiling_;
  uint32_t datagram_;
  uint32_t low_;   // arrives
  uint32_t high_;  // might
  uint32_t outstanding_ = 0;
  uint32_t tries_ = 0;
  Time sent_;
  Time again_;
};

}  // namespace farverbs::engine
