#include "farverbs/io/udp_port.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "farverbs/io/interfaces.h"
#include "farverbs/io/os_clock.h"
#include "farverbs/io/os_entropy.h"
#include "farverbs/io/test_support.h"
#include "farverbs/io/waker.h"

namespace farverbs::io {
namespace {

std::unique_ptr<UdpPort> open_port(const std::string& address, UdpOptions options = {}) {
  options.local = {IpAddress::parse(address).value(), 0};
  auto port = UdpPort::open(options);
  EXPECT_TRUE(port.ok()) << port.error().message;
  return std::move(port).value();
}

TxFlow flow_to(const Port& port, const std::string& address = "") {
  TxFlow flow;
  flow.destination = port.local();
  if (!address.empty()) flow.destination.address = IpAddress::parse(address).value();
  return flow;
}

TxFlow side_flow_to(const Port& port) {
  TxFlow flow = flow_to(port);
  flow.any_port = true;
  return flow;
}

class BothFamilies : public ::testing::TestWithParam<const char*> {};

TEST_P(BothFamilies, BurstArrivesWithItsBoundaries) {
  auto a = open_port(GetParam());
  auto b = open_port(GetParam());
  ASSERT_GE(a->limits().max_datagrams_per_burst, 2u);
  OwnedBurst burst(a->limits().max_burst_bytes, a->limits().max_datagrams_per_burst);
  for (uint8_t i = 0; i < 20; ++i) burst.add(1040, i);
  burst.add(16, 77);
  ASSERT_EQ(a->send(flow_to(*b), *burst), SendStatus::kSent);
  const auto received = receive_datagrams(*b, 21);
  const auto datagrams = split(received);
  ASSERT_EQ(datagrams.size(), 21u);
  for (uint8_t i = 0; i < 20; ++i) {
    ASSERT_EQ(datagrams[i].size(), 1040u);
    EXPECT_EQ(datagrams[i][0], std::byte{i});
    EXPECT_EQ(datagrams[i][1], std::byte(i + 1));
  }
  EXPECT_EQ(datagrams[20].size(), 16u);
  EXPECT_EQ(datagrams[20][0], std::byte{77});
  EXPECT_EQ(received.size(), b->limits().receives_merged ? 1u : 21u);
  EXPECT_EQ(received[0].source, a->local());
  EXPECT_EQ(received[0].destination, b->local());
  EXPECT_EQ(a->counters().sent_bursts, 1u);
  EXPECT_EQ(a->counters().sent_datagrams, 21u);
  EXPECT_EQ(a->counters().sent_bytes, 20u * 1040 + 16);
  EXPECT_EQ(b->counters().received_datagrams, 21u);
  EXPECT_EQ(b->counters().received_bytes, 20u * 1040 + 16);
}

// A burst that may leave from any port needs no copy, from the second one on; nobody sees another
// difference than the port.
TEST_P(BothFamilies, BurstsFromASidePortArriveWhole) {
  auto a = open_port(GetParam());
  auto b = open_port(GetParam());
  if (!SideSender::kernel_splices())
    GTEST_SKIP() << "this kernel (before 6.5) has no MSG_SPLICE_PAGES";
  TxFlow flow = side_flow_to(*b);
  flow.traffic_class = 0x2A;
  std::set<uint16_t> ports;
  std::set<const std::byte*> places;
  std::vector<std::byte> own(a->limits().max_burst_bytes);
  for (int round = 0; round < 100; ++round) {
    const size_t size = round % 3 == 0 ? 1'472 : 1'040;
    const size_t count = 17 + static_cast<size_t>(round) % 20;
    wire::TxBurst burst;
    const std::span<std::byte> staging = a->staging();
    EXPECT_EQ(staging.empty(), round == 0);
    places.insert(staging.data());
    burst.reset(staging.empty() ? std::span(own) : staging, 64);
    for (size_t i = 0; i < count; ++i) {
      std::byte* const place = burst.append(size);
      for (size_t k = 0; k < size; ++k) {
        place[k] = static_cast<std::byte>(static_cast<size_t>(round) * 7 + i * 31 + k);
      }
    }
    std::memset(burst.append(100), round, 100);
    ASSERT_EQ(a->send(flow, burst), SendStatus::kSent);
    const auto received = receive_datagrams(*b, count + 1);
    const auto datagrams = split(received);
    ASSERT_EQ(datagrams.size(), count + 1) << round;
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(datagrams[i].size(), size);
      for (size_t k = 0; k < size; ++k) {
        ASSERT_EQ(datagrams[i][k],
                  static_cast<std::byte>(static_cast<size_t>(round) * 7 + i * 31 + k));
      }
    }
    EXPECT_EQ(datagrams[count].size(), 100u);
    EXPECT_EQ(received[0].source.address, a->local().address);
    EXPECT_EQ(received[0].traffic_class, 0x2A);
    ports.insert(received[0].source.port);
  }
  EXPECT_EQ(ports.size(), 2u);
  EXPECT_TRUE(ports.contains(a->local().port));
  EXPECT_GT(places.size(), 16u);
  EXPECT_EQ(a->counters().send_failures, 0u);
  EXPECT_EQ(a->sockets().size(), 2u);
}

TEST_P(BothFamilies, SmallBurstsFromASidePortArriveWhole) {
  auto a = open_port(GetParam());
  auto b = open_port(GetParam());
  TxFlow flow = side_flow_to(*b);
  const std::array<std::pair<size_t, size_t>, 7> sizes = {
      {{1, 80}, {30, 80}, {1, 1'400}, {3, 1'000}, {1, 64}, {2, 90}, {1, 1'200}}};
  for (int round = 0; round < 5; ++round) {
    for (const auto& [count, size] : sizes) {
      OwnedBurst burst(8'192, 64);
      for (size_t i = 0; i < count; ++i) burst.add(size, static_cast<uint8_t>(i));
      ASSERT_EQ(a->send(flow, *burst), SendStatus::kSent);
      const auto received = receive_datagrams(*b, count);
      const auto datagrams = split(received);
      ASSERT_EQ(datagrams.size(), count) << size;
      for (size_t i = 0; i < count; ++i) {
        EXPECT_EQ(datagrams[i].size(), size);
        EXPECT_EQ(datagrams[i][0], std::byte(i));
      }
      EXPECT_NE(received[0].source.port, a->local().port);
    }
  }
  EXPECT_TRUE(a->staging().empty()) << "no ring for small ones";
}

TEST_P(BothFamilies, OfManyPeersInTurnSomeKeepTheirSidePort) {
  auto a = open_port(GetParam());
  std::vector<std::unique_ptr<UdpPort>> peers;
  for (int i = 0; i < 20; ++i) peers.push_back(open_port(GetParam()));
  std::vector<std::set<uint16_t>> ports(peers.size());
  const auto round = [&] {
    for (size_t i = 0; i < peers.size(); ++i) {
      const TxFlow flow = side_flow_to(*peers[i]);
      OwnedBurst burst(128, 1);
      burst.add(64);
      ASSERT_EQ(a->send(flow, *burst), SendStatus::kSent);
      const auto received = receive_datagrams(*peers[i], 1);
      ASSERT_EQ(received.size(), 1u);
      ports[i].insert(received[0].source.port);
    }
  };
  for (int i = 0; i < 5; ++i) round();
  EXPECT_EQ(a->sockets().size(), 9u);
  size_t aside = 0;
  for (const auto& used : ports) {
    EXPECT_EQ(used.size(), 1u) << "a connection for each burst";
    aside += !used.contains(a->local().port);
  }
  EXPECT_EQ(aside, 8u);
  // Whoever is left gets the place of those that are silent.
  peers.erase(peers.begin(), peers.begin() + 10);
  ports.assign(peers.size(), {});
  for (int i = 0; i < 1'000; ++i) round();
  aside = 0;
  for (const auto& used : ports) aside += used.size() == 2;
  EXPECT_EQ(aside, 8u);
  EXPECT_EQ(a->sockets().size(), 9u);
}

TEST_P(BothFamilies, ASidePortIsNotTroubledByAClosedPeer) {
  auto a = open_port(GetParam());
  auto b = open_port(GetParam());
  TxFlow flow = side_flow_to(*b);
  std::vector<std::byte> own(a->limits().max_burst_bytes);
  const auto send = [&](size_t size) {
    wire::TxBurst burst;
    burst.reset(a->staging().empty() ? std::span(own) : a->staging(), 64);
    while (burst.fits(size)) std::memset(burst.append(size), 1, size);
    return a->send(flow, burst);
  };
  ASSERT_EQ(send(1'472), SendStatus::kSent);
  ASSERT_EQ(send(1'472), SendStatus::kSent);
  // Nobody listens there any more: what ICMP tells is of datagrams before, and no error of this
  // one.
  b.reset();
  for (int i = 0; i < 20; ++i) ASSERT_EQ(send(1'472), SendStatus::kSent);
}

TEST_P(BothFamilies, TrafficClassAndEcnArrive) {
  auto a = open_port(GetParam());
  auto b = open_port(GetParam());
  TxFlow flow = flow_to(*b);
  for (const uint8_t traffic_class : {0x00, 0x02, 0x03, 0xB9, 0x00}) {
    flow.traffic_class = traffic_class;
    flow.hop_limit = traffic_class == 0xB9 ? 7 : 64;
    for (const size_t count : {1, 3}) {
      OwnedBurst burst(4096);
      for (size_t i = 0; i < count; ++i) burst.add(64);
      ASSERT_EQ(a->send(flow, *burst), SendStatus::kSent);
      const auto received = receive_datagrams(*b, count);
      ASSERT_FALSE(received.empty());
      EXPECT_EQ(received[0].traffic_class, traffic_class);
      EXPECT_EQ(split(received).size(), count);
    }
  }
}

TEST_P(BothFamilies, WildcardTellsTheDestination) {
  const bool v4 = IpAddress::parse(GetParam()).value().is_v4();
  auto wild = open_port(v4 ? "0.0.0.0" : "::");
  auto a = open_port(GetParam());
  OwnedBurst burst(100);
  burst.add(8);
  ASSERT_EQ(a->send(flow_to(*wild, GetParam()), *burst), SendStatus::kSent);
  const auto received = receive_datagrams(*wild, 1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].destination.address.to_string(), GetParam());
  EXPECT_EQ(received[0].destination.port, wild->local().port);
}

// Without GSO an IPv4 port offers single datagrams, for their identification is always 0.
TEST_P(BothFamilies, WithoutOffloads) {
  UdpOptions plain;
  plain.segmentation = plain.merging = false;
  auto a = open_port(GetParam(), plain);
  auto b = open_port(GetParam(), plain);
  const bool v4 = a->local().address.is_v4();
  EXPECT_EQ(a->limits().max_datagrams_per_burst, v4 ? 1u : 32u);
  EXPECT_FALSE(a->limits().receives_merged);
  OwnedBurst burst(4096, a->limits().max_datagrams_per_burst);
  size_t count = 0;
  while (count < 5 && burst->fits(100)) burst.add(100, static_cast<uint8_t>(count++));
  EXPECT_EQ(count, v4 ? 1u : 5u);
  ASSERT_EQ(a->send(flow_to(*b), *burst), SendStatus::kSent);
  const auto received = receive_datagrams(*b, count);
  ASSERT_EQ(received.size(), count);
  for (size_t i = 0; i < count; ++i) EXPECT_EQ(received[i].bytes[0], std::byte(i));
}

// Single datagrams are taken many a call once they come in numbers, and none gets lost or reordered
// while the port adapts back and forth.
TEST_P(BothFamilies, MixedTrafficKeepsItsOrder) {
  auto a = open_port(GetParam());
  auto b = open_port(GetParam());
  uint8_t next = 0;
  std::vector<uint8_t> expected;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 50; ++i) {  // lengths that grow cannot merge
      OwnedBurst single(2000);
      single.add(64 + static_cast<size_t>(i), next);
      expected.push_back(next++);
      ASSERT_EQ(a->send(flow_to(*b), *single), SendStatus::kSent);
    }
    OwnedBurst burst(16384);
    for (int i = 0; i < 10; ++i) {
      burst.add(1000, next);
      expected.push_back(next++);
    }
    ASSERT_EQ(a->send(flow_to(*b), *burst), SendStatus::kSent);
  }
  const auto datagrams = split(receive_datagrams(*b, expected.size()));
  ASSERT_EQ(datagrams.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(datagrams[i][0], std::byte{expected[i]}) << "datagram " << i;
  }
  EXPECT_LT(b->counters().received_bursts, expected.size());
  EXPECT_EQ(b->counters().received_datagrams, expected.size());
}

INSTANTIATE_TEST_SUITE_P(Udp, BothFamilies, ::testing::Values("127.0.0.1", "::1"));

TEST(UdpPort, EmptyDatagramIsNoBurst) {
  auto a = open_port("127.0.0.1");
  auto b = open_port("127.0.0.1");
  const SocketAddress to(b->local());
  ASSERT_EQ(sendto(a->wait_fd(), nullptr, 0, 0, &to.generic, to.size), 0);
  ASSERT_TRUE(wait_readable(*b));
  std::array<RxBurst, 4> bursts;
  EXPECT_EQ(b->receive(bursts), 0u);
  EXPECT_EQ(b->counters().received_datagrams, 1u);
  EXPECT_EQ(b->receive({}), 0u);
}

TEST(UdpPort, BusyPortSaysWhatToDo) {
  auto a = open_port("127.0.0.1");
  UdpOptions options;
  options.local = a->local();
  auto second = UdpPort::open(options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, EADDRINUSE);
  EXPECT_NE(second.error().message.find("another process has it"), std::string::npos);
  options.local = {IpAddress::parse("192.0.2.77").value(), 0};
  auto foreign = UdpPort::open(options);
  ASSERT_FALSE(foreign.ok());
  EXPECT_NE(foreign.error().message.find("no interface has this address"), std::string::npos);
}

TEST(UdpPort, NoRouteIsAFailureNotTheEnd) {
  FV_EXPECT_IN_OWN_NETWORK([] {
    auto a = open_port("127.0.0.1");
    TxFlow nowhere;
    nowhere.destination = {IpAddress::parse("192.0.2.1").value(), 4791};
    OwnedBurst burst(100);
    burst.add(8);
    EXPECT_EQ(a->send(nowhere, *burst), SendStatus::kFailed);
    EXPECT_EQ(a->counters().send_failures, 1u);
    EXPECT_EQ(a->send(flow_to(*a), *burst), SendStatus::kSent);
  });
}

TEST(Interfaces, LoopbackIsFoundByItsAddress) {
  const auto v4 = find_interface(IpAddress::parse("127.0.0.1").value());
  ASSERT_TRUE(v4.ok()) << v4.error().message;
  EXPECT_EQ(v4->name, "lo");
  EXPECT_TRUE(v4->loopback);
  EXPECT_TRUE(v4->up);
  EXPECT_GE(v4->mtu, 1280u);
  EXPECT_TRUE(find_interface(IpAddress::parse("127.9.9.9").value()).ok());
  const auto none = find_interface(IpAddress::parse("192.0.2.77").value());
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, EADDRNOTAVAIL);
  EXPECT_NE(none.error().message.find("192.0.2.77"), std::string::npos);
}

TEST(Interfaces, RouteToLoopback) {
  const IpAddress local = IpAddress::parse("127.0.0.1").value();
  // No IP packet is larger than 65,535 bytes, though the interface says 65,536.
  EXPECT_EQ(route_mtu(IpAddress(), local).value(), std::min(find_interface(local)->mtu, 65'535u));
  EXPECT_EQ(source_address_for(local).value(), local);
}

TEST(OsClock, DoesNotGoBack) {
  const Time a = os_now();
  const Time b = os_now();
  EXPECT_LE(a, b);
  EXPECT_GT(a.ns(), 0);
}

TEST(OsEntropy, WordsDiffer) {
  OsEntropy entropy;
  std::vector<uint64_t> words;
  for (int i = 0; i < 200; ++i) words.push_back(entropy.next());
  std::sort(words.begin(), words.end());
  EXPECT_EQ(std::adjacent_find(words.begin(), words.end()), words.end());
}

TEST(Waker, WakesOnce) {
  const Waker waker = Waker::create().value();
  pollfd p{waker.fd(), POLLIN, 0};
  EXPECT_EQ(poll(&p, 1, 0), 0);
  waker.wake();
  waker.wake();
  EXPECT_EQ(poll(&p, 1, 0), 1);
  EXPECT_TRUE(waker.drain());
  EXPECT_FALSE(waker.drain());
  EXPECT_EQ(poll(&p, 1, 0), 0);
}

}  // namespace
}  // namespace farverbs::io
