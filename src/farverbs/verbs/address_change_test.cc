// Real sockets: a relay between two ends changes the port that one of them is seen at, in the midst
// of a transfer. The other follows it, and nothing fails.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "farverbs/verbs/test_pair.h"

namespace farverbs::verbs {
namespace {

class UdpSocket {
 public:
  UdpSocket() : fd_(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&any), sizeof any), 0);
    socklen_t size = sizeof any;
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&any), &size);
    port_ = ntohs(any.sin_port);
    const int buffer = 4 << 20;
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
  }
  ~UdpSocket() { ::close(fd_); }
  UdpSocket(const UdpSocket&) = delete;
  UdpSocket& operator=(const UdpSocket&) = delete;
  int fd() const { return fd_; }
  uint16_t port() const { return port_; }

 private:
  int fd_;
  uint16_t port_ = 0;
};

// Both ends have one address and port; who a datagram is for says its QP number.
class Relay {
 public:
  Relay() : to_a_(new UdpSocket), to_b_(new UdpSocket), thread_([this] { run(); }) {}
  ~Relay() {
    stop_.store(true);
    thread_.join();
  }
  uint16_t port_for_a() const { return first_port_for_a_; }
  uint16_t port_for_b() const { return to_b_->port(); }
  // From now on A sees B at another port, and what it sends to the old one is lost.
  void rebind() { rebind_.store(true); }
  bool rebound() const { return rebound_.load(); }

 private:
  void run() {
    while (!stop_.load()) {
      if (rebind_.exchange(false)) {
        auto fresh = std::make_unique<UdpSocket>();
        to_a_ = std::move(fresh);
        rebound_.store(true);
      }
      std::array<pollfd, 2> ready{pollfd{to_a_->fd(), POLLIN, 0}, pollfd{to_b_->fd(), POLLIN, 0}};
      ::poll(ready.data(), ready.size(), 20);
      forward(*to_a_, *to_b_);
      forward(*to_b_, *to_a_);
    }
  }
  static void forward(const UdpSocket& from, const UdpSocket& out) {
    std::array<std::byte, 65'536> datagram;
    for (int i = 0; i < 64; ++i) {
      const ssize_t size = ::recv(from.fd(), datagram.data(), datagram.size(), 0);
      if (size <= 0) return;
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      to.sin_port = htons(kRoceUdpPort);
      (void)::sendto(out.fd(), datagram.data(), static_cast<size_t>(size), 0,
                     reinterpret_cast<sockaddr*>(&to), sizeof to);
    }
  }

  std::unique_ptr<UdpSocket> to_a_;
  std::unique_ptr<UdpSocket> to_b_;
  uint16_t first_port_for_a_ = to_a_->port();
  std::atomic<bool> stop_{false};
  std::atomic<bool> rebind_{false};
  std::atomic<bool> rebound_{false};
  std::thread thread_;  // last: it uses the rest
};

TEST(AddressChange, ATransferGoesOnWhenTheRelayChangesItsPort) {
  constexpr uint32_t kMessage = 256 << 10;
  constexpr uint64_t kMessages = 40;
  Relay relay;
  EndOptions options;
  End a(options);
  End b(options);
  ConnectOptions connect;
  connect.transport = Transport::kFar;
  connect.timeout = 20;
  QpAddress b_as_seen = b.qp.address();
  QpAddress a_as_seen = a.qp.address();
  b_as_seen.udp_port = relay.port_for_a();
  a_as_seen.udp_port = relay.port_for_b();
  must(a.qp.connect(b_as_seen, connect));
  must(b.qp.connect(a_as_seen, connect));
  fill(a.memory, 7);
  uint64_t posted = 0;
  for (uint64_t done = 0; done < kMessages; ++done) {
    for (; posted < kMessages && posted < done + 4; ++posted) {
      // In turn to the target and from it, so that both ends have something to send.
      const bool read = posted % 2 == 1;
      must(a.post(read ? SendOpcode::kRead : SendOpcode::kWrite, posted, read ? kMessage : 0,
                  kMessage, &b.region, read ? kMessage : 0));
    }
    if (done == kMessages / 4) relay.rebind();
    const WorkCompletion wc = a.completion();
    ASSERT_EQ(wc.status, model::CompletionStatus::kSuccess);
    ASSERT_EQ(wc.wr_id, done);
    // None of the rest gets ahead of the change.
    while (done == kMessages / 4 && !relay.rebound()) std::this_thread::yield();
  }
  EXPECT_EQ(std::memcmp(a.memory.data(), b.memory.data(), kMessage), 0);
}

}  // namespace
}  // namespace farverbs::verbs
