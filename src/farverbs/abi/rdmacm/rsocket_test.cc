// rsockets through the public interface, over the loopback.
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rdma/rsocket.h>

#include <numeric>
#include <thread>
#include <vector>

#include "farverbs/abi/rdmacm/rdmacm_testing.h"

namespace farverbs::rdmacm::testing {
namespace {

struct Listener {
  Listener() {
    sockaddr_in any_port = loopback(0);
    EXPECT_EQ(rbind(number, generic(any_port), sizeof any_port), 0) << std::strerror(errno);
    EXPECT_EQ(rlisten(number, 5), 0);
    socklen_t size = sizeof address;
    EXPECT_EQ(rgetsockname(number, generic(address), &size), 0);
    EXPECT_EQ(size, sizeof address);
  }
  ~Listener() { rclose(number); }
  int number = rsocket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
};

struct Pair {
  Pair() {
    std::thread client([this] {
      EXPECT_EQ(rconnect(a, generic(listener.address), sizeof listener.address), 0)
          << std::strerror(errno);
    });
    b = raccept(listener.number, nullptr, nullptr);
    client.join();
    EXPECT_GE(b, 0) << std::strerror(errno);
  }
  ~Pair() {
    rclose(a);
    rclose(b);
  }
  Listener listener;
  int a = rsocket(AF_INET, SOCK_STREAM, 0);
  int b = -1;
};

TEST(Rsockets, BytesArriveInOrder) {
  Pair pair;
  std::vector<uint32_t> sent(4 << 20);
  std::iota(sent.begin(), sent.end(), 7u);
  const size_t bytes = sent.size() * sizeof sent[0];
  std::thread sender([&] {
    size_t at = 0;
    // Pieces of many sizes, so that they end anywhere in the buffers.
    for (size_t piece = 1; at < bytes; piece = piece * 5 % 100'003 + 1) {
      const size_t size = std::min(piece, bytes - at);
      ASSERT_EQ(rsend(pair.a, reinterpret_cast<const char*>(sent.data()) + at, size, 0),
                static_cast<ssize_t>(size));
      at += size;
    }
    EXPECT_EQ(rshutdown(pair.a, SHUT_WR), 0);
  });
  std::vector<uint32_t> received(sent.size());
  size_t got = 0;
  while (got < bytes) {
    const ssize_t n = rrecv(pair.b, reinterpret_cast<char*>(received.data()) + got,
                            std::min<size_t>(bytes - got, 77'777), 0);
    ASSERT_GT(n, 0) << std::strerror(errno);
    got += static_cast<size_t>(n);
  }
  sender.join();
  EXPECT_EQ(sent, received);
  char more = 0;
  EXPECT_EQ(rrecv(pair.b, &more, 1, 0), 0);  // the end
  // The other direction is still open.
  EXPECT_EQ(rsend(pair.b, "bye", 3, 0), 3);
  char last[8] = {};
  EXPECT_EQ(rrecv(pair.a, last, 3, MSG_WAITALL), 3);
  EXPECT_STREQ(last, "bye");
}

TEST(Rsockets, NonBlockingAndPoll) {
  Pair pair;
  ASSERT_EQ(rfcntl(pair.a, F_SETFL, O_NONBLOCK), 0);
  EXPECT_EQ(rfcntl(pair.a, F_GETFL), O_NONBLOCK);
  char byte = 0;
  EXPECT_EQ(rrecv(pair.a, &byte, 1, 0), -1);
  EXPECT_EQ(errno, EAGAIN);
  pollfd fd{pair.a, POLLIN | POLLOUT, 0};
  EXPECT_EQ(rpoll(&fd, 1, kPatienceMs), 1);
  EXPECT_EQ(fd.revents, POLLOUT);
  fd.events = POLLIN;
  EXPECT_EQ(rpoll(&fd, 1, 20), 0);
  std::thread other([&] { EXPECT_EQ(rsend(pair.b, "x", 1, 0), 1); });
  EXPECT_EQ(rpoll(&fd, 1, kPatienceMs), 1);
  EXPECT_EQ(fd.revents, POLLIN);
  other.join();
  EXPECT_EQ(rrecv(pair.a, &byte, 1, MSG_PEEK), 1);
  EXPECT_EQ(rrecv(pair.a, &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'x');
  // A peer that does not read stops the sender, not for ever.
  std::vector<char> much(256 * 1024);
  ssize_t n = 0;
  size_t queued = 0;
  while ((n = rsend(pair.a, much.data(), much.size(), 0)) > 0) queued += static_cast<size_t>(n);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_GT(queued, 0u);
  for (size_t got = 0; got < queued; got += static_cast<size_t>(n)) {
    n = rrecv(pair.b, much.data(), much.size(), 0);
    ASSERT_GT(n, 0);
  }
  fd.events = POLLOUT;
  EXPECT_EQ(rpoll(&fd, 1, kPatienceMs), 1);
}

TEST(Rsockets, AClosedPeerIsTheEnd) {
  Pair pair;
  EXPECT_EQ(rsend(pair.b, "last", 4, 0), 4);
  EXPECT_EQ(rclose(pair.b), 0);
  char text[8] = {};
  EXPECT_EQ(rrecv(pair.a, text, sizeof text, 0), 4);
  EXPECT_EQ(rrecv(pair.a, text, sizeof text, 0), 0);
  EXPECT_EQ(rsend(pair.a, "x", 1, 0), -1);
  EXPECT_EQ(rclose(pair.b), -1);
  EXPECT_EQ(errno, EBADF);
}

TEST(Rsockets, NobodyListens) {
  sockaddr_in to{};
  {
    const Listener gone;
    to = gone.address;
  }
  const int number = rsocket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(rconnect(number, generic(to), sizeof to), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  rclose(number);
}

TEST(Rsockets, MappedMemory) {
  Listener listener;
  int mappings = 4;
  ASSERT_EQ(rsetsockopt(listener.number, SOL_RDMA, RDMA_IOMAPSIZE, &mappings, sizeof mappings), 0);
  const int a = rsocket(AF_INET, SOCK_STREAM, 0);
  std::thread client(
      [&] { EXPECT_EQ(rconnect(a, generic(listener.address), sizeof listener.address), 0); });
  const int b = raccept(listener.number, nullptr, nullptr);
  client.join();
  std::vector<char> memory(100'000);
  ASSERT_EQ(riomap(a, memory.data(), memory.size(), PROT_WRITE, 0, 1000), 1000);
  EXPECT_EQ(rsend(a, "!", 1, 0), 1);
  char byte = 0;
  EXPECT_EQ(rrecv(b, &byte, 1, 0), 1);
  const std::vector<char> data(90'000, 'z');
  EXPECT_EQ(riowrite(b, data.data(), data.size(), 1010, 0), data.size());
  EXPECT_EQ(rsend(b, "?", 1, 0), 1);
  EXPECT_EQ(rrecv(a, &byte, 1, 0), 1);
  EXPECT_EQ(memory[9], 0);
  EXPECT_EQ(memory[10], 'z');
  EXPECT_EQ(memory[90'009], 'z');
  EXPECT_EQ(memory[90'010], 0);
  EXPECT_EQ(riounmap(a, memory.data(), memory.size()), 0);
  rclose(a);
  rclose(b);
}

TEST(Rsockets, DatagramsGoByUdpFirstThenByRdma) {
  const int server = rsocket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in address = loopback(0);
  ASSERT_EQ(rbind(server, generic(address), sizeof address), 0);
  socklen_t size = sizeof address;
  ASSERT_EQ(rgetsockname(server, generic(address), &size), 0);
  const int client = rsocket(AF_INET, SOCK_DGRAM, 0);
  ASSERT_EQ(rconnect(client, generic(address), sizeof address), 0) << std::strerror(errno);
  for (int i = 0; i < 200; ++i) {
    const std::string text = "datagram " + std::to_string(i) + std::string(size_t(i) * 9, 'x');
    ASSERT_EQ(rsend(client, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    std::string got(4096, '?');
    sockaddr_in from{};
    size = sizeof from;
    const ssize_t n = rrecvfrom(server, got.data(), got.size(), 0, generic(from), &size);
    ASSERT_EQ(std::string_view(got.data(), n < 0 ? 0 : size_t(n)), text);
    ASSERT_EQ(rsendto(server, "ok", 2, 0, generic(from), sizeof from), 2);
    char answer[8] = {};
    ASSERT_EQ(rrecv(client, answer, sizeof answer, 0), 2);
  }
  ASSERT_EQ(rfcntl(client, F_SETFL, O_NONBLOCK), 0);
  char byte = 0;
  EXPECT_EQ(rrecv(client, &byte, 1, 0), -1);
  EXPECT_EQ(errno, EAGAIN);
  const std::string much(3000, 'x');
  EXPECT_EQ(rsend(client, much.data(), much.size(), 0), -1);
  EXPECT_EQ(errno, EMSGSIZE);
  EXPECT_EQ(rlisten(client, 1), -1);
  rclose(client);
  rclose(server);
}

TEST(Rsockets, BadInput) {
  EXPECT_EQ(rsocket(AF_UNIX, SOCK_STREAM, 0), -1);
  EXPECT_EQ(rsocket(AF_INET, SOCK_RAW, 0), -1);
  for (const int number : {-1, 0, 1'000'000}) {
    char byte = 0;
    errno = 0;
    EXPECT_EQ(rrecv(number, &byte, 1, 0), -1);
    EXPECT_EQ(errno, EBADF);
    EXPECT_EQ(rsend(number, &byte, 1, 0), -1);
    EXPECT_EQ(rclose(number), -1);
    EXPECT_EQ(raccept(number, nullptr, nullptr), -1);
  }
  const int fresh = rsocket(AF_INET, SOCK_STREAM, 0);
  char byte = 0;
  EXPECT_EQ(rrecv(fresh, &byte, 1, 0), -1);
  EXPECT_EQ(errno, ENOTCONN);
  EXPECT_EQ(rconnect(fresh, nullptr, 0), -1);
  EXPECT_EQ(raccept(fresh, nullptr, nullptr), -1);
  int on = 1;
  EXPECT_EQ(rsetsockopt(fresh, 12345, 1, &on, sizeof on), -1);
  EXPECT_EQ(rsetsockopt(fresh, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
  EXPECT_EQ(rsetsockopt(fresh, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on - 1), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rclose(fresh), 0);
  Pair pair;
  const auto refuses = [](ssize_t result) { return result == -1 && errno == EFAULT; };
  const iovec nowhere{nullptr, 1};
  EXPECT_TRUE(refuses(rsend(pair.a, nullptr, 1, 0)));
  EXPECT_TRUE(refuses(rwritev(pair.a, &nowhere, 1)));
  EXPECT_TRUE(refuses(rwritev(pair.a, nullptr, 1)));
  EXPECT_TRUE(refuses(rrecv(pair.b, nullptr, 1, 0)));
  EXPECT_TRUE(refuses(rreadv(pair.b, &nowhere, 1)));
  EXPECT_EQ(rsend(pair.a, nullptr, 0, 0), 0);
}

}  // namespace
}  // namespace farverbs::rdmacm::testing
