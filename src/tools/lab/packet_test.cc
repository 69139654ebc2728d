#include "tools/lab/packet.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "farverbs/base/byte_order.h"
#include "tools/lab/merger.h"

namespace farverbs::tools::lab {
namespace {

struct Built {
  std::vector<std::byte> bytes;
  VnetHeader vnet;
};

// A packet as the kernel hands it to a TUN device: headers, a checksum that is still to be
// completed, and a payload that counts up.
Built build(uint8_t version, uint8_t protocol, size_t payload, uint16_t gso_size, uint16_t id = 100,
            uint32_t sequence = 5000, uint8_t flags = 0x10, uint8_t ecn = 2) {
  const size_t ip = version == 4 ? 20 : 40;
  const size_t l4 = protocol == kProtocolTcp ? 32 : 8;
  Built built;
  built.bytes.resize(ip + l4 + payload);
  std::byte* p = built.bytes.data();
  if (version == 4) {
    p[0] = std::byte{0x45};
    p[1] = std::byte{ecn};
    store_be<uint16_t>(p + 2, static_cast<uint16_t>(built.bytes.size()));
    store_be<uint16_t>(p + 4, id);
    store_be<uint16_t>(p + 6, 0x4000);
    p[8] = std::byte{64};
    p[9] = std::byte{protocol};
    store_be<uint32_t>(p + 12, 0x0A580001);
    store_be<uint32_t>(p + 16, 0x0A580002);
    store_be<uint16_t>(p + 10, static_cast<uint16_t>(~checksum_fold({p, 20})));
  } else {
    p[0] = std::byte{0x60};
    p[1] = std::byte(ecn << 4);
    store_be<uint16_t>(p + 4, static_cast<uint16_t>(l4 + payload));
    p[6] = std::byte{protocol};
    p[7] = std::byte{64};
    p[8] = p[24] = std::byte{0xFD};
    p[23] = std::byte{1};
    p[39] = std::byte{2};
  }
  std::byte* t = p + ip;
  store_be<uint16_t>(t, 4000);
  store_be<uint16_t>(t + 2, 4791);
  if (protocol == kProtocolTcp) {
    store_be<uint32_t>(t + 4, sequence);
    store_be<uint32_t>(t + 8, 77);
    t[12] = std::byte{0x80};
    t[13] = std::byte{flags};
    store_be<uint16_t>(t + 14, 1024);
    t[20] = t[21] = std::byte{1};
  } else {
    store_be<uint16_t>(t + 4, static_cast<uint16_t>(8 + payload));
  }
  for (size_t i = 0; i < payload; ++i) t[l4 + i] = std::byte(i * 7);
  built.vnet.flags = kVnetNeedsChecksum;
  built.vnet.csum_start = static_cast<uint16_t>(ip);
  built.vnet.csum_offset = protocol == kProtocolTcp ? 16 : 6;
  if (gso_size > 0) {
    built.vnet.gso_size = gso_size;
    built.vnet.gso_type = protocol == kProtocolUdp ? kGsoUdp : version == 4 ? kGsoTcp4 : kGsoTcp6;
  }
  return built;
}

Packet parse(Built& built) {
  Packet packet;
  EXPECT_TRUE(parse_packet(built.vnet, built.bytes, packet));
  return packet;
}

struct Written {
  VnetHeader vnet;
  std::vector<std::byte> bytes;
  const std::byte* p() const { return bytes.data(); }
  size_t ip_header() const { return (bytes[0] >> 4) == std::byte{4} ? 20 : 40; }
};

Written gather(Merger& merger) {
  Written written;
  const auto pieces = merger.finish();
  std::memcpy(&written.vnet, pieces[0].iov_base, sizeof(VnetHeader));
  for (const iovec& piece : pieces.subspan(1)) {
    const auto* from = static_cast<const std::byte*>(piece.iov_base);
    written.bytes.insert(written.bytes.end(), from, from + piece.iov_len);
  }
  merger.clear();
  return written;
}

Written single(const Packet& packet, uint32_t index, bool mark = false) {
  Merger merger;
  EXPECT_TRUE(merger.append(packet, index, mark));
  return gather(merger);
}

// What the receiver's stack finds once it has completed the checksum.
void expect_valid(const Written& w) {
  const size_t ip = w.ip_header();
  const uint8_t protocol = static_cast<uint8_t>(w.p()[ip == 20 ? 9 : 6]);
  if (ip == 20) {
    EXPECT_EQ(checksum_fold({w.p(), 20}), 0xFFFF);
    EXPECT_EQ(load_be<uint16_t>(w.p() + 2), w.bytes.size());
  } else {
    EXPECT_EQ(load_be<uint16_t>(w.p() + 4), w.bytes.size() - 40);
  }
  if (protocol == kProtocolUdp) {
    EXPECT_EQ(load_be<uint16_t>(w.p() + ip + 4), w.bytes.size() - ip);
  }
  EXPECT_EQ(w.vnet.flags, kVnetNeedsChecksum);
  EXPECT_EQ(w.vnet.csum_start, ip);
  const auto length = static_cast<uint32_t>(w.bytes.size() - ip);
  const auto addresses = ip == 20 ? std::span(w.p() + 12, 8) : std::span(w.p() + 8, 32);
  EXPECT_EQ(load_be<uint16_t>(w.p() + ip + w.vnet.csum_offset),
            checksum_fold(addresses, length + protocol));
}

class Split : public ::testing::TestWithParam<std::tuple<uint8_t, uint8_t>> {
 protected:
  uint8_t version() const { return std::get<0>(GetParam()); }
  uint8_t protocol() const { return std::get<1>(GetParam()); }
};

TEST_P(Split, GivesWhatANicsSegmentationGives) {
  // FIN, PSH, ACK, CWR.
  Built built = build(version(), protocol(), 2500, 1000, 65'535, 0xFFFFFF00, 0x99);
  const Packet packet = parse(built);
  ASSERT_EQ(packet.segments, 3);
  const size_t header = packet.header;
  for (uint32_t i = 0; i < 3; ++i) {
    const Written w = single(packet, i);
    expect_valid(w);
    EXPECT_EQ(w.bytes.size(), header + (i < 2 ? 1000 : 500));
    EXPECT_EQ(w.bytes.size(), packet.wire_length(i));
    EXPECT_EQ(w.vnet.gso_type, kGsoNone);
    EXPECT_EQ(std::memcmp(w.p() + header, built.bytes.data() + header + i * 1000,
                          w.bytes.size() - header),
              0);
    if (version() == 4) {
      EXPECT_EQ(load_be<uint16_t>(w.p() + 4), static_cast<uint16_t>(65'535 + i));
    }
    if (protocol() == kProtocolTcp) {
      const std::byte* tcp = w.p() + w.ip_header();
      EXPECT_EQ(load_be<uint32_t>(tcp + 4), static_cast<uint32_t>(0xFFFFFF00 + i * 1000));
      EXPECT_EQ(static_cast<int>(tcp[13]), i == 0 ? 0x90 : i == 1 ? 0x10 : 0x19);
    }
  }
}

TEST_P(Split, MergingAllSegmentsGivesTheSuperPacketBack) {
  Built built = build(version(), protocol(), 2500, 1000);
  const Packet packet = parse(built);
  Merger merger;
  for (uint32_t i = 0; i < 3; ++i) EXPECT_TRUE(merger.append(packet, i, false));
  EXPECT_FALSE(merger.append(packet, 0, false));
  const Written w = gather(merger);
  expect_valid(w);
  EXPECT_EQ(w.vnet.gso_size, 1000);
  EXPECT_EQ(w.vnet.gso_type, built.vnet.gso_type);
  EXPECT_EQ(w.bytes.size(), built.bytes.size());
  EXPECT_EQ(std::memcmp(w.p() + packet.header, built.bytes.data() + packet.header, 2500), 0);
}

TEST_P(Split, ALossEndsAMerge) {
  Built built = build(version(), protocol(), 4000, 1000);
  const Packet packet = parse(built);
  Merger merger;
  EXPECT_TRUE(merger.append(packet, 0, false));
  EXPECT_TRUE(merger.append(packet, 1, false));
  EXPECT_FALSE(merger.append(packet, 3, false));
  const Written w = gather(merger);
  expect_valid(w);
  EXPECT_EQ(w.bytes.size(), packet.header + 2000u);
}

TEST_P(Split, AMarkEndsAMergeAndShowsInTheHeader) {
  Built built = build(version(), protocol(), 3000, 1000);
  const Packet packet = parse(built);
  EXPECT_TRUE(packet.ecn_capable());
  Merger merger;
  EXPECT_TRUE(merger.append(packet, 0, false));
  EXPECT_FALSE(merger.append(packet, 1, true));
  merger.clear();
  const Written w = single(packet, 1, true);
  expect_valid(w);
  EXPECT_EQ(static_cast<int>(w.bytes[1]) >> (version() == 4 ? 0 : 4) & 3, 3);
}

TEST_P(Split, ConsecutivePacketsOfOneFlowMerge) {
  Built first = build(version(), protocol(), 1000, 0, 100, 5000);
  Built second = build(version(), protocol(), 700, 0, 101, 6000);
  Built third = build(version(), protocol(), 700, 0, 102, 6700);
  const Packet a = parse(first), b = parse(second), c = parse(third);
  Merger merger;
  EXPECT_TRUE(merger.append(a, 0, false));
  EXPECT_TRUE(merger.append(b, 0, false));
  EXPECT_FALSE(merger.append(c, 0, false)) << "a shorter one is the last";
  const Written w = gather(merger);
  expect_valid(w);
  EXPECT_EQ(w.vnet.gso_size, 1000);
  EXPECT_EQ(w.bytes.size(), a.header + 1700u);
  EXPECT_EQ(std::memcmp(w.p() + a.header + 1000, second.bytes.data() + b.header, 700), 0);
}

TEST_P(Split, ABiggerPacketDoesNotJoin) {
  Built first = build(version(), protocol(), 700, 0, 100, 5000);
  Built second = build(version(), protocol(), 1000, 0, 101, 5700);
  const Packet a = parse(first), b = parse(second);
  Merger merger;
  EXPECT_TRUE(merger.append(a, 0, false));
  EXPECT_FALSE(merger.append(b, 0, false));
}

TEST_P(Split, AnUntouchedPacketIsWrittenAsItWasRead) {
  Built built = build(version(), protocol(), 900, 0);
  built.vnet = {};
  store_be<uint16_t>(
      built.bytes.data() + (version() == 4 ? 20 : 40) + (protocol() == kProtocolTcp ? 16 : 6),
      0x1234);
  const Packet packet = parse(built);
  const Written w = single(packet, 0);
  EXPECT_EQ(w.bytes, built.bytes);
  EXPECT_EQ(w.vnet.flags, 0);
}

TEST_P(Split, CorruptionLeavesTheIpHeaderAndCountsAsChecked) {
  for (uint32_t noise = 0; noise < 500; ++noise) {
    Built built = build(version(), protocol(), 100, 0);
    const std::vector<std::byte> before = built.bytes;
    const size_t ip = version() == 4 ? 20 : 40;
    built.vnet = {};
    store_be<uint16_t>(built.bytes.data() + ip + (protocol() == kProtocolTcp ? 16 : 6), 0x1234);
    corrupt_packet(built.bytes, ip, noise, built.vnet);
    EXPECT_EQ(std::memcmp(before.data(), built.bytes.data(), ip), 0);
    EXPECT_NE(before, built.bytes);
    EXPECT_EQ(built.vnet.flags, kVnetNeedsChecksum);
  }
}

INSTANTIATE_TEST_SUITE_P(Versions, Split,
                         ::testing::Combine(::testing::Values(4, 6),
                                            ::testing::Values(kProtocolTcp, kProtocolUdp)));

TEST(Merge, AtMost64) {
  Built built = build(4, kProtocolUdp, 100 * 100, 100);
  const Packet packet = parse(built);
  Merger merger;
  for (uint32_t i = 0; i < 64; ++i) EXPECT_TRUE(merger.append(packet, i, false));
  EXPECT_FALSE(merger.append(packet, 64, false));
}

TEST(Merge, TcpNeedsTheNextByteAndTheSameAcknowledgement) {
  Built first = build(4, kProtocolTcp, 1000, 0, 100, 5000);
  const Packet a = parse(first);
  const auto joins = [&](Built second) {
    const Packet b = parse(second);
    Merger merger;
    EXPECT_TRUE(merger.append(a, 0, false));
    return merger.append(b, 0, false);
  };
  Built next = build(4, kProtocolTcp, 1000, 0, 101, 6000);
  EXPECT_TRUE(joins(next));
  EXPECT_FALSE(joins(build(4, kProtocolTcp, 1000, 0, 101, 6001)));
  EXPECT_FALSE(joins(build(4, kProtocolTcp, 1000, 0, 103, 6000)));
  EXPECT_FALSE(joins(build(4, kProtocolTcp, 1000, 0, 101, 6000, 0x11)));
  EXPECT_TRUE(joins(build(4, kProtocolTcp, 1000, 0, 101, 6000, 0x18)));
  Built other = next;
  store_be<uint32_t>(other.bytes.data() + 28, 78);
  EXPECT_FALSE(joins(other)) << "acknowledgement";
  other = next;
  store_be<uint16_t>(other.bytes.data() + 20, 4001);
  EXPECT_FALSE(joins(other)) << "port";
  other = next;
  other.bytes[40] = std::byte{8};
  EXPECT_FALSE(joins(other)) << "option";
}

TEST(Merge, APushOfTheLastPacketIsKept) {
  Built first = build(4, kProtocolTcp, 1000, 0, 100, 5000);
  Built second = build(4, kProtocolTcp, 1000, 0, 101, 6000, 0x18);
  const Packet a = parse(first), b = parse(second);
  Merger merger;
  merger.append(a, 0, false);
  merger.append(b, 0, false);
  EXPECT_EQ(static_cast<int>(gather(merger).bytes[33]), 0x18);
}

TEST(Merge, UdpIdentificationsCountUpOrStay) {
  Built zero = build(4, kProtocolUdp, 1000, 0, 0);
  Built zero_too = zero, one = build(4, kProtocolUdp, 1000, 0, 1);
  Built seven = build(4, kProtocolUdp, 1000, 0, 7);
  const Packet a = parse(zero), b = parse(zero_too), c = parse(one), d = parse(seven);
  Merger merger;
  merger.append(a, 0, false);
  EXPECT_TRUE(merger.append(b, 0, false));
  EXPECT_FALSE(merger.append(c, 0, false)) << "after two equal ones";
  merger.clear();
  merger.append(a, 0, false);
  EXPECT_TRUE(merger.append(c, 0, false));
  EXPECT_FALSE(merger.append(d, 0, false));
}

TEST(Parse, AUdpPacketWithoutAChecksumStaysAlone) {
  Built first = build(4, kProtocolUdp, 1000, 0);
  first.vnet = {};
  Built second = first;
  const Packet a = parse(first), b = parse(second);
  EXPECT_FALSE(a.mergeable);
  Merger merger;
  merger.append(a, 0, false);
  EXPECT_FALSE(merger.append(b, 0, false));
}

TEST(Parse, FragmentsAndOtherProtocolsPassAsTheyAre) {
  Built fragment = build(4, kProtocolUdp, 1000, 0);
  store_be<uint16_t>(fragment.bytes.data() + 6, 0x2000);
  Built icmp = build(4, 1, 56, 0);
  for (Built* built : {&fragment, &icmp}) {
    const Packet packet = parse(*built);
    EXPECT_FALSE(packet.mergeable);
    EXPECT_EQ(packet.segments, 1);
    EXPECT_EQ(packet.wire_length(0), built->bytes.size());
    EXPECT_EQ(single(packet, 0).bytes, built->bytes);
  }
}

TEST(Parse, RefusesWhatIsNoIpPacketOrFalselySegmented) {
  Built good = build(4, kProtocolUdp, 2000, 1000);
  const auto refused = [](Built built) {
    Packet packet;
    return !parse_packet(built.vnet, built.bytes, packet);
  };
  EXPECT_FALSE(refused(good));
  Built bad = good;
  bad.bytes.resize(19);
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.bytes[0] = std::byte{0x55};
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.bytes[0] = std::byte{0x44};
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.vnet.gso_type = kGsoTcp4;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.vnet.gso_size = 0;
  EXPECT_TRUE(refused(bad));
  bad = build(6, kProtocolTcp, 2000, 1000);
  bad.vnet.gso_type = kGsoTcp4;
  EXPECT_TRUE(refused(bad));
}

TEST(Parse, EveryTruncationIsSurvived) {
  for (const uint8_t version : {uint8_t{4}, uint8_t{6}}) {
    for (const uint8_t protocol : {kProtocolTcp, kProtocolUdp}) {
      Built built = build(version, protocol, 300, 100);
      for (size_t n = 0; n <= built.bytes.size(); ++n) {
        std::vector<std::byte> part(built.bytes.begin(),
                                    built.bytes.begin() + static_cast<std::ptrdiff_t>(n));
        Packet packet;
        if (parse_packet(built.vnet, part, packet)) {
          uint32_t total = packet.header;
          for (uint32_t i = 0; i < packet.segments; ++i) total += packet.payload_of(i);
          EXPECT_EQ(total, n);
        }
      }
    }
  }
}

TEST(Checksum, FoldsCarriesAndOddBytes) {
  const std::byte bytes[] = {std::byte{0xFF}, std::byte{0xFF}, std::byte{0x01}};
  EXPECT_EQ(checksum_fold(bytes), 0x0100);
  EXPECT_EQ(checksum_fold({}, 0x1FFFE), 0xFFFF);
}

}  // namespace
}  // namespace farverbs::tools::lab
