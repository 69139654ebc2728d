#include "farverbs/io/socket_address.h"

#include <arpa/inet.h>

#include <array>
#include <cstring>

namespace farverbs::io {

SocketAddress::SocketAddress(const Endpoint& endpoint, uint32_t scope) : v6{} {
  if (endpoint.address.is_v4()) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(endpoint.port);
    std::memcpy(&v4.sin_addr, endpoint.address.bytes().data(), sizeof v4.sin_addr);
    size = sizeof v4;
  } else {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(endpoint.port);
    std::memcpy(&v6.sin6_addr, endpoint.address.bytes().data(), sizeof v6.sin6_addr);
    v6.sin6_scope_id = scope;
    size = sizeof v6;
  }
}

Endpoint SocketAddress::to_endpoint() const {
  if (family() == AF_INET) return {to_ip_address(v4.sin_addr), ntohs(v4.sin_port)};
  return {to_ip_address(v6.sin6_addr), ntohs(v6.sin6_port)};
}

IpAddress to_ip_address(const in_addr& address) { return IpAddress::v4(ntohl(address.s_addr)); }

IpAddress to_ip_address(const in6_addr& address) {
  std::array<std::byte, 16> bytes;
  std::memcpy(bytes.data(), &address, bytes.size());
  return IpAddress::v6(bytes);
}

}  // namespace farverbs::io
