// IpAddress and Endpoint: IPv4 or IPv6 as plain values. An IPv4 address is kept as its 4 bytes; a
// GID maps it to ::ffff:a.b.c.d (RoCEv2 annex A17).
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

#include "farverbs/base/result.h"

namespace farverbs {

using Gid = std::array<std::byte, 16>;

class IpAddress {
 public:
  constexpr IpAddress() = default;  // IPv4 0.0.0.0
  static IpAddress v4(uint32_t host_order);
  static IpAddress v6(const std::array<std::byte, 16>& bytes);
  // An IPv4-mapped GID gives an IPv4 address.
  static IpAddress from_gid(const Gid& gid);
  // "127.0.0.1", "::1", "fe80::1" (no scope); the error names the text.
  static Result<IpAddress> parse(const std::string& text);

  constexpr bool is_v4() const { return !is_v6_; }
  constexpr bool is_v6() const { return is_v6_; }
  uint32_t v4_value() const;                                         // host order; only for IPv4
  const std::array<std::byte, 16>& bytes() const { return bytes_; }  // IPv4: the first 4
  size_t size() const { return is_v6_ ? 16 : 4; }
  bool is_loopback() const;
  bool is_unspecified() const;
  bool is_multicast() const;
  Gid to_gid() const;
  std::string to_string() const;

  auto operator<=>(const IpAddress&) const = default;
  bool operator==(const IpAddress&) const = default;
  uint64_t hash() const;

 private:
  std::array<std::byte, 16> bytes_{};
  bool is_v6_ = false;
};

// One can send to the other.
constexpr bool same_family(const IpAddress& a, const IpAddress& b) {
  return a.is_v4() == b.is_v4();
}

struct Endpoint {
  IpAddress address;
  uint16_t port = 0;
  auto operator<=>(const Endpoint&) const = default;
  bool operator==(const Endpoint&) const = default;
  std::string to_string() const;  // "127.0.0.1:4791", "[::1]:4791"
};

inline constexpr uint16_t kRoceUdpPort = 4791;

}  // namespace farverbs
