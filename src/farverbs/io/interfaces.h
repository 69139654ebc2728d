// What the machine's network interfaces are (man getifaddrs(3), netdevice(7)): names, addresses,
// MTUs, flags, and the path MTU that the kernel's route to a peer has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "farverbs/base/ip_address.h"
#include "farverbs/base/result.h"

namespace farverbs::io {

struct Interface {
  std::string name;
  uint32_t index = 0;
  uint32_t mtu = 0;  // largest IP packet, in bytes
  bool up = false;   // administratively up and with a carrier
  bool loopback = false;
  std::vector<IpAddress> addresses;
};

// All interfaces of the network namespace, by index.
Result<std::vector<Interface>> list_interfaces();

// The interface that has `address`; the error names the address and those that exist.
Result<Interface> find_interface(const IpAddress& address);

// The largest IP packet that goes from `source` (unspecified: any) to `peer` unfragmented, as far
// as the kernel knows: the route's interface, lowered by what routers have reported. Sends nothing.
Result<uint32_t> route_mtu(const IpAddress& source, const IpAddress& peer);

// The local address from which the kernel would send to `peer`. Sends nothing.
Result<IpAddress> source_address_for(const IpAddress& peer);

}  // namespace farverbs::io
