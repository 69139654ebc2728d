#include "farverbs/io/side_sender.h"

#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "farverbs/io/socket_address.h"
#include "farverbs/io/socket_options.h"

namespace farverbs::io {

bool SideSender::kernel_splices() {
  utsname name{};
  unsigned major = 0;
  unsigned minor = 0;
  if (::uname(&name) != 0 || std::sscanf(name.release, "%u.%u", &major, &minor) != 2) return false;
  return major > 6 || (major == 6 && minor >= 5);
}

SideSender::~SideSender() {
  if (ring_ != nullptr) ::munmap(ring_, kSlots * kSlotBytes);
}

// True if there is one, from now on at the latest.
bool SideSender::prepare_ring() {
  if (ring_ != nullptr || std::exchange(ring_tried_, true)) return ring_ != nullptr;
  if (!kernel_splices()) return false;
  memory_ = FileDescriptor(::memfd_create("farverbs-bursts", MFD_CLOEXEC));
  constexpr size_t kBytes = kSlots * kSlotBytes;
  if (!memory_.valid() || ::ftruncate(memory_.get(), kBytes) != 0) return false;
  void* ring =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory_.get(), 0);
  if (ring != MAP_FAILED) ring_ = static_cast<std::byte*>(ring);
  return ring_ != nullptr;
}

// The connection to the peer, or the place of a new one; nullptr: all are in use.
SideSender::Connection* SideSender::place_for(const Endpoint& to) {
  ++bursts_;
  Connection* oldest = &connections_.front();
  for (Connection& connection : connections_) {
    if (connection.to == to && connection.fd.valid()) return &connection;
    if (connection.last_use < oldest->last_use) oldest = &connection;
  }
  if (oldest->fd.valid() && oldest->last_use + kForgottenAfter >= bursts_) return nullptr;
  oldest->fd.reset();
  return oldest;
}

bool SideSender::open(Connection& place, const Endpoint& to) const {
  const bool v4 = to.address.is_v4();
  FileDescriptor fd(
      ::socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP));
  if (!fd.valid()) return false;
  const bool undivided =
      v4 ? set_option(fd.get(), IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
         : set_option(fd.get(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
  if (!undivided) return false;
  // Nothing is to arrive here.
  set_option(fd.get(), SOL_SOCKET, SO_RCVBUF, 0);
  set_option(fd.get(), SOL_SOCKET, SO_SNDBUF, 8 << 20);
  // sendfile does not hand O_NONBLOCK on to the socket.
  const timeval shortest{0, 1};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &shortest, sizeof shortest);
  SocketAddress from(Endpoint{local_, 0});
  SocketAddress peer(to);
  if (!local_.is_unspecified() && ::bind(fd.get(), &from.generic, from.size) != 0) return false;
  if (::connect(fd.get(), &peer.generic, peer.size) != 0) return false;
  place = Connection{to, std::move(fd)};
  return true;
}

bool SideSender::adopt(Connection& connection, const TxFlow& flow, size_t segment_size) {
  const int fd = connection.fd.get();
  const bool v4 = connection.to.address.is_v4();
  if (connection.segment_size != segment_size) {
    if (!set_option(fd, IPPROTO_UDP, UDP_SEGMENT, static_cast<int>(segment_size))) return false;
    connection.segment_size = segment_size;
  }
  if (connection.traffic_class != flow.traffic_class) {
    const int level = v4 ? IPPROTO_IP : IPPROTO_IPV6;
    if (!set_option(fd, level, v4 ? IP_TOS : IPV6_TCLASS, flow.traffic_class)) return false;
    connection.traffic_class = flow.traffic_class;
  }
  if (connection.hop_limit != flow.hop_limit) {
    const bool done = v4 ? set_option(fd, IPPROTO_IP, IP_TTL, flow.hop_limit)
                         : set_option(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, flow.hop_limit);
    if (!done) return false;
    connection.hop_limit = flow.hop_limit;
  }
  return true;
}

std::optional<SendStatus> SideSender::send(const TxFlow& flow, const wire::TxBurst& burst) {
  const std::span<const std::byte> bytes = burst.bytes();
  const bool in_ring = ring_ != nullptr && bytes.data() == staging().data();
  const bool large = bytes.size() >= kLeastBytes;
  if (large && !in_ring && prepare_ring()) return std::nullopt;
  Connection* const connection = place_for(flow.destination);
  if (connection == nullptr) return std::nullopt;
  refused_ = !connection->fd.valid() && !open(*connection, flow.destination);
  if (refused_) return std::nullopt;
  // One datagram no longer than the socket's segments needs no other setting.
  const bool fits = burst.count() == 1 && burst.segment_size() <= connection->segment_size;
  refused_ = !adopt(*connection, flow, fits ? connection->segment_size : burst.segment_size());
  if (refused_) return std::nullopt;
  connection->last_use = bursts_;
  const auto send_once = [&] {
    return large && in_ring
               ? splice(*connection, bytes.size())
               : ::send(connection->fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  };
  ssize_t sent = send_once();
  // What a socket was told of an earlier datagram (ICMP) fails the next call, once.
  if (sent < 0 && errno == ECONNREFUSED) sent = send_once();
  if (sent < 0) return failed(errno);
  return SendStatus::kSent;
}

ssize_t SideSender::splice(const Connection& connection, size_t bytes) {
  auto at = static_cast<off_t>(next_ * kSlotBytes);
  const ssize_t sent = ::sendfile(connection.fd.get(), memory_.get(), &at, bytes);
  if (sent == 0) errno = EINVAL;
  if (sent <= 0) return -1;
  next_ = (next_ + 1) % kSlots;
  // The kernel took less than one send's worth: datagrams were cut, and so it would go on.
  refused_ = static_cast<size_t>(sent) < bytes;
  return sent;
}

std::optional<SendStatus> SideSender::failed(int code) {
  switch (code) {
    case EAGAIN:
    case ENOBUFS:
    case ENOMEM:
      return SendStatus::kWouldBlock;
    case EMSGSIZE:
      return SendStatus::kTooBig;
    case ECONNREFUSED:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
      return SendStatus::kFailed;
    default:
      refused_ = true;
      return std::nullopt;
  }
}

std::vector<int> SideSender::sockets() const {
  std::vector<int> sockets;
  for (const Connection& connection : connections_) {
    if (connection.fd.valid()) sockets.push_back(connection.fd.get());
  }
  return sockets;
}

}  // namespace farverbs::io
