#include "farverbs/io/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "farverbs/io/file_descriptor.h"
#include "farverbs/io/socket_address.h"

namespace farverbs::io {
namespace {

uint32_t mtu_of(int fd, const std::string& name) {
  ifreq request{};
  name.copy(request.ifr_name, sizeof request.ifr_name - 1);
  return ioctl(fd, SIOCGIFMTU, &request) == 0 ? static_cast<uint32_t>(request.ifr_mtu) : 0;
}

// A UDP socket connected to the peer, which makes the kernel choose a route.
Result<FileDescriptor> connected_socket(const IpAddress& source, const IpAddress& peer) {
  FileDescriptor fd(::socket(peer.is_v4() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Error::from_errno("cannot open a UDP socket");
  if (!source.is_unspecified()) {
    const SocketAddress from(Endpoint{source, 0});
    if (::bind(fd.get(), &from.generic, from.size) != 0) {
      return Error::from_errno("cannot send from " + source.to_string());
    }
  }
  const SocketAddress to(Endpoint{peer, kRoceUdpPort});
  if (::connect(fd.get(), &to.generic, to.size) != 0) {
    return Error::from_errno("no route to " + peer.to_string());
  }
  return fd;
}

}  // namespace

Result<std::vector<Interface>> list_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return Error::from_errno("cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> guard(list, freeifaddrs);
  const FileDescriptor fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  std::vector<Interface> interfaces;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    auto found = std::find_if(interfaces.begin(), interfaces.end(),
                              [&](const Interface& i) { return i.name == entry->ifa_name; });
    if (found == interfaces.end()) {
      Interface fresh;
      fresh.name = entry->ifa_name;
      fresh.index = if_nametoindex(entry->ifa_name);
      fresh.mtu = mtu_of(fd.get(), fresh.name);
      fresh.up = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_RUNNING) != 0;
      fresh.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
      interfaces.push_back(std::move(fresh));
      found = interfaces.end() - 1;
    }
    if (entry->ifa_addr == nullptr) continue;
    SocketAddress address;
    if (entry->ifa_addr->sa_family == AF_INET) {
      std::memcpy(&address.v4, entry->ifa_addr, sizeof address.v4);
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      std::memcpy(&address.v6, entry->ifa_addr, sizeof address.v6);
    } else {
      continue;
    }
    found->addresses.push_back(address.to_endpoint().address);
  }
  std::sort(interfaces.begin(), interfaces.end(),
            [](const Interface& a, const Interface& b) { return a.index < b.index; });
  return interfaces;
}

Result<Interface> find_interface(const IpAddress& address) {
  FV_ASSIGN(const std::vector<Interface> interfaces, list_interfaces());
  std::string known;
  for (const Interface& interface : interfaces) {
    for (const IpAddress& candidate : interface.addresses) {
      if (candidate == address) return interface;
      known += (known.empty() ? "" : ", ") + candidate.to_string();
    }
    // All of 127.0.0.0/8 is local, though only one address of it is listed.
    if (interface.loopback && address.is_v4() && address.is_loopback()) return interface;
  }
  return Error{EADDRNOTAVAIL, "no interface has the address " + address.to_string() +
                                  "; this machine has " + (known.empty() ? "none" : known)};
}

Result<uint32_t> route_mtu(const IpAddress& source, const IpAddress& peer) {
  FV_ASSIGN(const FileDescriptor fd, connected_socket(source, peer));
  int mtu = 0;
  socklen_t size = sizeof mtu;
  const int status = peer.is_v4() ? getsockopt(fd.get(), IPPROTO_IP, IP_MTU, &mtu, &size)
                                  : getsockopt(fd.get(), IPPROTO_IPV6, IPV6_MTU, &mtu, &size);
  if (status != 0) return Error::from_errno("no path MTU known to " + peer.to_string());
  return static_cast<uint32_t>(mtu);
}

Result<IpAddress> source_address_for(const IpAddress& peer) {
  FV_ASSIGN(const FileDescriptor fd, connected_socket(IpAddress(), peer));
  SocketAddress local = SocketAddress::empty();
  if (getsockname(fd.get(), &local.generic, &local.size) != 0) {
    return Error::from_errno("no local address known towards " + peer.to_string());
  }
  return local.to_endpoint().address;
}

}  // namespace farverbs::io
