// What kernels do to UDP offloads that one does not expect; each fact that the data path rests on
// fails here first when a kernel changes it.
#include <gtest/gtest.h>
#include <linux/ethtool.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/udp.h>

#include <array>
#include <cstring>

#include "farverbs/base/byte_order.h"
#include "farverbs/io/test_support.h"
#include "farverbs/io/udp_port.h"

namespace farverbs::io {
namespace {

std::unique_ptr<UdpPort> open_port(const std::string& address, UdpOptions options = {}) {
  options.local = {IpAddress::parse(address).value(), 0};
  auto port = UdpPort::open(options);
  EXPECT_TRUE(port.ok()) << port.error().message;
  return std::move(port).value();
}

TxFlow flow_to(const Port& port) {
  TxFlow flow;
  flow.destination = port.local();
  return flow;
}

SendStatus send_equal(Port& from, const Port& to, size_t count, size_t size) {
  OwnedBurst burst(count * size + 1, count);
  for (size_t i = 0; i < count; ++i) burst.add(size, static_cast<uint8_t>(i));
  return from.send(flow_to(to), *burst);
}

TEST(UdpTraps, MoreSegmentsThanProbedAreRefused) {
  auto a = open_port("127.0.0.1");
  auto b = open_port("127.0.0.1");
  const size_t most = a->limits().max_datagrams_per_burst;
  EXPECT_TRUE(most == 64 || most == 128) << most;
  EXPECT_EQ(send_equal(*a, *b, most, 80), SendStatus::kSent);
  EXPECT_EQ(split(receive_datagrams(*b, most)).size(), most);
  EXPECT_EQ(send_equal(*a, *b, most + 1, 80), SendStatus::kTooBig);
  EXPECT_EQ(a->counters().sent_bursts, 1u);
  EXPECT_EQ(a->counters().send_failures, 1u);
}

class Families : public ::testing::TestWithParam<const char*> {};

TEST_P(Families, MostBytesOfABurst) {
  auto a = open_port(GetParam());
  auto b = open_port(GetParam());
  const size_t most = a->limits().max_burst_bytes;
  EXPECT_EQ(most, 65'507u);
  OwnedBurst burst(most + 1);
  while (burst->bytes().size() + 1040 <= most) burst.add(1040);
  burst.add(most - burst->bytes().size());
  EXPECT_EQ(a->send(flow_to(*b), *burst), SendStatus::kSent);
  const auto received = receive_datagrams(*b, burst->count());
  size_t bytes = 0;
  for (const auto& r : received) bytes += r.bytes.size();
  EXPECT_EQ(bytes, most);
}

TEST(UdpTraps, OneByteMoreThanAnIpPacketIsRefused) {
  auto a = open_port("127.0.0.1");
  auto b = open_port("127.0.0.1");
  OwnedBurst burst(65'508);
  while (burst->bytes().size() + 1040 <= 65'508) burst.add(1040);
  burst.add(65'508 - burst->bytes().size());
  EXPECT_EQ(a->send(flow_to(*b), *burst), SendStatus::kTooBig);
  EXPECT_EQ(send_equal(*a, *b, 1, 65'508), SendStatus::kTooBig);
}

void set_loopback_mtu(int mtu) {
  const FileDescriptor fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::string("lo").copy(request.ifr_name, sizeof request.ifr_name - 1);
  request.ifr_mtu = mtu;
  ASSERT_EQ(ioctl(fd.get(), SIOCSIFMTU, &request), 0);
}

TEST_P(Families, DatagramOverTheMtuIsTooBig) {
  const std::string address = GetParam();
  FV_EXPECT_IN_OWN_NETWORK([&] {
    set_loopback_mtu(1500);
    auto a = open_port(address);
    auto b = open_port(address);
    const size_t most = address == "::1" ? 1452 : 1472;
    EXPECT_EQ(a->limits().max_datagram, most);
    EXPECT_EQ(send_equal(*a, *b, 1, most), SendStatus::kSent);
    EXPECT_EQ(send_equal(*a, *b, 8, most), SendStatus::kSent);
    EXPECT_EQ(send_equal(*a, *b, 1, most + 1), SendStatus::kTooBig);
    EXPECT_EQ(send_equal(*a, *b, 8, most + 1), SendStatus::kTooBig);
    EXPECT_EQ(split(receive_datagrams(*b, 9)).size(), 9u);
  });
}

INSTANTIATE_TEST_SUITE_P(UdpTraps, Families, ::testing::Values("127.0.0.1", "::1"));

// The kernel's rxe sends RoCEv2 over IPv6 so, and some hardware over IPv4.
TEST(UdpTraps, ZeroUdpChecksumIsReceivedAndNotMerged) {
  for (const char* address : {"127.0.0.1", "::1"}) {
    auto b = open_port(address);
    const SocketAddress to(b->local());
    const FileDescriptor fd(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (to.family() == AF_INET6) {
      ASSERT_EQ(setsockopt(fd.get(), IPPROTO_UDP, UDP_NO_CHECK6_TX, &on, sizeof on), 0);
    } else {
      ASSERT_EQ(setsockopt(fd.get(), SOL_SOCKET, SO_NO_CHECK, &on, sizeof on), 0);
    }
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(sendto(fd.get(), "abcd", 4, 0, &to.generic, to.size), 4) << address;
    }
    EXPECT_EQ(receive_datagrams(*b, 3, 200).size(), 3u) << address;
  }
}

// So a checksum cannot be saved on bursts.
TEST(UdpTraps, SegmentationRefusesToOmitTheChecksum) {
  auto b = open_port("127.0.0.1");
  const SocketAddress to(b->local());
  const FileDescriptor fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  const int segment = 100;
  ASSERT_EQ(setsockopt(fd.get(), SOL_SOCKET, SO_NO_CHECK, &on, sizeof on), 0);
  ASSERT_EQ(setsockopt(fd.get(), IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment), 0);
  const std::array<char, 300> bytes{};
  EXPECT_LT(sendto(fd.get(), bytes.data(), bytes.size(), 0, &to.generic, to.size), 0);
  EXPECT_EQ(errno, EINVAL);
}

TEST(UdpTraps, OverflowShowsOnlyOnTheNextDatagram) {
  UdpOptions small;
  small.buffer_bytes = 4096;
  auto a = open_port("127.0.0.1");
  auto b = open_port("127.0.0.1", small);
  ASSERT_LT(b->limits().receive_buffer_bytes, 20'000u);
  // Lengths that grow never merge, so every datagram counts for itself.
  const size_t sent = 100;
  for (size_t i = 0; i < sent; ++i) ASSERT_EQ(send_equal(*a, *b, 1, 64 + i), SendStatus::kSent);
  const size_t kept = receive_datagrams(*b, sent, 50).size();
  EXPECT_GT(kept, 0u);
  EXPECT_LT(kept, sent);
  EXPECT_EQ(b->counters().receive_overflows, 0u);
  ASSERT_EQ(send_equal(*a, *b, 1, 64), SendStatus::kSent);
  EXPECT_EQ(receive_datagrams(*b, 1).size(), 1u);
  EXPECT_EQ(b->counters().receive_overflows, sent - kept);
}

// Where net.core.rmem_max is the stock 212,992, asking for more grants that much, which the kernel
// accounts as twice as much memory: six full bursts.
TEST(UdpTraps, StockReceiveBufferHoldsSixFullBursts) {
  UdpOptions stock;
  stock.buffer_bytes = 212'992;
  auto a = open_port("127.0.0.1");
  auto b = open_port("127.0.0.1", stock);
  ASSERT_LE(b->limits().receive_buffer_bytes, 2 * 212'992u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(send_equal(*a, *b, 62, 1040), SendStatus::kSent);
  const size_t kept = split(receive_datagrams(*b, 20 * 62, 50)).size();
  EXPECT_GE(kept, 6u * 62);
  EXPECT_LT(kept, 20u * 62);
  // And works on afterwards.
  EXPECT_EQ(send_equal(*a, *b, 62, 1040), SendStatus::kSent);
  EXPECT_EQ(split(receive_datagrams(*b, 62)).size(), 62u);
}

// ---- The IPv4 identification

// Turns a feature of `lo` off by its name, as `ethtool -K lo NAME off` does.
bool turn_feature_off(const char* name) {
  const FileDescriptor fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::string("lo").copy(request.ifr_name, sizeof request.ifr_name - 1);
  std::array<uint32_t, 5> set{};  // ethtool_sset_info: command, reserved, mask (64 bits), count
  set[0] = ETHTOOL_GSSET_INFO;
  set[2] = 1u << ETH_SS_FEATURES;
  request.ifr_data = reinterpret_cast<char*>(set.data());
  if (ioctl(fd.get(), SIOCETHTOOL, &request) != 0) return false;
  const uint32_t count = set[4];
  std::vector<std::byte> names(sizeof(ethtool_gstrings) + count * ETH_GSTRING_LEN);
  ethtool_gstrings wanted{};
  wanted.cmd = ETHTOOL_GSTRINGS;
  wanted.string_set = ETH_SS_FEATURES;
  wanted.len = count;
  std::memcpy(names.data(), &wanted, sizeof wanted);
  request.ifr_data = reinterpret_cast<char*>(names.data());
  if (ioctl(fd.get(), SIOCETHTOOL, &request) != 0) return false;
  uint32_t index = 0;
  const auto* strings = reinterpret_cast<const char*>(names.data() + sizeof wanted);
  while (index < count && std::strcmp(strings + index * ETH_GSTRING_LEN, name) != 0) ++index;
  if (index == count) return false;
  const uint32_t blocks = (count + 31) / 32;
  std::vector<uint32_t> change(2 + 2 * blocks);  // ethtool_sfeatures and its {valid, requested}
  change[0] = ETHTOOL_SFEATURES;
  change[1] = blocks;
  change[2 + 2 * (index / 32)] = 1u << (index % 32);
  request.ifr_data = reinterpret_cast<char*>(change.data());
  return ioctl(fd.get(), SIOCETHTOOL, &request) == 0;
}

// The identifications of the next IPv4 packets to the UDP port.
std::vector<uint16_t> identifications(int packet_socket, uint16_t port, size_t count) {
  std::vector<uint16_t> result;
  std::array<std::byte, 70'000> frame;
  pollfd p{packet_socket, POLLIN, 0};
  while (result.size() < count && poll(&p, 1, 1000) == 1) {
    sockaddr_ll from{};
    socklen_t size = sizeof from;
    const ssize_t n = recvfrom(packet_socket, frame.data(), frame.size(), 0,
                               reinterpret_cast<sockaddr*>(&from), &size);
    if (n < 28 || from.sll_pkttype == PACKET_OUTGOING) continue;  // lo shows each packet twice
    if (load_be<uint16_t>(frame.data() + 22) != port) continue;
    result.push_back(load_be<uint16_t>(frame.data() + 4));
  }
  return result;
}

TEST(UdpTraps, Ipv4IdentificationIsTheIndexInTheBurst) {
  FV_EXPECT_IN_OWN_NETWORK([] {
    set_loopback_mtu(1500);
    // Otherwise the burst stays one packet on this interface and its segments are never seen.
    ASSERT_TRUE(turn_feature_off("tx-udp-segmentation"));
    auto a = open_port("127.0.0.1");
    auto b = open_port("127.0.0.1");
    const FileDescriptor capture(
        ::socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, byte_swap(uint16_t{ETH_P_IP})));
    ASSERT_TRUE(capture.valid());
    for (int round = 0; round < 2; ++round) {
      ASSERT_EQ(send_equal(*a, *b, 60, 1040), SendStatus::kSent);
      const auto burst = identifications(capture.get(), b->local().port, 60);
      ASSERT_EQ(burst.size(), 60u);
      for (size_t i = 0; i < burst.size(); ++i) EXPECT_EQ(burst[i], i);
      for (int i = 0; i < 3; ++i) ASSERT_EQ(send_equal(*a, *b, 1, 200), SendStatus::kSent);
      EXPECT_EQ(identifications(capture.get(), b->local().port, 3),
                (std::vector<uint16_t>{0, 0, 0}));
    }
  });
}

}  // namespace
}  // namespace farverbs::io
