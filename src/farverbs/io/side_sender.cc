#include "farverbs/io/side_sender.h"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "farverbs/io/socket_address.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

namespace farverbs::io {
namespace {

// Older ones take a page at a time, as a datagram of its own.
bool kernel_splices() {
  utsname name{};
  unsigned major = 0;
  unsigned minor = 0;
  if (::uname(&name) != 0 || std::sscanf(name.release, "%u.%u", &major, &minor) != 2) return false;
  return major > 6 || (major == 6 && minor >= 5);
}

bool set(int fd, int level, int option, int value) {
  return ::setsockopt(fd, level, option, &value, sizeof value) == 0;
}

}  // namespace

SideSender::~SideSender() {
  if (ring_ != nullptr) ::munmap(ring_, kSlots * kSlotBytes);
}

bool SideSender::prepare_splicing() {
  if (ring_ != nullptr || no_ring_) return ring_ != nullptr;
  no_ring_ = true;
  if (!kernel_splices()) return false;
  memory_ = FileDescriptor(::memfd_create("farverbs-bursts", MFD_CLOEXEC));
  constexpr size_t kBytes = kSlots * kSlotBytes;
  if (!memory_.valid() || ::ftruncate(memory_.get(), kBytes) != 0) return false;
  void* ring =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory_.get(), 0);
  if (ring == MAP_FAILED) return false;
  ring_ = static_cast<std::byte*>(ring);
  return true;
}

const SideSender::Connection& SideSender::least_used() const {
  return *std::min_element(
      connections_.begin(), connections_.end(),
      [](const Connection& a, const Connection& b) { return a.last_use < b.last_use; });
}

bool SideSender::has_place_for(const Endpoint& to) {
  ++bursts_;
  const bool known = std::any_of(connections_.begin(), connections_.end(),
                                 [&](const Connection& c) { return c.to == to && c.fd.valid(); });
  return known || gives_way(least_used());
}

SideSender::Connection* SideSender::connection_to(const Endpoint& to) {
  for (Connection& known : connections_) {
    if (known.to == to && known.fd.valid()) return &known;
  }
  const bool v4 = to.address.is_v4();
  FileDescriptor fd(
      ::socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP));
  if (!fd.valid()) return nullptr;
  const bool undivided = v4 ? set(fd.get(), IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
                            : set(fd.get(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
  if (!undivided) return nullptr;
  // Nothing is to arrive here.
  set(fd.get(), SOL_SOCKET, SO_RCVBUF, 0);
  set(fd.get(), SOL_SOCKET, SO_SNDBUF, 8 << 20);
  // sendfile does not hand O_NONBLOCK on to the socket.
  const timeval shortest{0, 1};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &shortest, sizeof shortest);
  SocketAddress from(Endpoint{local_, 0});
  SocketAddress peer(to);
  if (!local_.is_unspecified() && ::bind(fd.get(), &from.generic, from.size) != 0) return nullptr;
  if (::connect(fd.get(), &peer.generic, peer.size) != 0) return nullptr;
  auto& place = const_cast<Connection&>(least_used());
  place = Connection{to, std::move(fd)};
  return &place;
}

bool SideSender::adopt(Connection& connection, const TxFlow& flow, size_t segment_size) {
  const int fd = connection.fd.get();
  const bool v4 = connection.to.address.is_v4();
  if (connection.segment_size != segment_size) {
    if (!set(fd, IPPROTO_UDP, UDP_SEGMENT, static_cast<int>(segment_size))) return false;
    connection.segment_size = segment_size;
  }
  if (connection.traffic_class != flow.traffic_class) {
    const int level = v4 ? IPPROTO_IP : IPPROTO_IPV6;
    if (!set(fd, level, v4 ? IP_TOS : IPV6_TCLASS, flow.traffic_class)) return false;
    connection.traffic_class = flow.traffic_class;
  }
  if (connection.hop_limit != flow.hop_limit) {
    const bool done = v4 ? set(fd, IPPROTO_IP, IP_TTL, flow.hop_limit)
                         : set(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, flow.hop_limit);
    if (!done) return false;
    connection.hop_limit = flow.hop_limit;
  }
  return true;
}

SendStatus SideSender::send(const TxFlow& flow, const wire::TxBurst& burst) {
  Connection* const connection = connection_to(flow.destination);
  // One datagram no longer than the socket's segments needs no other setting.
  const bool fits = burst.count() == 1 && connection != nullptr &&
                    burst.segment_size() <= connection->segment_size;
  if (connection == nullptr ||
      !adopt(*connection, flow, fits ? connection->segment_size : burst.segment_size())) {
    refused_ = true;
    return SendStatus::kFailed;
  }
  connection->last_use = bursts_;
  // What a socket was told of an earlier datagram (ICMP) fails the next call, once.
  for (int attempts = 0;; ++attempts) {
    const SendStatus status = can_splice(burst) ? splice(*connection, burst.bytes().size())
                                                : send_copied(*connection, burst.bytes());
    if (status != SendStatus::kFailed || errno != ECONNREFUSED || attempts > 0) return status;
  }
}

SendStatus SideSender::splice(const Connection& connection, size_t bytes) {
  auto at = static_cast<off_t>(next_ * kSlotBytes);
  const ssize_t sent = ::sendfile(connection.fd.get(), memory_.get(), &at, bytes);
  if (sent == 0) errno = EINVAL;
  if (sent <= 0) return failed(errno);
  next_ = (next_ + 1) % kSlots;
  // The kernel took less than one send's worth: datagrams were cut, and so it would go on.
  refused_ = static_cast<size_t>(sent) < bytes;
  return SendStatus::kSent;
}

SendStatus SideSender::send_copied(const Connection& connection, std::span<const std::byte> bytes) {
  return ::send(connection.fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) >= 0
             ? SendStatus::kSent
             : failed(errno);
}

SendStatus SideSender::failed(int code) {
  if (code == EAGAIN || code == ENOBUFS || code == ENOMEM) return SendStatus::kWouldBlock;
  if (code == EMSGSIZE) return SendStatus::kTooBig;
  if (code != ECONNREFUSED && code != ENETUNREACH && code != EHOSTUNREACH && code != ENETDOWN) {
    refused_ = true;
  }
  return SendStatus::kFailed;
}

std::vector<int> SideSender::sockets() const {
  std::vector<int> sockets;
  for (const Connection& connection : connections_) {
    if (connection.fd.valid()) sockets.push_back(connection.fd.get());
  }
  return sockets;
}

}  // namespace farverbs::io
