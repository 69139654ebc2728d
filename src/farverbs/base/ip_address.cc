#include "farverbs/base/ip_address.h"

#include <arpa/inet.h>

#include "farverbs/base/byte_order.h"

namespace farverbs {
namespace {

constexpr size_t kMappedPrefix = 12;  // 10 zero bytes and 2 of 0xff

bool has_mapped_prefix(const Gid& gid) {
  for (size_t i = 0; i < kMappedPrefix; ++i) {
    if (gid[i] != (i < 10 ? std::byte{0} : std::byte{0xff})) return false;
  }
  return true;
}

}  // namespace

IpAddress IpAddress::v4(uint32_t host_order) {
  IpAddress a;
  store_be(a.bytes_.data(), host_order);
  return a;
}

IpAddress IpAddress::v6(const std::array<std::byte, 16>& bytes) {
  IpAddress a;
  a.bytes_ = bytes;
  a.is_v6_ = true;
  return a;
}

IpAddress IpAddress::from_gid(const Gid& gid) {
  if (has_mapped_prefix(gid)) return v4(load_be<uint32_t>(gid.data() + kMappedPrefix));
  return v6(gid);
}

Result<IpAddress> IpAddress::parse(const std::string& text) {
  std::array<std::byte, 16> bytes{};
  if (inet_pton(AF_INET, text.c_str(), bytes.data()) == 1) {
    return v4(load_be<uint32_t>(bytes.data()));
  }
  if (inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1) return v6(bytes);
  return invalid("'" + text + "' is not an IPv4 or IPv6 address");
}

uint32_t IpAddress::v4_value() const {
  FV_CHECK(is_v4());
  return load_be<uint32_t>(bytes_.data());
}

bool IpAddress::is_loopback() const {
  if (is_v4()) return (v4_value() >> 24) == 127;
  for (size_t i = 0; i < 15; ++i) {
    if (bytes_[i] != std::byte{0}) return false;
  }
  return bytes_[15] == std::byte{1};
}

bool IpAddress::is_unspecified() const { return bytes_ == std::array<std::byte, 16>{}; }

bool IpAddress::is_multicast() const {
  return is_v4() ? (v4_value() >> 28) == 0xE : bytes_[0] == std::byte{0xff};
}

Gid IpAddress::to_gid() const {
  if (is_v6()) return bytes_;
  Gid gid{};
  gid[10] = gid[11] = std::byte{0xff};
  store_be(gid.data() + kMappedPrefix, v4_value());
  return gid;
}

std::string IpAddress::to_string() const {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(is_v6_ ? AF_INET6 : AF_INET, bytes_.data(), text, sizeof text);
  return text;
}

uint64_t IpAddress::hash() const {
  uint64_t a = load_be<uint64_t>(bytes_.data());
  uint64_t b = load_be<uint64_t>(bytes_.data() + 8);
  uint64_t h = (a ^ (b * 0x9E3779B97F4A7C15u)) + (is_v6_ ? 1 : 0);
  h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9u;
  return h ^ (h >> 31);
}

std::string Endpoint::to_string() const {
  std::string text = address.is_v6() ? "[" + address.to_string() + "]" : address.to_string();
  return text + ":" + std::to_string(port);
}

}  // namespace farverbs
