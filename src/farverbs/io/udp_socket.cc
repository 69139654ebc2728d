#include "farverbs/io/udp_socket.h"

#include <algorithm>
#include <array>

#include "farverbs/io/interfaces.h"
#include "farverbs/io/socket_address.h"
#include "farverbs/io/socket_options.h"

namespace farverbs::io {
namespace {

constexpr size_t kIpv4Headers = 20 + 8;
constexpr size_t kIpv6Headers = 40 + 8;

int get(int fd, int level, int option) {
  int value = 0;
  socklen_t size = sizeof value;
  return getsockopt(fd, level, option, &value, &size) == 0 ? value : 0;
}

// Asks with privilege first; without it the kernel clamps silently to net.core.[rw]mem_max.
size_t grow_buffer(int fd, int option, int forced_option, size_t bytes) {
  const int asked = static_cast<int>(std::min<size_t>(bytes, size_t{1} << 30));
  if (!set_option(fd, SOL_SOCKET, forced_option, asked)) set_option(fd, SOL_SOCKET, option, asked);
  return static_cast<size_t>(get(fd, SOL_SOCKET, option));
}

// Some kernels run without IPv6 control messages or the like; only what the ICRC or correctness
// depends on is an error.
Result<void> set_ipv4_options(int fd, const UdpOptions& options, bool wildcard) {
  // With path MTU discovery forced, an unconnected socket sends identification 0, and 0, 1, 2, ...
  // over the segments of a GSO send. The ICRC covers the identification.
  if (!set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)) {
    return Error::from_errno("cannot forbid IPv4 fragmentation");
  }
  set_option(fd, IPPROTO_IP, IP_RECVTOS, 1);
  set_option(fd, IPPROTO_IP, IP_TOS, options.traffic_class);
  set_option(fd, IPPROTO_IP, IP_TTL, options.hop_limit);
  if (wildcard && !set_option(fd, IPPROTO_IP, IP_PKTINFO, 1)) {
    return Error::from_errno("cannot ask for destination addresses");
  }
  return {};
}

Result<void> set_ipv6_options(int fd, const UdpOptions& options, bool wildcard) {
  if (!set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1)) {
    return Error::from_errno("cannot open a socket for IPv6 only");
  }
  set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
  set_option(fd, IPPROTO_IPV6, IPV6_DONTFRAG, 1);
  set_option(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
  set_option(fd, IPPROTO_IPV6, IPV6_TCLASS, options.traffic_class);
  set_option(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, options.hop_limit);
  // The kernel's rxe sends RoCEv2 over IPv6 with UDP checksum 0: the ICRC protects it.
  set_option(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
  if (wildcard && !set_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1)) {
    return Error::from_errno("cannot ask for destination addresses");
  }
  return {};
}

Error bind_error(const UdpOptions& options, int code) {
  std::string what = "cannot bind UDP " + options.local.to_string();
  switch (code) {
    case EADDRINUSE:
      what += options.reuse_port
                  ? " (something has it that does not share it with this user: see `ss -ulpn`; the "
                    "kernel's rdma_rxe takes 4791 for itself)"
                  : " (another process has it; see `ss -ulpn`, or choose another port)";
      break;
    case EADDRNOTAVAIL:
      what += " (no interface has this address; see `ip address`)";
      break;
    case EACCES:
      what += " (ports below net.ipv4.ip_unprivileged_port_start need privileges)";
      break;
  }
  return Error::from_errno(what, code);
}

// The largest payload of the interface with the address, or of any for a wildcard: a first bound,
// which a route may lower.
size_t largest_datagram(const IpAddress& local) {
  size_t mtu = 0;
  if (local.is_unspecified()) {
    if (auto interfaces = list_interfaces(); interfaces.ok()) {
      for (const Interface& i : *interfaces) mtu = std::max<size_t>(mtu, i.up ? i.mtu : 0);
    }
  } else if (auto interface = find_interface(local); interface.ok()) {
    mtu = interface->mtu;
  }
  if (mtu == 0) mtu = 1500;
  return std::min(mtu - (local.is_v4() ? kIpv4Headers : kIpv6Headers), kMaxUdpPayload);
}

// Only a link-local IPv6 address is bound together with its interface.
uint32_t scope_of(const IpAddress& local) {
  const bool link_local = local.is_v6() && local.bytes()[0] == std::byte{0xfe} &&
                          (local.bytes()[1] & std::byte{0xc0}) == std::byte{0x80};
  if (!link_local) return 0;
  auto interface = find_interface(local);
  return interface.ok() ? interface->index : 0;
}

}  // namespace

namespace {

// Multicast leaves by the interface that has the local address, whatever the routes say. Who does
// not send any needs none of it.
void set_multicast_interface(int fd, const IpAddress& local) {
  auto interface = find_interface(local);
  if (!interface.ok()) return;
  if (local.is_v6()) {
    set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, static_cast<int>(interface->index));
    return;
  }
  ip_mreqn request{};
  request.imr_address.s_addr = htonl(local.v4_value());
  request.imr_ifindex = static_cast<int>(interface->index);
  setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &request, sizeof request);
}

}  // namespace

size_t probe_max_segments() {
  constexpr size_t kNewer = 128;
  constexpr size_t kOlder = 64;
  const FileDescriptor fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() || !set_option(fd.get(), IPPROTO_UDP, UDP_SEGMENT, 1)) return 1;
  SocketAddress self(Endpoint{IpAddress::v4(INADDR_LOOPBACK), 0});
  if (::bind(fd.get(), &self.generic, self.size) != 0) return kOlder;
  if (getsockname(fd.get(), &self.generic, &self.size) != 0) return kOlder;
  const std::array<std::byte, kNewer> bytes{};
  const ssize_t sent = ::sendto(fd.get(), bytes.data(), bytes.size(), 0, &self.generic, self.size);
  return sent == static_cast<ssize_t>(bytes.size()) ? kNewer : kOlder;
}

Result<UdpSocket> open_udp_socket(const UdpOptions& options) {
  const IpAddress& address = options.local.address;
  UdpSocket result;
  result.fd = FileDescriptor(::socket(address.is_v4() ? AF_INET : AF_INET6,
                                      SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP));
  if (!result.fd.valid()) return Error::from_errno("cannot open a UDP socket");
  const int fd = result.fd.get();
  result.reports_local = address.is_unspecified();
  FV_TRY(address.is_v4() ? set_ipv4_options(fd, options, result.reports_local)
                         : set_ipv6_options(fd, options, result.reports_local));
  set_option(fd, SOL_SOCKET, SO_RXQ_OVFL, 1);
  result.receive_buffer = grow_buffer(fd, SO_RCVBUF, SO_RCVBUFFORCE, options.buffer_bytes);
  result.send_buffer = grow_buffer(fd, SO_SNDBUF, SO_SNDBUFFORCE, options.buffer_bytes);
  result.merges = options.merging && set_option(fd, IPPROTO_UDP, UDP_GRO, 1);
  if (options.reuse_port && !set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1)) {
    return Error::from_errno("cannot share UDP " + options.local.to_string());
  }

  SocketAddress local(options.local, scope_of(address));
  if (::bind(fd, &local.generic, local.size) != 0) return bind_error(options, errno);
  if (getsockname(fd, &local.generic, &local.size) != 0) {
    return Error::from_errno("cannot tell the bound address");
  }
  result.local = local.to_endpoint();
  result.link_local = scope_of(address) != 0;
  if (!address.is_unspecified() && !address.is_multicast()) set_multicast_interface(fd, address);
  result.max_datagram = largest_datagram(address);
  result.max_segments = options.segmentation ? probe_max_segments() : 1;
  return result;
}

}  // namespace farverbs::io
