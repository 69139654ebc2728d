#include "tools/compare/ends.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <ctime>
#include <fstream>
#include <vector>

#include <nlohmann/json.hpp>

#include "farverbs/base/time.h"
#include "tools/common/process_usage.h"

namespace farverbs::tools::compare {
namespace {

using nlohmann::json;

volatile std::sig_atomic_t stop_asked = 0;
void ask_to_stop(int) { stop_asked = 1; }

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Result<void> write_report(const std::string& path, const json& value) {
  std::ofstream file(path);
  file << value.dump();
  file.close();
  if (!file) return Error{EIO, "cannot write " + path};
  return {};
}

Result<sockaddr_in> address_of(const std::string& text, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, text.c_str(), &address.sin_addr) != 1) {
    return invalid("'" + text + "' is no IPv4 address");
  }
  return address;
}

uint16_t checksum(const uint8_t* data, size_t bytes) {
  uint32_t sum = 0;
  for (size_t i = 0; i + 1 < bytes; i += 2) {
    sum += static_cast<uint32_t>(data[i] << 8 | data[i + 1]);
  }
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

class Pinger {
 public:
  Pinger(int fd, const PingOptions& options) : fd_(fd), options_(options) {}

  Result<void> send(Time now) {
    std::array<uint8_t, 8> echo{ICMP_ECHO};
    const uint16_t sequence = static_cast<uint16_t>(sent_.size());
    const uint16_t id = identifier();
    echo[4] = static_cast<uint8_t>(id >> 8);
    echo[5] = static_cast<uint8_t>(id);
    echo[6] = static_cast<uint8_t>(sequence >> 8);
    echo[7] = static_cast<uint8_t>(sequence);
    const uint16_t sum = checksum(echo.data(), echo.size());
    echo[2] = static_cast<uint8_t>(sum >> 8);
    echo[3] = static_cast<uint8_t>(sum);
    sent_.push_back({now, wall_now()});
    FV_ASSIGN(const sockaddr_in peer, address_of(options_.peer, 0));
    if (::sendto(fd_, echo.data(), echo.size(), 0, reinterpret_cast<const sockaddr*>(&peer),
                 sizeof peer) < 0 &&
        errno != ENOBUFS && errno != EAGAIN) {
      return Error::from_errno("cannot send an echo request");
    }
    return {};
  }

  void receive() {
    std::array<uint8_t, 128> packet;
    alignas(cmsghdr) std::array<char, 64> control;
    iovec piece{packet.data(), packet.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    while (true) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      const ssize_t n = ::recvmsg(fd_, &message, MSG_DONTWAIT);
      if (n < 0) return;
      take({packet.data(), static_cast<size_t>(n)}, stamp_of(message));
    }
  }

  json report() const {
    json samples = json::array();
    for (const auto& [at, rtt] : samples_) samples.push_back({at, rtt});
    return {{"sent", sent_.size()}, {"samples", std::move(samples)}};
  }

 private:
  struct Sent {
    Time monotonic;
    Time wall;
  };

  static uint16_t identifier() { return static_cast<uint16_t>(::getpid()); }
  static Time wall_now() {
    timespec t{};
    ::clock_gettime(CLOCK_REALTIME, &t);
    return Time::from_ns(int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec);
  }
  // When the kernel saw it: this process may be waiting for a processor.
  static Time stamp_of(msghdr& message) {
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS) continue;
      timespec t{};
      std::memcpy(&t, CMSG_DATA(c), sizeof t);
      return Time::from_ns(int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec);
    }
    return wall_now();
  }

  void take(std::span<const uint8_t> packet, Time arrived) {
    const size_t header = packet.empty() ? 0 : size_t{packet[0] & 15u} * 4;
    if (packet.size() < header + 8) return;
    const uint8_t* echo = packet.data() + header;
    if (echo[0] != ICMP_ECHOREPLY || (echo[4] << 8 | echo[5]) != identifier()) return;
    // The newest request that has this sequence number.
    size_t index = static_cast<size_t>(echo[6] << 8 | echo[7]);
    while (index + 65'536 < sent_.size()) index += 65'536;
    if (index >= sent_.size()) return;
    const Sent& request = sent_[index];
    samples_.emplace_back((request.monotonic - Time()).to_seconds(),
                          (arrived - request.wall).to_seconds() * 1e3);
  }

  int fd_;
  const PingOptions& options_;
  std::vector<Sent> sent_;
  std::vector<std::pair<double, double>> samples_;
};

/// All of it, or an error.
Result<void> send_bytes(int fd, uint64_t count) {
  std::vector<char> block(256 * 1024, 'f');
  while (count > 0) {
    const ssize_t n =
        ::send(fd, block.data(), std::min<uint64_t>(count, block.size()), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Error::from_errno("sending");
    count -= static_cast<uint64_t>(n);
  }
  return {};
}

}  // namespace

Result<void> run_ping(const PingOptions& options) {
  const Descriptor socket(::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP));
  if (socket.get() < 0) return Error::from_errno("cannot open a raw socket");
  const int on = 1, room = 1 << 20;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
  std::signal(SIGTERM, ask_to_stop);
  std::signal(SIGINT, ask_to_stop);
  Pinger pinger(socket.get(), options);
  const Time end = clock_now() + Duration::from_seconds(options.seconds);
  const Duration every = Duration::from_seconds(options.every_seconds);
  Time next = clock_now();
  for (Time now = next; stop_asked == 0 && now < end; now = clock_now()) {
    if (now >= next) {
      FV_TRY(pinger.send(now));
      // One that is late does not send twice.
      next = std::max(next + every, now + every / 2);
    }
    pollfd waiting{socket.get(), POLLIN, 0};
    const int64_t ms = std::max<int64_t>((next - clock_now()).ns() / 1'000'000, 0);
    ::poll(&waiting, 1, static_cast<int>(std::min<int64_t>(ms + 1, 50)));
    pinger.receive();
  }
  return write_report(options.report, pinger.report());
}

Result<void> run_sink(const AmountOptions& options) {
  const Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  FV_ASSIGN(const sockaddr_in address, address_of("0.0.0.0", options.port));
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener.get(), 1) != 0) {
    return Error::from_errno("cannot listen");
  }
  const Descriptor connection(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (connection.get() < 0) return Error::from_errno("cannot accept");
  std::vector<char> block(1 << 20);
  uint64_t got = 0;
  while (got < options.bytes) {
    const ssize_t n = ::recv(connection.get(), block.data(), block.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Error::from_errno("receiving");
    got += static_cast<uint64_t>(n);
  }
  if (::send(connection.get(), "k", 1, MSG_NOSIGNAL) != 1) return Error::from_errno("confirming");
  // Until the other side has it.
  while (::recv(connection.get(), block.data(), block.size(), 0) > 0) continue;
  return {};
}

Result<void> run_source(const AmountOptions& options) {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, options.congestion.data(),
                   static_cast<socklen_t>(options.congestion.size())) != 0) {
    return Error::from_errno("the kernel does not offer " + options.congestion);
  }
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  FV_ASSIGN(const sockaddr_in peer, address_of(options.peer, options.port));
  const Time began = clock_now();
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&peer), sizeof peer) != 0) {
    return Error::from_errno("cannot connect to " + options.peer);
  }
  const Duration setup = clock_now() - began;
  FV_TRY(send_bytes(socket.get(), options.bytes));
  char confirmation = 0;
  if (::recv(socket.get(), &confirmation, 1, 0) != 1) return Error::from_errno("no confirmation");
  return write_report(options.report, {{"seconds", (clock_now() - began).to_seconds()},
                                       {"setup_seconds", setup.to_seconds()}});
}

}  // namespace farverbs::tools::compare
