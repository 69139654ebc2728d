// SocketAddress: an Endpoint in the form the socket calls take (man ip(7), ipv6(7)), and back.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

#include "farverbs/base/ip_address.h"

namespace farverbs::io {

struct SocketAddress {
  union {
    sockaddr generic;
    sockaddr_in v4;
    sockaddr_in6 v6;
  };
  socklen_t size = 0;

  SocketAddress() : v6{} {}
  // `scope` is the interface index of a link-local IPv6 address; 0 lets the kernel choose.
  explicit SocketAddress(const Endpoint& endpoint, uint32_t scope = 0);
  // The space a call may fill in; `size` is set to what it filled.
  static SocketAddress empty() {
    SocketAddress address;
    address.size = sizeof(sockaddr_in6);
    return address;
  }
  Endpoint to_endpoint() const;
  int family() const { return generic.sa_family; }
};

IpAddress to_ip_address(const in_addr& address);
// An IPv4-mapped address stays IPv6: this code opens IPv6 sockets for IPv6 only.
IpAddress to_ip_address(const in6_addr& address);

}  // namespace farverbs::io
