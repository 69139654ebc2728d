// What the AETH's syndrome says (IBTA volume 1, chapter 9.7.5.1.2 and tables 46 to 48): ACK with
// end-to-end credits, RNR NAK with a timer, or NAK with a code.
#pragma once

#include <array>
#include <cstdint>

#include "farverbs/base/time.h"

namespace farverbs::wire {

enum class SyndromeKind : uint8_t { ack = 0, rnr_nak = 1, reserved = 2, nak = 3 };

enum class NakCode : uint8_t {
  psn_sequence_error = 0,
  invalid_request = 1,
  remote_access_error = 2,
  remote_operational_error = 3,
  invalid_rd_request = 4,
};

inline constexpr uint8_t kNoCredit = 31;  // ACK credit code: the responder does not count credits

class Syndrome {
 public:
  constexpr explicit Syndrome(uint8_t byte) : byte_(byte) {}
  static constexpr Syndrome ack(uint8_t credit_code = kNoCredit) {
    return Syndrome(credit_code & 0x1f);
  }
  static constexpr Syndrome rnr_nak(uint8_t timer_code) {
    return Syndrome(static_cast<uint8_t>(0x20 | (timer_code & 0x1f)));
  }
  static constexpr Syndrome nak(NakCode code) {
    return Syndrome(static_cast<uint8_t>(0x60 | (static_cast<uint8_t>(code) & 0x1f)));
  }

  constexpr uint8_t byte() const { return byte_; }
  // A syndrome with the reserved top bit set is `reserved`, whatever follows.
  constexpr SyndromeKind kind() const {
    return (byte_ & 0x80) != 0 ? SyndromeKind::reserved
                               : static_cast<SyndromeKind>((byte_ >> 5) & 3);
  }
  constexpr uint8_t value() const { return byte_ & 0x1f; }  // credit code, timer code or NAK code
  constexpr NakCode nak_code() const { return static_cast<NakCode>(value()); }
  constexpr bool operator==(const Syndrome&) const = default;

 private:
  uint8_t byte_;
};

// Receives that a credit code stands for; code 31 stands for "not counted" and gives 0: test for
// kNoCredit first.
constexpr uint32_t credits_of(uint8_t code) {
  code &= 0x1f;
  if (code == kNoCredit) return 0;
  if (code < 4) return code;
  const uint32_t doubling = (code - 2u) / 2;  // 4, 6, 8, 12, 16, 24, ...
  return (code % 2 == 0 ? 2u : 3u) << doubling;
}

// The largest code that promises no more than `credits` receives.
constexpr uint8_t credit_code_for(uint32_t credits) {
  uint8_t code = 30;
  while (credits_of(code) > credits) --code;
  return code;
}

// RNR NAK timer codes in steps of 10 us. Code 0 is the longest, not zero.
inline constexpr std::array<uint32_t, 32> kRnrTimerTensOfMicroseconds = {
    65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

constexpr Duration rnr_delay(uint8_t timer_code) {
  return Duration::microseconds(int64_t{kRnrTimerTensOfMicroseconds[timer_code & 0x1f]} * 10);
}

// The code with the shortest delay that is at least `delay`; the longest one if none is.
constexpr uint8_t rnr_timer_code_for(Duration delay) {
  for (uint8_t code = 1; code < 32; ++code) {
    if (rnr_delay(code) >= delay) return code;
  }
  return 0;
}

}  // namespace farverbs::wire
