#include "farverbs/io/splice_sender.h"

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

std::unique_ptr<SpliceSender> SpliceSender::open(const IpAddress& local) {
  static const bool offered = kernel_splices();
  if (!offered) return nullptr;
  FileDescriptor memory(::memfd_create("farverbs-bursts", MFD_CLOEXEC));
  constexpr size_t kBytes = kSlots * kSlotBytes;
  if (!memory.valid() || ::ftruncate(memory.get(), kBytes) != 0) return nullptr;
  void* ring =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory.get(), 0);
  if (ring == MAP_FAILED) return nullptr;
  return std::unique_ptr<SpliceSender>(
      new SpliceSender(local, std::move(memory), static_cast<std::byte*>(ring)));
}

SpliceSender::~SpliceSender() { ::munmap(ring_, kSlots * kSlotBytes); }

SpliceSender::Connection* SpliceSender::connection_to(const Endpoint& to) {
  for (Connection& known : connections_) {
    if (known.fd.valid() && known.to == to) return &known;
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
  Connection& place = connections_[replaced_];
  replaced_ = (replaced_ + 1) % connections_.size();
  place = Connection{to, std::move(fd)};
  return &place;
}

bool SpliceSender::adopt(Connection& connection, const TxFlow& flow, size_t segment_size) const {
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

SendStatus SpliceSender::send(const TxFlow& flow, const wire::TxBurst& burst) {
  Connection* const connection = connection_to(flow.destination);
  if (connection == nullptr || !adopt(*connection, flow, burst.segment_size())) {
    refused_ = true;
    return SendStatus::kFailed;
  }
  const size_t size = burst.bytes().size();
  // What a socket was told of an earlier datagram (ICMP) fails the next call, once.
  for (int attempts = 0;; ++attempts) {
    off_t at = static_cast<off_t>(next_ * kSlotBytes);
    const ssize_t sent = ::sendfile(connection->fd.get(), memory_.get(), &at, size);
    if (sent > 0) {
      next_ = (next_ + 1) % kSlots;
      // The kernel took less than one send's worth: datagrams were cut, and so it would go on.
      refused_ = static_cast<size_t>(sent) < size;
      return SendStatus::kSent;
    }
    if (sent == 0) errno = EINVAL;
    if (errno == ECONNREFUSED && attempts == 0) continue;
    return failed(errno);
  }
}

SendStatus SpliceSender::failed(int code) {
  if (code == EAGAIN || code == ENOBUFS || code == ENOMEM) return SendStatus::kWouldBlock;
  if (code == EMSGSIZE) return SendStatus::kTooBig;
  if (code != ECONNREFUSED && code != ENETUNREACH && code != EHOSTUNREACH && code != ENETDOWN) {
    refused_ = true;
  }
  return SendStatus::kFailed;
}

std::vector<int> SpliceSender::sockets() const {
  std::vector<int> sockets;
  for (const Connection& connection : connections_) {
    if (connection.fd.valid()) sockets.push_back(connection.fd.get());
  }
  return sockets;
}

}  // namespace farverbs::io
