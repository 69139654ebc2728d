#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "farverbs/base/ip_address.h"
#include "tools/common/format.h"
#include "tools/doctor/finding.h"
#include "tools/doctor/system_file.h"

namespace farverbs::tools::doctor {
namespace {

constexpr int kPatienceMs = 1000;
constexpr uint32_t kWantedBuffer = 4u << 20;

int udp_socket(int family = AF_INET) { return ::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0); }

bool set_option(int fd, int level, int option, int value) {
  return ::setsockopt(fd, level, option, &value, sizeof value) == 0;
}

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

bool bind_to(int fd, sockaddr_in address) {
  return ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

uint16_t port_of(int fd) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return ntohs(address.sin_port);
}

bool readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, kPatienceMs) == 1;
}

// A message on its way out or in, with one control message of an int-like value.
struct Message {
  std::array<char, 8192> bytes{};
  alignas(cmsghdr) std::array<char, 128> control{};
  iovec part{};
  msghdr header{};

  explicit Message(size_t length) {
    part = {bytes.data(), length};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
  }
  template <typename T>
  void attach(int level, int type, T value) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(sizeof value);
    cmsghdr* message = CMSG_FIRSTHDR(&header);
    message->cmsg_level = level;
    message->cmsg_type = type;
    message->cmsg_len = CMSG_LEN(sizeof value);
    std::memcpy(CMSG_DATA(message), &value, sizeof value);
  }
  void expect_control() {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  // The value of a control message that arrived; -1: there is none.
  int arrived(int level, int type) {
    for (cmsghdr* m = CMSG_FIRSTHDR(&header); m != nullptr; m = CMSG_NXTHDR(&header, m)) {
      if (m->cmsg_level != level || m->cmsg_type != type) continue;
      if (m->cmsg_len < CMSG_LEN(sizeof(int))) return *CMSG_DATA(m);
      int value = 0;
      std::memcpy(&value, CMSG_DATA(m), sizeof value);
      return value;
    }
    return -1;
  }
};

bool send_to(int fd, Message& message, uint16_t port) {
  sockaddr_in to = loopback(port);
  message.header.msg_name = &to;
  message.header.msg_namelen = sizeof to;
  return ::sendmsg(fd, &message.header, 0) >= 0;
}

// -1: nothing came.
ssize_t receive(int fd, Message& message) {
  if (!readable(fd)) return -1;
  message.header.msg_name = nullptr;
  message.header.msg_namelen = 0;
  return ::recvmsg(fd, &message.header, MSG_DONTWAIT);
}

Finding probe_loopback() {
  const Descriptor a(udp_socket()), b(udp_socket());
  Message out(16), in(64);
  if (!a.ok() || !b.ok() || !bind_to(b.get(), loopback(0)) ||
      !send_to(a.get(), out, port_of(b.get())) || receive(b.get(), in) != 16) {
    return {"udp", Status::kFail, std::string("a UDP datagram does not pass: ") + strerror(errno),
            "bring the loopback interface up (ip link set lo up) and allow UDP on it"};
  }
  return {"udp", Status::kOk, "datagrams pass over loopback", ""};
}

Finding probe_gso() {
  const Descriptor a(udp_socket()), b(udp_socket());
  Message out(3000), first(8192);
  out.attach<uint16_t>(SOL_UDP, UDP_SEGMENT, 1000);
  if (!bind_to(b.get(), loopback(0)) || !send_to(a.get(), out, port_of(b.get()))) {
    return {"udp_gso", Status::kWarn,
            std::string("the kernel refuses segmentation offload: ") + strerror(errno),
            "use Linux 4.18 or later: without it each packet costs a system call"};
  }
  if (receive(b.get(), first) != 1000) {
    return {"udp_gso", Status::kWarn, "a super-buffer does not arrive as datagrams",
            "segmentation offload is broken here; expect a tenth of the speed"};
  }
  return {"udp_gso", Status::kOk, "many packets leave in one system call", ""};
}

Finding probe_gro() {
  const Descriptor a(udp_socket()), b(udp_socket());
  Message out(3000), in(8192);
  out.attach<uint16_t>(SOL_UDP, UDP_SEGMENT, 1000);
  in.expect_control();
  if (!set_option(b.get(), SOL_UDP, UDP_GRO, 1) || !bind_to(b.get(), loopback(0)) ||
      !send_to(a.get(), out, port_of(b.get()))) {
    return {"udp_gro", Status::kWarn,
            std::string("the kernel does not merge received packets: ") + strerror(errno),
            "use Linux 5.0 or later: without it each packet received costs far more"};
  }
  const ssize_t length = receive(b.get(), in);
  if (length != 3000 || in.arrived(SOL_UDP, UDP_GRO) != 1000) {
    return {"udp_gro", Status::kWarn,
            fmt::format("merging was accepted, but {} of 3000 bytes came", length),
            "receiving costs more than it must on this kernel"};
  }
  return {"udp_gro", Status::kOk, "many packets arrive in one system call", ""};
}

Finding probe_tos() {
  const Descriptor a(udp_socket()), b(udp_socket());
  Message out(16), in(64);
  constexpr int kEct0 = 2;
  out.attach<int>(IPPROTO_IP, IP_TOS, kEct0);
  in.expect_control();
  const bool sent = set_option(b.get(), IPPROTO_IP, IP_RECVTOS, 1) &&
                    bind_to(b.get(), loopback(0)) && send_to(a.get(), out, port_of(b.get()));
  if (!sent || receive(b.get(), in) != 16 || (in.arrived(IPPROTO_IP, IP_TOS) & 3) != kEct0) {
    return {"ecn", Status::kWarn, "the ECN bits of packets cannot be set or read",
            "congestion is then known by loss and delay only"};
  }
  return {"ecn", Status::kOk, "ECN and traffic class of each packet are set and read", ""};
}

// Two sockets share a port and a filter picks one by a byte of the datagram.
Finding probe_reuseport() {
  const Finding bad{"port_sharing", Status::kWarn, "a port cannot be shared between processes",
                    "use Linux 4.5 or later, or one --udp-port per process"};
  const Descriptor a(udp_socket()), b(udp_socket()), sender(udp_socket());
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0),
      BPF_STMT(BPF_RET | BPF_A, 0),
  };
  const sock_fprog program{2, code};
  if (!set_option(a.get(), SOL_SOCKET, SO_REUSEPORT, 1) ||
      !set_option(b.get(), SOL_SOCKET, SO_REUSEPORT, 1) || !bind_to(a.get(), loopback(0)) ||
      ::setsockopt(a.get(), SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program) != 0 ||
      !bind_to(b.get(), loopback(port_of(a.get())))) {
    return bad;
  }
  for (char member : {1, 0}) {
    Message out(16), in(64);
    out.bytes[0] = member;
    if (!send_to(sender.get(), out, port_of(a.get())) ||
        receive(member == 0 ? a.get() : b.get(), in) != 16) {
      return bad;
    }
  }
  return {"port_sharing", Status::kOk, "processes share a port, steered by queue pair number", ""};
}

Finding probe_port() {
  const auto try_bind = [](bool share) {
    const Descriptor fd(udp_socket());
    sockaddr_in any = loopback(kRoceUdpPort);
    any.sin_addr.s_addr = htonl(INADDR_ANY);
    if (share) set_option(fd.get(), SOL_SOCKET, SO_REUSEPORT, 1);
    return bind_to(fd.get(), any) ? 0 : errno;
  };
  const int alone = try_bind(false);
  if (alone == 0) return {"port_4791", Status::kOk, "UDP port 4791 is free", ""};
  if (alone == EADDRINUSE && try_bind(true) == 0) {
    return {"port_4791", Status::kOk, "UDP port 4791 is shared with other Farverbs processes", ""};
  }
  if (alone == EADDRINUSE) {
    return {"port_4791", Status::kFail,
            "UDP port 4791 is taken by something that does not share it",
            "find it with `ss -ulnp sport = 4791` (the kernel's own RDMA: rmmod rdma_rxe), or use "
            "--udp-port on both sides"};
  }
  return {"port_4791", Status::kFail,
          std::string("UDP port 4791 cannot be used: ") + strerror(alone),
          "allow it, or use --udp-port on both sides"};
}

Finding probe_buffer(const char* name, int option, const char* sysctl) {
  const Descriptor fd(udp_socket());
  set_option(fd.get(), SOL_SOCKET, option, static_cast<int>(kWantedBuffer));
  int granted = 0;
  socklen_t length = sizeof granted;
  ::getsockopt(fd.get(), SOL_SOCKET, option, &granted, &length);
  // The kernel reports twice what was asked for, to cover its own bookkeeping.
  const auto usable = static_cast<uint64_t>(granted) / 2;
  const std::string found = format_bytes(usable) + " of 4 MiB granted";
  if (usable >= kWantedBuffer) return {name, Status::kOk, found, ""};
  return {name, Status::kWarn, found,
          fmt::format("sysctl -w {}={} (small ones lose packets on fast or long paths)", sysctl,
                      kWantedBuffer)};
}

Finding probe_ipv6() {
  const Descriptor fd(udp_socket(AF_INET6));
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  if (!fd.ok() || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return {"ipv6", Status::kWarn, std::string("no IPv6: ") + strerror(errno),
            "only IPv4 addresses can be used"};
  }
  return {"ipv6", Status::kOk, "available", ""};
}

// One finding for each interface that is up and has an address.
void probe_interfaces(std::vector<Finding>& findings) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  std::set<std::string> seen;
  const Descriptor fd(udp_socket());
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    if (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6) continue;
    if (!seen.insert(i->ifa_name).second) continue;
    ifreq request{};
    std::strncpy(request.ifr_name, i->ifa_name, IFNAMSIZ - 1);
    if (::ioctl(fd.get(), SIOCGIFMTU, &request) != 0) continue;
    // IPv6, UDP, BTH, RETH, immediate and ICRC around the payload.
    constexpr int kHeaders = 40 + 8 + 12 + 16 + 4 + 4;
    int path_mtu = 4096;
    while (path_mtu > 256 && path_mtu + kHeaders > request.ifr_mtu) path_mtu /= 2;
    const bool fits = path_mtu + kHeaders <= request.ifr_mtu;
    findings.push_back({fmt::format("interface_{}", i->ifa_name),
                        fits ? Status::kOk : Status::kWarn,
                        fmt::format("MTU {}, path MTU {}", request.ifr_mtu, path_mtu),
                        fits ? "" : "raise its MTU: it carries no RDMA packet"});
  }
}

}  // namespace

std::vector<Finding> probe_sockets() {
  std::vector<Finding> findings = {probe_loopback(), probe_port(), probe_reuseport(), probe_gso(),
                                   probe_gro(),      probe_tos(),  probe_ipv6()};
  findings.push_back(probe_buffer("receive_buffer", SO_RCVBUF, "net.core.rmem_max"));
  findings.push_back(probe_buffer("send_buffer", SO_SNDBUF, "net.core.wmem_max"));
  probe_interfaces(findings);
  return findings;
}

}  // namespace farverbs::tools::doctor
