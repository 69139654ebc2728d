// The transport's identifiers as types of their own: Psn (24 bits, serial arithmetic, IBTA vol. 1
// chapter 9.7.1), Qpn (24 bits), MemoryKey (an L_Key or R_Key, 32 bits), and PacketNumber, the
// 64-bit count behind a Psn that never wraps inside a QP.
#pragma once

#include <compare>
#include <cstdint>

namespace farverbs {

// A PSN extended to 64 bits: the order of packets inside a QP without wrap-around.
using PacketNumber = uint64_t;

class Psn {
 public:
  static constexpr uint32_t kMask = 0xFF'FFFF;
  constexpr Psn() = default;
  constexpr explicit Psn(uint64_t value) : value_(static_cast<uint32_t>(value) & kMask) {}
  constexpr uint32_t value() const { return value_; }
  constexpr bool operator==(const Psn&) const = default;
  friend constexpr Psn operator+(Psn p, uint32_t n) { return Psn(p.value_ + n); }

  // a - b in -2^23 .. 2^23-1.
  friend constexpr int32_t operator-(Psn a, Psn b) {
    return static_cast<int32_t>((a.value_ - b.value_) << 8) >> 8;
  }

  // The packet number nearest to `reference` that has this PSN.
  constexpr PacketNumber extend(PacketNumber reference) const {
    return reference + static_cast<int64_t>(*this - Psn(reference));
  }

 private:
  uint32_t value_ = 0;
};

class Qpn {
 public:
  static constexpr uint32_t kMask = 0xFF'FFFF;
  constexpr Qpn() = default;
  constexpr explicit Qpn(uint32_t value) : value_(value & kMask) {}
  constexpr uint32_t value() const { return value_; }
  // The owner's slot: the top byte, which steers datagrams between the processes of one address.
  constexpr uint8_t slot() const { return static_cast<uint8_t>(value_ >> 16); }
  constexpr auto operator<=>(const Qpn&) const = default;

 private:
  uint32_t value_ = 0;
};

inline constexpr Qpn kManagementQpn{1};         // QP1, the general services interface
inline constexpr Qpn kMulticastQpn{0xFF'FFFF};  // destination of multicast datagrams

class MemoryKey {
 public:
  constexpr MemoryKey() = default;
  constexpr explicit MemoryKey(uint32_t value) : value_(value) {}
  constexpr uint32_t value() const { return value_; }
  constexpr auto operator<=>(const MemoryKey&) const = default;

 private:
  uint32_t value_ = 0;
};

}  // namespace farverbs
