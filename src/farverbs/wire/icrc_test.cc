#include "farverbs/wire/icrc.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "farverbs/base/prng.h"
#include "farverbs/wire/crc32_polynomial.h"
#include "farverbs/wire/network_headers.h"

namespace farverbs::wire {
namespace {

std::vector<std::byte> hex(std::string_view text) {
  std::vector<std::byte> v;
  int digits = 0;
  unsigned value = 0;
  for (char c : text) {
    if (c == ' ' || c == '\n') continue;
    value = value * 16 + static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10);
    if (++digits % 2 == 0) {
      v.push_back(static_cast<std::byte>(value));
      value = 0;
    }
  }
  return v;
}

Endpoint endpoint(const char* address, uint16_t port = kRoceUdpPort) {
  return {*IpAddress::parse(address), port};
}

void expect_exact(const IcrcFlow& flow, const std::vector<std::byte>& packet, uint16_t ip_id,
                  uint32_t as_printed) {
  // Tools print the ICRC's bytes in wire order; its number has the first one lowest.
  EXPECT_EQ(byte_swap(compute_icrc(flow, packet, ip_id)), as_printed);
  const ParseResult parsed = parse(packet);
  ASSERT_TRUE(parsed) << to_string(parsed.error());
  const IcrcCheck check = verify(flow, *parsed);
  EXPECT_TRUE(check.ok);
  EXPECT_EQ(check.ip_id, flow.has_ip_id() ? ip_id : 0);
}

// Publicly known packets (the vectors of scapy's RoCE tests; two are captures of ConnectX
// adapters).
TEST(IcrcVectors, UcSendOnlyOverIpv4) {
  const auto packet = hex(
      "24 60 ff ff 00 00 00 d3 00 cf 17 10 46 30 81 8b e2 89 35 d9 0e 9a 95 50 54 01 be 88 5e 50"
      "00 00 78 f3 53 f3");
  expect_exact(IcrcFlow::roce_v2(endpoint("192.168.0.7", 49152), endpoint("192.168.0.7")), packet,
               1144, 0x78f353f3);
}

TEST(IcrcVectors, CnpOfAnAdapter) {
  const auto packet =
      hex("81 00 ff ff 40 00 01 18 00 00 00 00 00000000 00000000 00000000 00000000 82 fd 00 2a");
  expect_exact(IcrcFlow::roce_v2(endpoint("10.0.17.1", 0), endpoint("10.0.18.1")), packet, 0x718c,
               0x82fd002a);
}

TEST(IcrcVectors, RoceV1WriteOnly) {
  const Gid source = endpoint("15.0.0.2").address.to_gid();
  const auto packet = hex(
      "0a 70 ff ff 00 00 01 0a 80 a7 88 bc 00 00 55 d4 c0 72 60 00 00 00 47 b3 00 00 00 05 00 00"
      "00 00 01 00 00 00 e3 d8 56 bb");
  expect_exact(IcrcFlow::roce_v1(source, source), packet, 0, 0xe3d856bb);
}

TEST(IcrcVectors, RoceV1Acknowledge) {
  const Gid source = endpoint("15.0.0.2").address.to_gid();
  const auto packet = hex("11 40 ff ff 00 00 01 09 00 a7 88 c0 00 00 00 05 25 f0 c0 38");
  expect_exact(IcrcFlow::roce_v1(source, source), packet, 0, 0x25f0c038);
}

TEST(IcrcVectors, UcSendOnlyOverIpv6) {
  const auto packet = hex(
      "24 60 ff ff 00 00 00 d3 00 cf 17 10 46 30 81 8b e2 89 35 d9 0e 9a 95 50 54 01 be 88 5e 50"
      "00 00 3e 5b 74 3b");
  expect_exact(IcrcFlow::roce_v2(endpoint("2022::1023", 49152), endpoint("2023::1024")), packet, 0,
               0x3e5b743b);
}

// The definition, byte by byte, for whole packets.
uint32_t reference(std::vector<std::byte> ip, size_t ip_size, size_t bth) {
  if (ip_size == 20) {
    ip[1] = ip[8] = ip[10] = ip[11] = std::byte{0xff};
  } else {
    ip[0] |= std::byte{0x0f};
    ip[1] = ip[2] = ip[3] = ip[7] = std::byte{0xff};
  }
  if (bth != ip_size) ip[bth - 2] = ip[bth - 1] = std::byte{0xff};
  ip[bth + 4] = std::byte{0xff};
  uint32_t state = kCrc32Start;
  for (int i = 0; i < 8; ++i) state = crc::byte_step(state, 0xff);
  for (size_t i = 0; i < ip.size() - kIcrcSize; ++i) {
    state = crc::byte_step(state, std::to_integer<uint8_t>(ip[i]));
  }
  return ~state;
}

struct Made {
  IcrcFlow flow;
  std::vector<std::byte> packet;
  std::vector<std::byte> payload;
  uint16_t ip_id;
};

// A random sealed packet of any family, compared with the definition.
Made make(Prng& prng) {
  Made m;
  const uint64_t family = prng.below(3);
  const Endpoint source = family == 0 ? endpoint("10.77.0.2", static_cast<uint16_t>(prng.next()))
                                      : endpoint("fd77::2", static_cast<uint16_t>(prng.next()));
  const Endpoint destination = family == 0 ? endpoint("10.77.0.3") : endpoint("fe80::aaaa:3");
  m.flow = family == 2 ? IcrcFlow::roce_v1(source.address.to_gid(), destination.address.to_gid())
                       : IcrcFlow::roce_v2(source, destination);
  m.ip_id = family == 0 ? static_cast<uint16_t>(prng.next()) : 0;
  m.payload.resize(prng.chance(0.5) ? prng.below(70) : prng.below(4097));
  for (std::byte& b : m.payload) b = static_cast<std::byte>(prng.next());

  Bth bth;
  bth.pad = pad_for(m.payload.size());
  bth.fecn = prng.chance(0.5);
  bth.reserved6 = static_cast<uint8_t>(prng.below(64));
  bth.dest_qp = Qpn(static_cast<uint32_t>(prng.next()));
  bth.psn = Psn(prng.next());
  std::array<std::byte, 64> headers;
  size_t n = 0;
  if (prng.chance(0.5)) {
    bth.opcode = static_cast<uint8_t>(Opcode::rc_send_only);
    n = emit_headers(headers.data(), bth);
  } else {
    bth.opcode = static_cast<uint8_t>(Opcode::rc_write_only_imm);
    n = emit_headers(headers.data(), bth, Reth{prng.next(), MemoryKey(7), 9}, ImmDt{77});
  }
  m.packet.assign(headers.begin(), headers.begin() + static_cast<ptrdiff_t>(n));
  m.packet.resize(packet_size(opcode_info(bth.opcode), m.payload.size()));

  std::vector<std::span<const std::byte>> pieces;
  for (std::span<const std::byte> rest = m.payload; !rest.empty();) {
    const size_t part = std::min<size_t>(rest.size(), prng.below(rest.size() + 20));
    pieces.push_back(rest.first(part));
    rest = rest.subspan(part);
  }
  EXPECT_EQ(seal(m.packet.data(), n, pieces, m.flow, m.ip_id), m.packet.size());

  const auto size = static_cast<uint16_t>(m.packet.size());
  std::vector<std::byte> ip;
  if (family == 0) {
    Ipv4Header h;
    h.total_length = static_cast<uint16_t>(28 + size);
    h.identification = m.ip_id;
    h.source = source.address.v4_value();
    h.destination = destination.address.v4_value();
    ip.resize(Ipv4Header::kSize);
    emit_header(h, ip.data());
  } else {
    Ipv6Header h;
    h.payload_length = static_cast<uint16_t>(family == 1 ? 8 + size : size);
    h.next_header = family == 1 ? kProtocolUdp : kNextHeaderIba;
    h.source = source.address.bytes();
    h.destination = destination.address.bytes();
    ip.resize(Ipv6Header::kSize);
    emit_header(h, ip.data());
  }
  const size_t ip_size = ip.size();
  if (family != 2) {
    ip.resize(ip_size + UdpHeader::kSize);
    emit_header(UdpHeader{source.port, destination.port, static_cast<uint16_t>(8 + size), 0x1234},
                ip.data() + ip_size);
  }
  const size_t bth_at = ip.size();
  ip.insert(ip.end(), m.packet.begin(), m.packet.end());
  EXPECT_EQ(compute_icrc(m.flow, m.packet, m.ip_id), reference(ip, ip_size, bth_at));
  return m;
}

TEST(Icrc, SealsAndVerifiesRandomPackets) {
  Prng prng(11);
  for (int round = 0; round < 2000; ++round) {
    const Made m = make(prng);
    const ParseResult parsed = parse(m.packet);
    ASSERT_TRUE(parsed);
    EXPECT_EQ(compute_icrc(m.flow, m.packet, m.ip_id), parsed->icrc());
    for (uint16_t guess : {uint16_t{0}, m.ip_id, static_cast<uint16_t>(m.ip_id + 1)}) {
      const IcrcCheck check = verify(m.flow, *parsed, guess);
      ASSERT_TRUE(check.ok);
      ASSERT_EQ(check.ip_id, m.ip_id);
    }
    std::vector<std::byte> out(m.payload.size());
    const size_t split = prng.below(out.size() + 1);
    const std::span<std::byte> pieces[] = {std::span(out).first(split),
                                           std::span(out).subspan(split)};
    ASSERT_TRUE(verify_and_copy(m.flow, *parsed, pieces).ok);
    ASSERT_EQ(out, m.payload);
  }
}

// Over IPv6 every damaged bit shows. Over IPv4 a burst inside 16 bits could be taken for another
// identification only if it is a multiple of the right power of x; single bits never are, apart
// from those that the ICRC does not cover.
TEST(Icrc, FindsEveryFlippedBit) {
  Prng prng(12);
  for (int round = 0; round < 20; ++round) {
    Made m = make(prng);
    if (m.packet.size() > 200) continue;
    for (size_t bit = 0; bit < m.packet.size() * 8; ++bit) {
      if (bit / 8 == 4) continue;  // masked
      m.packet[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      const ParseResult parsed = parse(m.packet);
      if (parsed) {
        EXPECT_FALSE(verify(m.flow, *parsed).ok) << "bit " << bit;
      }
      m.packet[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    }
  }
}

// Random damage passes an IPv4 check with a chance of 2^-16, as the header says.
TEST(Icrc, SolverAcceptsAboutOneIn65536) {
  Prng prng(13);
  Made m = make(prng);
  while (!m.flow.has_ip_id()) m = make(prng);
  const ParseResult parsed = parse(m.packet);
  int accepted = 0;
  for (int i = 0; i < 500'000; ++i) {
    store_be(m.packet.data() + m.packet.size() - kIcrcSize, static_cast<uint32_t>(prng.next()));
    accepted += verify(m.flow, *parsed).ok ? 1 : 0;
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 30);
}

TEST(Icrc, SolvesInPacketsOfEverySize) {
  const IcrcFlow flow = IcrcFlow::roce_v2(endpoint("10.0.0.1"), endpoint("10.0.0.2"));
  Bth bth;
  bth.opcode = static_cast<uint8_t>(Opcode::manufacturer_last);
  for (size_t payload : {0u, 3u, 200u, 229u, 4096u, 8900u, 60000u}) {
    std::vector<std::byte> body(payload, std::byte{0x5a});
    std::vector<std::byte> packet(packet_size(Opcode::manufacturer_last, payload));
    bth.pad = pad_for(payload);
    seal(packet.data(), emit_headers(packet.data(), bth), body, flow, 0xBEEF);
    const IcrcCheck check = verify(flow, *parse(packet));
    EXPECT_TRUE(check.ok) << payload;
    EXPECT_EQ(check.ip_id, 0xBEEF) << payload;
  }
}

// The far transport's check covers no address: a translator may change them.
TEST(Icrc, FarPacketsAreCheckedWithoutAddresses) {
  const Opcode opcode = Opcode::far_write;
  for (const size_t payload : {0u, 1u, 1432u}) {
    const std::vector<std::byte> body(payload, std::byte{0x5a});
    std::vector<std::byte> packet(packet_size(opcode, payload));
    Bth bth;
    bth.opcode = static_cast<uint8_t>(opcode);
    bth.pad = pad_for(payload);
    const size_t header = emit_headers(packet.data(), bth, FarBase{}, FarPlace{});
    seal(packet.data(), header, body, IcrcFlow::far(), 7);
    EXPECT_TRUE(verify(IcrcFlow::far(), *parse(packet), 99).ok);
    packet[4] ^= std::byte{0xc0};  // FECN and BECN may change on the way
    EXPECT_TRUE(verify(IcrcFlow::far(), *parse(packet)).ok);
    packet[13] ^= std::byte{1};
    EXPECT_FALSE(verify(IcrcFlow::far(), *parse(packet)).ok);
  }
}

}  // namespace
}  // namespace farverbs::wire
