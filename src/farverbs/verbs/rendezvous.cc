#include "farverbs/verbs/rendezvous.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "farverbs/base/byte_order.h"

namespace farverbs::verbs {
namespace {

using Clock = std::chrono::steady_clock;

// A peer that takes nothing for this long is given up on.
constexpr Duration kSendPatience = Duration::seconds(60);
// Storage for a message grows as its bytes arrive, so that an announced length alone costs nothing.
constexpr size_t kReceiveStep = 256 << 10;
constexpr size_t kLengthBytes = 4;

// When an operation has to be done; Duration::max() is never.
class Deadline {
 public:
  explicit Deadline(Duration timeout)
      : never_(timeout == Duration::max()),
        at_(Clock::now() + std::chrono::nanoseconds(never_ ? 0 : timeout.ns())) {}

  // For poll(2): milliseconds left rounded up, -1 for ever.
  int milliseconds_left() const {
    if (never_) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000'000));
  }
  bool passed() const { return !never_ && Clock::now() >= at_; }

 private:
  bool never_;
  Clock::time_point at_;
};

// ETIMEDOUT when the deadline passes first. Errors and hang-ups count as ready: the next read or
// write tells them.
Result<void> wait_until_ready(int fd, short events, const Deadline& deadline, const char* what) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, deadline.milliseconds_left());
    if (ready > 0) return {};
    if (ready == 0 && deadline.passed()) return Error{ETIMEDOUT, std::string(what)};
    if (ready < 0 && errno != EINTR) return Error::from_errno("poll");
  }
}

bool would_block(int code) { return code == EAGAIN || code == EWOULDBLOCK || code == EINTR; }

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

SocketAddress to_socket_address(const IpAddress& address, uint16_t port) {
  SocketAddress out;
  if (address.is_v4()) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    std::memcpy(&v4->sin_addr, address.bytes().data(), 4);
    out.length = sizeof *v4;
  } else {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    std::memcpy(&v6->sin6_addr, address.bytes().data(), 16);
    out.length = sizeof *v6;
  }
  return out;
}

// A v4-mapped IPv6 address (of a dual-stack listener) gives its IPv4 address.
Endpoint to_endpoint(const sockaddr_storage& storage) {
  if (storage.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
    return {IpAddress::v4(ntohl(v4->sin_addr.s_addr)), ntohs(v4->sin_port)};
  }
  if (storage.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
    Gid gid;
    std::memcpy(gid.data(), &v6->sin6_addr, gid.size());
    return {IpAddress::from_gid(gid), ntohs(v6->sin6_port)};
  }
  return {};
}

Endpoint endpoint_of(int fd, int (*name)(int, sockaddr*, socklen_t*)) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (name(fd, address.get(), &address.length) != 0) return {};
  return to_endpoint(address.storage);
}

void set_option(int fd, int level, int option, int value) {
  // Only comfort depends on these options; a socket without them works as well.
  (void)::setsockopt(fd, level, option, &value, sizeof value);
}

// Small messages must not wait for company, and a peer whose machine has vanished must be noticed
// although nothing is being sent: within 10 + 4 x 5 seconds.
void prepare(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags >= 0) (void)::fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  (void)::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

Result<void> finish_connect(int fd, const Deadline& deadline) {
  FV_TRY(wait_until_ready(fd, POLLOUT, deadline, "no answer in time"));
  int code = 0;
  socklen_t length = sizeof code;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &length) != 0) code = errno;
  if (code != 0) return Error{code, std::strerror(code)};
  return {};
}

Result<int> connect_to(const addrinfo& candidate, const Deadline& deadline) {
  const int fd = ::socket(candidate.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return Error{errno, std::strerror(errno)};
  if (::connect(fd, candidate.ai_addr, candidate.ai_addrlen) != 0) {
    const int code = errno;
    Result<void> finished = code == EINPROGRESS || code == EINTR
                                ? finish_connect(fd, deadline)
                                : Result<void>(Error{code, std::strerror(code)});
    if (!finished.ok()) {
      ::close(fd);
      return finished.error();
    }
  }
  return fd;
}

const char* advice_for(int code) {
  switch (code) {
    case ECONNREFUSED:
      return " (is the server running, and is the port right?)";
    case ETIMEDOUT:
      return " (does a firewall drop the port?)";
    case EHOSTUNREACH:
    case ENETUNREACH:
      return " (is there a route to it?)";
    default:
      return "";
  }
}

Result<void> receive_exactly(int fd, std::byte* out, size_t length, const Deadline& deadline,
                             size_t* received) {
  *received = 0;
  while (*received < length) {
    const ssize_t n = ::recv(fd, out + *received, length - *received, 0);
    if (n > 0) {
      *received += static_cast<size_t>(n);
      continue;
    }
    if (n == 0) return Error{EPIPE, "the peer closed the connection"};
    if (errno == ECONNRESET) return Error{EPIPE, "the peer reset the connection"};
    if (!would_block(errno)) return Error::from_errno("the connection to the peer failed");
    FV_TRY(wait_until_ready(fd, POLLIN, deadline, "the peer said nothing in time"));
  }
  return {};
}

// QpAddress on the connection: version, path MTU code, UDP port, far transport's version, QPN, PSN,
// GID.
constexpr uint8_t kAddressVersion = 2;
constexpr size_t kAddressBytes = 28;

std::string encode(const QpAddress& address) {
  std::array<std::byte, kAddressBytes> out{};
  out[0] = std::byte{kAddressVersion};
  out[1] = static_cast<std::byte>(address.path_mtu);
  store_be(out.data() + 2, address.udp_port);
  store_be(out.data() + 4, uint32_t{address.far_version} << 24 | address.qpn.value());
  store_be(out.data() + 8, address.psn.value());
  std::memcpy(out.data() + 12, address.gid.data(), address.gid.size());
  return std::string(reinterpret_cast<const char*>(out.data()), out.size());
}

Result<QpAddress> decode(const std::string& message) {
  const auto* in = reinterpret_cast<const std::byte*>(message.data());
  if (message.size() != kAddressBytes || in[0] != std::byte{kAddressVersion}) {
    return Error{EPROTO,
                 "the peer sent something else than a QP address: is it the same program, "
                 "in the same version?"};
  }
  const auto mtu = std::to_integer<uint8_t>(in[1]);
  const auto qpn = load_be<uint32_t>(in + 4) & Qpn::kMask;
  const auto psn = load_be<uint32_t>(in + 8);
  const bool mtu_exists =
      mtu >= static_cast<uint8_t>(PathMtu::k256) && mtu <= static_cast<uint8_t>(PathMtu::k4096);
  if (!mtu_exists || psn > Psn::kMask) {
    return Error{EPROTO, "the peer sent a QP address with a field out of range"};
  }
  QpAddress address;
  address.path_mtu = static_cast<PathMtu>(mtu);
  address.udp_port = load_be<uint16_t>(in + 2);
  address.qpn = Qpn(qpn);
  address.far_version = std::to_integer<uint8_t>(in[4]);
  address.psn = Psn(psn);
  std::memcpy(address.gid.data(), in + 12, address.gid.size());
  return address;
}

}  // namespace

Result<Rendezvous> Rendezvous::connect(const std::string& host, uint16_t port, Duration timeout) {
  const Deadline deadline(timeout);
  const std::string place = host + " port " + std::to_string(port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int looked_up = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (looked_up != 0) {
    return Error{EHOSTUNREACH, "cannot find host '" + host + "': " + ::gai_strerror(looked_up)};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> candidates(found, ::freeaddrinfo);
  Error last{EADDRNOTAVAIL, "it has no address"};
  for (const addrinfo* candidate = found; candidate != nullptr; candidate = candidate->ai_next) {
    Result<int> fd = connect_to(*candidate, deadline);
    if (fd.ok()) return Rendezvous(*fd);
    last = fd.error();
  }
  return Error{last.code,
               "cannot connect to " + place + ": " + last.message + advice_for(last.code)};
}

Rendezvous::Rendezvous(int fd) : fd_(fd) {
  if (fd_ >= 0) prepare(fd_);
}

Rendezvous::Rendezvous(Rendezvous&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Rendezvous& Rendezvous::operator=(Rendezvous&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

Rendezvous::~Rendezvous() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> Rendezvous::send(std::string_view message) {
  if (message.size() > kMaxRendezvousMessage) {
    return Error{EMSGSIZE, "a message of " + std::to_string(message.size()) +
                               " bytes is longer than a rendezvous carries"};
  }
  std::array<std::byte, kLengthBytes> prefix;
  store_be(prefix.data(), static_cast<uint32_t>(message.size()));
  iovec parts[2] = {{prefix.data(), prefix.size()},
                    {const_cast<char*>(message.data()), message.size()}};
  msghdr header{};
  header.msg_iov = parts;
  header.msg_iovlen = 2;
  while (parts[0].iov_len + parts[1].iov_len > 0) {
    const ssize_t n = ::sendmsg(fd_, &header, MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EPIPE || errno == ECONNRESET) {
        return Error{EPIPE, "the peer closed the connection"};
      }
      if (!would_block(errno)) return Error::from_errno("the connection to the peer failed");
      FV_TRY(wait_until_ready(fd_, POLLOUT, Deadline(kSendPatience),
                              "the peer takes no more messages"));
      continue;
    }
    size_t left = static_cast<size_t>(n);
    for (iovec& part : parts) {
      const size_t taken = std::min(left, part.iov_len);
      part.iov_base = static_cast<char*>(part.iov_base) + taken;
      part.iov_len -= taken;
      left -= taken;
    }
  }
  return {};
}

Result<std::string> Rendezvous::receive(Duration timeout) {
  const Deadline deadline(timeout);
  std::array<std::byte, kLengthBytes> prefix;
  size_t received = 0;
  if (Result<void> got = receive_exactly(fd_, prefix.data(), prefix.size(), deadline, &received);
      !got.ok()) {
    // Part of a length was taken off the stream: whatever follows would be misread.
    if (received > 0) ::shutdown(fd_, SHUT_RDWR);
    return got.error();
  }
  const auto length = load_be<uint32_t>(prefix.data());
  if (length > kMaxRendezvousMessage) {
    ::shutdown(fd_, SHUT_RDWR);
    return Error{EMSGSIZE, "the peer announced a message of " + std::to_string(length) +
                               " bytes: it does not speak the Farverbs rendezvous"};
  }
  std::string message;
  while (message.size() < length) {
    const size_t begin = message.size();
    message.resize(std::min<size_t>(length, begin + kReceiveStep));
    auto* out = reinterpret_cast<std::byte*>(message.data()) + begin;
    if (Result<void> got = receive_exactly(fd_, out, message.size() - begin, deadline, &received);
        !got.ok()) {
      ::shutdown(fd_, SHUT_RDWR);
      return got.error();
    }
  }
  return message;
}

Result<QpAddress> Rendezvous::exchange(const QpAddress& mine, Duration timeout) {
  FV_TRY(send(encode(mine)));
  FV_ASSIGN(const std::string theirs, receive(timeout));
  return decode(theirs);
}

IpAddress Rendezvous::local_address() const { return endpoint_of(fd_, ::getsockname).address; }

IpAddress Rendezvous::peer_address() const { return endpoint_of(fd_, ::getpeername).address; }

Result<RendezvousListener> RendezvousListener::listen(const IpAddress& address, uint16_t port) {
  const std::string place = Endpoint{address, port}.to_string();
  const int fd =
      ::socket(address.is_v4() ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return Error::from_errno("cannot make a socket for " + place);
  RendezvousListener listener;
  listener.fd_ = fd;
  set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  // :: serves IPv4 clients as well.
  if (address.is_v6()) set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  SocketAddress local = to_socket_address(address, port);
  if (::bind(fd, local.get(), local.length) != 0 || ::listen(fd, 128) != 0) {
    const int code = errno;
    const char* advice = code == EADDRINUSE      ? " (another server runs there: choose a port)"
                         : code == EADDRNOTAVAIL ? " (no interface of this machine has it)"
                                                 : "";
    return Error{code, "cannot listen on " + place + ": " + std::strerror(code) + advice};
  }
  listener.port_ = endpoint_of(fd, ::getsockname).port;
  return listener;
}

RendezvousListener::RendezvousListener(RendezvousListener&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), port_(other.port_) {}

RendezvousListener& RendezvousListener::operator=(RendezvousListener&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = std::exchange(other.fd_, -1);
    port_ = other.port_;
  }
  return *this;
}

RendezvousListener::~RendezvousListener() {
  if (fd_ >= 0) ::close(fd_);
}

Result<Rendezvous> RendezvousListener::accept(Duration timeout) {
  const Deadline deadline(timeout);
  for (;;) {
    FV_TRY(wait_until_ready(fd_, POLLIN, deadline, "nobody connected in time"));
    const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) return Rendezvous(fd);
    // A client that left again before it was accepted is no error of the listener.
    if (!would_block(errno) && errno != ECONNABORTED) {
      return Error::from_errno("cannot accept a connection");
    }
  }
}

}  // namespace farverbs::verbs
