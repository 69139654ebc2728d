// The set-up of the UDP socket behind a UdpPort: bound, never connected, with every option the data
// path depends on, and the probes that tell what this kernel can do (man udp(7), ip(7), ipv6(7)).
#pragma once

#include <cstddef>
#include <cstdint>

#include "farverbs/base/ip_address.h"
#include "farverbs/base/result.h"
#include "farverbs/io/file_descriptor.h"

namespace farverbs::io {

struct UdpOptions {
  Endpoint local{IpAddress(), kRoceUdpPort};  // port 0: the kernel chooses one
  bool reuse_port = false;                    // share (address, port) with other sockets
  size_t buffer_bytes = size_t{8} << 20;      // asked for in each direction; less may be granted
  uint8_t traffic_class = 0;                  // of datagrams whose flow does not say otherwise
  uint8_t hop_limit = 64;
  // False: act like a kernel without it (before 4.18 and 5.0).
  bool segmentation = true;
  bool merging = true;
};

struct UdpSocket {
  FileDescriptor fd;
  Endpoint local;              // with the port the kernel chose
  size_t max_segments = 1;     // of one GSO send; 1: the kernel has none
  bool merges = false;         // UDP_GRO is on
  bool link_local = false;     // the address means something on one interface only
  bool reports_local = false;  // datagrams say which local address they were sent to
  size_t max_datagram = 0;     // largest UDP payload of the interface
  size_t receive_buffer = 0;   // granted, in the kernel's accounting (twice what was asked for)
  size_t send_buffer = 0;
};

// Errors name what to do about it (EADDRINUSE, EADDRNOTAVAIL, ...).
Result<UdpSocket> open_udp_socket(const UdpOptions& options);

// The most segments that one send may have: 128 on newer kernels, 64 on older ones, 1 without GSO.
// Finds out by sending to itself over the loopback interface.
size_t probe_max_segments();

// Of a UDP datagram over IPv4, and of all segments of a GSO send together.
inline constexpr size_t kMaxUdpPayload = 65'507;

}  // namespace farverbs::io
