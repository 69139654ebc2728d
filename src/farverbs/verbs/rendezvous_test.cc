#include "farverbs/verbs/rendezvous.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <thread>

namespace farverbs::verbs {
namespace {

using std::chrono::steady_clock;

constexpr Duration kPatience = Duration::seconds(60);
constexpr Duration kShort = Duration::milliseconds(50);

IpAddress loopback() { return IpAddress::v4(0x7F000001); }

// A Rendezvous and the plain socket of whoever is at its other end.
struct Pair {
  Rendezvous mine;
  int peer;
  ~Pair() {
    if (peer >= 0) ::close(peer);
  }
  void peer_sends(const std::string& bytes) {
    ASSERT_EQ(::send(peer, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void peer_closes() {
    ::close(peer);
    peer = -1;
  }
};

Pair make_pair() {
  int fds[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  return {Rendezvous(fds[0]), fds[1]};
}

std::string prefix(uint32_t length) {
  const uint32_t big_endian = htonl(length);
  return std::string(reinterpret_cast<const char*>(&big_endian), sizeof big_endian);
}

struct Connected {
  Rendezvous client;
  Rendezvous server;
};

Connected connect_over(const IpAddress& address) {
  auto listener = RendezvousListener::listen(address, 0);
  FV_CHECK(listener.ok());
  auto client = Rendezvous::connect(address.to_string(), listener->port(), kPatience);
  FV_CHECK(client.ok());
  auto server = listener->accept(kPatience);
  FV_CHECK(server.ok());
  return {std::move(client).value(), std::move(server).value()};
}

TEST(Rendezvous, CarriesMessagesBothWaysInOrder) {
  Connected pair = connect_over(loopback());
  ASSERT_TRUE(pair.client.send("one").ok());
  ASSERT_TRUE(pair.client.send("").ok());
  ASSERT_TRUE(pair.client.send(std::string("t\0o", 3)).ok());
  ASSERT_TRUE(pair.server.send("three").ok());
  EXPECT_EQ(pair.server.receive(kPatience).value(), "one");
  EXPECT_EQ(pair.server.receive(kPatience).value(), "");
  EXPECT_EQ(pair.server.receive(kPatience).value(), std::string("t\0o", 3));
  EXPECT_EQ(pair.client.receive(kPatience).value(), "three");
}

TEST(Rendezvous, KnowsBothAddresses) {
  const Connected pair = connect_over(loopback());
  EXPECT_EQ(pair.client.local_address(), loopback());
  EXPECT_EQ(pair.client.peer_address(), loopback());
  EXPECT_EQ(pair.server.local_address(), loopback());
}

TEST(Rendezvous, DualStackListenerShowsIpv4ClientsAsIpv4) {
  auto listener = RendezvousListener::listen(IpAddress::v6({}), 0);
  if (!listener.ok()) GTEST_SKIP() << "no IPv6 here: " << listener.error().message;
  auto client = Rendezvous::connect("127.0.0.1", listener->port(), kPatience);
  ASSERT_TRUE(client.ok()) << client.error().message;
  auto server = listener->accept(kPatience);
  ASSERT_TRUE(server.ok());
  EXPECT_EQ(server->local_address(), loopback());
}

TEST(Rendezvous, CarriesTheLargestMessageAndRefusesLonger) {
  Connected pair = connect_over(loopback());
  const std::string largest(kMaxRendezvousMessage, 'x');
  std::thread sender([&] { EXPECT_TRUE(pair.client.send(largest).ok()); });
  auto got = pair.server.receive(kPatience);
  sender.join();
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(*got, largest);
  EXPECT_EQ(pair.client.send(largest + "x").error().code, EMSGSIZE);
}

TEST(Rendezvous, ExchangesQpAddresses) {
  Connected pair = connect_over(loopback());
  QpAddress a;
  a.gid = loopback().to_gid();
  a.udp_port = 40'000;
  a.qpn = Qpn(0xABCDEF);
  a.psn = Psn(0x123456);
  a.path_mtu = PathMtu::k4096;
  QpAddress b = a;
  b.qpn = Qpn(7);
  b.path_mtu = PathMtu::k256;
  std::optional<QpAddress> at_server;
  std::thread server([&] {
    auto got = pair.server.exchange(b, kPatience);
    if (got.ok()) at_server = *got;
  });
  auto at_client = pair.client.exchange(a, kPatience);
  server.join();
  ASSERT_TRUE(at_client.ok());
  ASSERT_TRUE(at_server.has_value());
  EXPECT_EQ(at_server->qpn, a.qpn);
  EXPECT_EQ(at_server->psn, a.psn);
  EXPECT_EQ(at_server->gid, a.gid);
  EXPECT_EQ(at_server->udp_port, a.udp_port);
  EXPECT_EQ(at_server->path_mtu, a.path_mtu);
  EXPECT_EQ(at_client->qpn, b.qpn);
  EXPECT_EQ(at_client->path_mtu, b.path_mtu);
}

TEST(RendezvousBadPeer, ExchangeRefusesWhatIsNoAddress) {
  for (const std::string& message :
       {std::string("hello"), std::string(28, '\0'), std::string("\1\6", 2) + std::string(26, 'x'),
        std::string("\1\3\0\0\xFF\0\0\1", 8) + std::string(20, '\0')}) {
    Pair pair = make_pair();
    pair.peer_sends(prefix(static_cast<uint32_t>(message.size())) + message);
    EXPECT_EQ(pair.mine.exchange({}, kPatience).error().code, EPROTO);
  }
}

TEST(RendezvousBadPeer, HugeLengthIsRefusedAndEndsTheConnection) {
  Pair pair = make_pair();
  pair.peer_sends(prefix(kMaxRendezvousMessage + 1));
  const auto got = pair.mine.receive(kPatience);
  EXPECT_EQ(got.error().code, EMSGSIZE);
  EXPECT_EQ(pair.mine.receive(kPatience).error().code, EPIPE);
}

TEST(RendezvousBadPeer, GarbageLooksLikeAnAbsurdLength) {
  Pair pair = make_pair();
  pair.peer_sends("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(pair.mine.receive(kPatience).error().code, EMSGSIZE);
}

TEST(RendezvousBadPeer, EarlyCloseIsTold) {
  for (const std::string& bytes :
       {std::string(), std::string("\0\0", 2), prefix(5), prefix(5) + "four"}) {
    Pair pair = make_pair();
    pair.peer_sends(bytes);
    pair.peer_closes();
    EXPECT_EQ(pair.mine.receive(kPatience).error().code, EPIPE) << bytes.size() << " bytes";
  }
}

TEST(RendezvousBadPeer, SendingToAClosedPeerIsAnErrorAndNoSignal) {
  Pair pair = make_pair();
  pair.peer_closes();
  EXPECT_EQ(pair.mine.send("hello").error().code, EPIPE);
}

TEST(RendezvousTimeout, SilenceLeavesTheConnectionUsable) {
  Pair pair = make_pair();
  const auto begin = steady_clock::now();
  EXPECT_EQ(pair.mine.receive(kShort).error().code, ETIMEDOUT);
  EXPECT_GE(steady_clock::now() - begin, std::chrono::milliseconds(50));
  pair.peer_sends(prefix(2) + "ok");
  EXPECT_EQ(pair.mine.receive(kPatience).value(), "ok");
}

TEST(RendezvousTimeout, ZeroAsksWithoutWaiting) {
  Pair pair = make_pair();
  EXPECT_EQ(pair.mine.receive(Duration()).error().code, ETIMEDOUT);
  pair.peer_sends(prefix(2) + "ok");
  EXPECT_EQ(pair.mine.receive(Duration()).value(), "ok");
}

TEST(RendezvousTimeout, InsideAMessageTheStreamIsLost) {
  for (const std::string& bytes : {std::string("\0\0", 2), prefix(5) + "four"}) {
    Pair pair = make_pair();
    pair.peer_sends(bytes);
    EXPECT_EQ(pair.mine.receive(kShort).error().code, ETIMEDOUT);
    EXPECT_EQ(pair.mine.receive(kPatience).error().code, EPIPE);
  }
}

TEST(RendezvousTimeout, AcceptGivesUp) {
  auto listener = RendezvousListener::listen(loopback(), 0);
  ASSERT_TRUE(listener.ok());
  EXPECT_EQ(listener->accept(kShort).error().code, ETIMEDOUT);
}

TEST(RendezvousErrors, RefusedNamesHostAndPort) {
  uint16_t port = 0;
  {
    auto listener = RendezvousListener::listen(loopback(), 0);
    ASSERT_TRUE(listener.ok());
    port = listener->port();
  }
  const auto got = Rendezvous::connect("127.0.0.1", port, kPatience);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, ECONNREFUSED);
  EXPECT_NE(got.error().message.find("127.0.0.1 port " + std::to_string(port)), std::string::npos)
      << got.error().message;
}

TEST(RendezvousErrors, UnknownHostNamesIt) {
  const auto got = Rendezvous::connect("no-such-host.invalid", 1, kPatience);
  ASSERT_FALSE(got.ok());
  EXPECT_NE(got.error().message.find("no-such-host.invalid"), std::string::npos);
}

TEST(RendezvousErrors, TakenPortAndForeignAddressAreTold) {
  auto listener = RendezvousListener::listen(loopback(), 0);
  ASSERT_TRUE(listener.ok());
  const auto taken = RendezvousListener::listen(loopback(), listener->port());
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, EADDRINUSE);
  EXPECT_NE(taken.error().message.find("127.0.0.1:"), std::string::npos);
  const auto foreign = RendezvousListener::listen(IpAddress::v4(0xC0000201), 0);  // 192.0.2.1
  ASSERT_FALSE(foreign.ok());
  EXPECT_EQ(foreign.error().code, EADDRNOTAVAIL);
}

TEST(Rendezvous, MovingLeavesOneOwner) {
  Pair pair = make_pair();
  const int fd = pair.mine.fd();
  Rendezvous moved = std::move(pair.mine);
  EXPECT_EQ(moved.fd(), fd);
  EXPECT_EQ(pair.mine.fd(), -1);
  pair.mine = std::move(moved);
  EXPECT_EQ(pair.mine.fd(), fd);
}

}  // namespace
}  // namespace farverbs::verbs
