// The golden captures of tests/captures, packet by packet, and the reader and writer of such files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "farverbs/base/prng.h"
#include "farverbs/wire/frame.h"
#include "farverbs/wire/packet_check.h"

namespace farverbs::wire {
namespace {

const std::filesystem::path kCaptures = std::string(FARVERBS_SOURCE_DIR) + "/tests/captures";

std::map<std::string, size_t> expected_counts() {
  std::map<std::string, size_t> counts;
  std::ifstream in(kCaptures / "counts.txt");
  std::string name;
  for (size_t count = 0; in >> name >> count;) counts[name] = count;
  return counts;
}

template <class Body>
void for_each_packet(const std::filesystem::path& path, Body body) {
  Result<PcapReader> reader = PcapReader::open(path.string());
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  while (true) {
    Result<std::optional<CapturedPacket>> packet = reader->next();
    ASSERT_TRUE(packet.ok()) << packet.error().message;
    if (!packet->has_value()) return;
    body(**packet);
  }
}

std::vector<std::byte> slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST(Captures, EveryRocePacketParsesReemitsAndVerifies) {
  const std::map<std::string, size_t> counts = expected_counts();
  ASSERT_EQ(counts.size(), 66u);
  for (const auto& [name, count] : counts) {
    SCOPED_TRACE(name);
    size_t found = 0;
    for_each_packet(kCaptures / (name + ".pcap"), [&](const CapturedPacket& packet) {
      SCOPED_TRACE(packet.number);
      const Frame frame = dissect(packet.link, packet.data);
      if (frame.kind == FrameKind::other) return;
      ASSERT_EQ(frame.kind, FrameKind::roce_v2) << frame.problem;
      const ParseResult parsed = parse(frame.packet);
      ASSERT_TRUE(parsed) << to_string(parsed.error());
      ++found;
      const std::optional<std::vector<std::byte>> again = reemit(frame, packet.data);
      ASSERT_TRUE(again);
      EXPECT_TRUE(std::equal(again->begin(), again->end(), packet.data.begin(), packet.data.end()));

      // With the identification of the IP header, and as a UDP receiver who never saw it.
      const IcrcFlow flow = frame.icrc_flow();
      EXPECT_EQ(compute_icrc(flow, frame.packet, frame.ip_id()), parsed->icrc());
      const IcrcCheck check = verify(flow, *parsed);
      EXPECT_TRUE(check.ok);
      EXPECT_EQ(check.ip_id, frame.ip_id());
      EXPECT_TRUE(verify(flow, *parsed, 77).ok);
    });
    EXPECT_EQ(found, count);
  }
}

TEST(Captures, KnownPacketsHaveTheirFields) {
  std::vector<std::string> names;
  for_each_packet(kCaptures / "rc_write_imm.pcap", [&](const CapturedPacket& packet) {
    const Frame frame = dissect(packet.link, packet.data);
    const ParseResult parsed = parse(frame.packet);
    ASSERT_TRUE(parsed);
    names.emplace_back(opcode_name(parsed->bth.opcode));
    if (parsed->opcode() == Opcode::rc_write_only_imm && parsed->payload().empty()) {
      EXPECT_EQ(parsed->imm().value, 0x11u);
      EXPECT_EQ(parsed->reth().length, 0u);
    }
    if (parsed->bth.solicited) {
      EXPECT_EQ(parsed->imm().value, 0x44u);
    }
  });
  EXPECT_EQ(std::count(names.begin(), names.end(), "RC WRITE_ONLY_IMM"), 3);
  EXPECT_EQ(std::count(names.begin(), names.end(), "RC WRITE_LAST_IMM"), 2);
  EXPECT_EQ(std::count(names.begin(), names.end(), "RC ACK"), 5);
}

// The fuzzers' body on true packets, on damaged ones, and on noise.
TEST(Captures, DamagedPacketsBreakNothing) {
  Prng prng(21);
  for (const char* name : {"rc_atomics", "rc_sendinv_mw", "ud_ops", "rc_ipv6_ops", "cm_udaddy"}) {
    for_each_packet(kCaptures / (std::string(name) + ".pcap"), [&](const CapturedPacket& packet) {
      std::vector<std::byte> bytes(1);
      bytes.insert(bytes.end(), packet.data.begin(), packet.data.end());
      bytes[0] = std::byte{1};
      check_any_bytes(bytes);
      for (int round = 0; round < 200; ++round) {
        std::vector<std::byte> damaged = bytes;
        for (uint64_t n = prng.below(4); n > 0; --n) {
          damaged[1 + prng.below(damaged.size() - 1)] ^=
              static_cast<std::byte>(1u << prng.below(8));
        }
        if (prng.chance(0.3)) damaged.resize(1 + prng.below(damaged.size()));
        check_any_bytes(damaged);
      }
    });
  }
  for (int round = 0; round < 50'000; ++round) {
    std::vector<std::byte> noise(1 + prng.below(100));
    for (std::byte& b : noise) b = static_cast<std::byte>(prng.next());
    if (noise.size() > 2) noise[2] &= std::byte{0xf0};  // often TVer 0
    noise[0] = std::byte{0};
    check_any_bytes(noise);
  }
}

TEST(Pcap, DamagedFilesBreakNothing) {
  Prng prng(22);
  const std::vector<std::byte> good = slurp(kCaptures / "cm_udaddy.pcap");
  check_capture(good);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> bad = good;
    for (uint64_t n = prng.below(6); n > 0; --n) {
      bad[prng.below(prng.chance(0.5) ? 64 : bad.size())] = static_cast<std::byte>(prng.next());
    }
    if (prng.chance(0.3)) bad.resize(prng.below(bad.size()));
    check_capture(bad);
  }
}

std::string message_of(const std::vector<std::byte>& bytes) {
  Result<PcapReader> reader = PcapReader::from_bytes(bytes, "x.pcap");
  if (!reader.ok()) return reader.error().message;
  while (true) {
    Result<std::optional<CapturedPacket>> packet = reader->next();
    if (!packet.ok()) return packet.error().message;
    if (!packet->has_value()) return "";
  }
}

TEST(Pcap, SaysWhatIsWrongWithAFile) {
  const std::vector<std::byte> good = slurp(kCaptures / "cm_udaddy.pcap");
  EXPECT_EQ(message_of(good), "");
  EXPECT_EQ(message_of({}), "x.pcap: is empty, not a packet capture");
  EXPECT_EQ(message_of({good.begin() + 1, good.end()}),
            "x.pcap: is not a packet capture (pcap or pcapng)");
  EXPECT_EQ(message_of({good.begin(), good.begin() + 20}),
            "x.pcap: is truncated inside the file header");
  EXPECT_EQ(message_of({good.begin(), good.end() - 1}),
            "x.pcap: is truncated inside a packet after packet 7");
  const Result<PcapReader> missing = PcapReader::open("/nonexistent/a.pcap");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().message, "cannot open /nonexistent/a.pcap: No such file or directory");
  const Result<PcapReader> directory = PcapReader::open("/tmp");
  ASSERT_FALSE(directory.ok());
  EXPECT_EQ(directory.error().message, "cannot read /tmp: Is a directory");
}

// A classic file in either order and resolution gives the same packets.
TEST(Pcap, ReadsBothByteOrdersAndResolutions) {
  for (const bool big : {false, true}) {
    for (const bool nano : {false, true}) {
      std::vector<std::byte> file;
      const auto u32 = [&](uint32_t v) {
        std::byte b[4];
        store_be(b, big ? v : byte_swap(v));
        file.insert(file.end(), b, b + 4);
      };
      u32(nano ? 0xA1B23C4D : 0xA1B2C3D4);
      if (big) {
        u32(0x00020004);
      } else {
        u32(0x00040002);
      }
      for (uint32_t v : {0u, 0u, 65535u, 101u}) u32(v);
      for (uint32_t v : {7u, 5u, 3u, 9u}) u32(v);
      for (int v : {1, 2, 3}) file.push_back(static_cast<std::byte>(v));
      Result<PcapReader> reader = PcapReader::from_bytes(file, "x");
      ASSERT_TRUE(reader.ok());
      const auto packet = reader->next();
      ASSERT_TRUE(packet.ok() && packet->has_value());
      EXPECT_EQ((*packet)->time.ns(), 7'000'000'000 + (nano ? 5 : 5'000));
      EXPECT_EQ((*packet)->link, LinkType::raw_ip);
      EXPECT_EQ((*packet)->data.size(), 3u);
      EXPECT_EQ((*packet)->original_length, 9u);
    }
  }
}

TEST(Pcap, ReadsBlocks) {
  std::vector<std::byte> file;
  const auto u32 = [&](uint32_t v) {
    std::byte b[4];
    store_be(b, byte_swap(v));
    file.insert(file.end(), b, b + 4);
  };
  for (uint32_t v : {0x0A0D0D0Au, 28u, 0x1A2B3C4Du, 1u, ~0u, ~0u, 28u}) u32(v);
  // An interface with 10^-9 s stamps (option 9), then an unknown block, then a packet.
  for (uint32_t v : {1u, 32u, 1u, 65535u, 0x0001'0009u, 9u, 0u, 32u}) u32(v);
  for (uint32_t v : {0xBADu, 16u, 5u, 16u}) u32(v);
  for (uint32_t v : {6u, 36u, 0u, 1u, 2u, 2u, 60u, 0x00000201u, 36u}) u32(v);
  Result<PcapReader> reader = PcapReader::from_bytes(file, "x");
  ASSERT_TRUE(reader.ok());
  const auto packet = reader->next();
  ASSERT_TRUE(packet.ok() && packet->has_value());
  EXPECT_EQ((*packet)->time.ns(), (int64_t{1} << 32) + 2);
  EXPECT_EQ((*packet)->data.size(), 2u);
  EXPECT_EQ((*packet)->data[1], std::byte{2});
  const auto end = reader->next();
  ASSERT_TRUE(end.ok());
  EXPECT_FALSE(end->has_value());
}

TEST(Pcap, WritesWhatItReads) {
  char path[] = "/tmp/farverbs-pcap-XXXXXX";
  const int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  ::close(fd);
  const Endpoint a{*IpAddress::parse("fd77::2"), 4000};
  const Endpoint b{*IpAddress::parse("fd77::3"), kRoceUdpPort};
  Bth bth;
  bth.opcode = static_cast<uint8_t>(Opcode::uc_send_only);
  bth.pad = 1;
  const std::vector<std::byte> body(3, std::byte{1});
  std::vector<std::byte> packet(packet_size(Opcode::uc_send_only, 3));
  seal(packet.data(), emit_headers(packet.data(), bth), body, IcrcFlow::roce_v2(a, b), 0);
  {
    Result<PcapWriter> writer = PcapWriter::create(path);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->write(Time::from_ns(1'234'567'890'123), frame_of(a, b, packet)).ok());
    ASSERT_TRUE(writer->close().ok());
  }
  size_t found = 0;
  for_each_packet(path, [&](const CapturedPacket& captured) {
    ++found;
    EXPECT_EQ(captured.time.ns(), 1'234'567'890'123);
    const Frame frame = dissect(captured.link, captured.data);
    ASSERT_EQ(frame.kind, FrameKind::roce_v2);
    EXPECT_EQ(frame.source(), a);
    const ParseResult parsed = parse(frame.packet);
    ASSERT_TRUE(parsed);
    EXPECT_TRUE(verify(frame.icrc_flow(), *parsed).ok);
  });
  EXPECT_EQ(found, 1u);
  std::remove(path);
}

// Links other than plain Ethernet: a VLAN tag, raw IP, Linux cooked, and a RoCEv1 frame.
TEST(Frame, FindsThePacketBehindOtherLinks) {
  const Endpoint a{*IpAddress::parse("10.0.0.1"), 4000};
  const Endpoint b{*IpAddress::parse("10.0.0.2"), kRoceUdpPort};
  Bth bth;
  bth.opcode = static_cast<uint8_t>(Opcode::rc_send_only);
  std::vector<std::byte> packet(packet_size(Opcode::rc_send_only, 0));
  seal(packet.data(), emit_headers(packet.data(), bth), std::span<const std::byte>{},
       IcrcFlow::roce_v2(a, b), 5);
  const std::vector<std::byte> plain = frame_of(a, b, packet, {5, 0x6a, 3});
  EXPECT_EQ(ipv4_checksum(std::span(plain).subspan(14, 20)), 0);  // sums to ones
  EXPECT_EQ(dissect(LinkType::ethernet, plain).traffic_class(), 0x6a);

  std::vector<std::byte> tagged = plain;
  const std::byte tag[] = {std::byte{0x81}, std::byte{0}, std::byte{0x60}, std::byte{7}};
  tagged.insert(tagged.begin() + 12, tag, tag + 4);
  tagged.resize(tagged.size() + 6);  // Ethernet padding
  const Frame frame = dissect(LinkType::ethernet, tagged);
  ASSERT_EQ(frame.kind, FrameKind::roce_v2);
  ASSERT_EQ(frame.vlans.size(), 1u);
  EXPECT_EQ(frame.vlans[0].vlan, 7);
  EXPECT_EQ(frame.trailer.size(), 6u);
  EXPECT_EQ(reemit(frame, tagged), tagged);

  const std::vector<std::byte> raw(plain.begin() + 14, plain.end());
  EXPECT_EQ(dissect(LinkType::raw_ip, raw).packet.size(), packet.size());
  std::vector<std::byte> cooked(16);
  cooked[14] = std::byte{0x08};
  cooked.insert(cooked.end(), raw.begin(), raw.end());
  EXPECT_EQ(reemit(dissect(LinkType::linux_sll, cooked), cooked), cooked);
  std::vector<std::byte> cooked2(20);
  cooked2[0] = std::byte{0x08};
  cooked2.insert(cooked2.end(), raw.begin(), raw.end());
  EXPECT_EQ(dissect(LinkType::linux_sll2, cooked2).kind, FrameKind::roce_v2);

  std::vector<std::byte> cut(plain.begin(), plain.end() - 1);
  EXPECT_EQ(dissect(LinkType::ethernet, cut).kind, FrameKind::malformed);

  Grh grh;
  grh.next_header = kNextHeaderIba;
  grh.payload_length = static_cast<uint16_t>(packet.size());
  grh.source = a.address.to_gid();
  grh.destination = b.address.to_gid();
  std::vector<std::byte> v1(EthernetHeader::kSize + Grh::kSize);
  emit_header(EthernetHeader{{}, {}, kEtherTypeRoceV1}, v1.data());
  emit_header(grh, v1.data() + EthernetHeader::kSize);
  seal(packet.data(), Bth::kSize, std::span<const std::byte>{},
       IcrcFlow::roce_v1(grh.source, grh.destination), 0);
  v1.insert(v1.end(), packet.begin(), packet.end());
  const Frame one = dissect(LinkType::ethernet, v1);
  ASSERT_EQ(one.kind, FrameKind::roce_v1);
  EXPECT_EQ(reemit(one, v1), v1);
  EXPECT_EQ(one.source().address, a.address);
}

}  // namespace
}  // namespace farverbs::wire
