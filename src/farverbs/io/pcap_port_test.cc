#include "farverbs/io/pcap_port.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "farverbs/io/os_clock.h"
#include "farverbs/io/test_support.h"
#include "farverbs/io/udp_port.h"
#include "farverbs/wire/frame.h"
#include "farverbs/wire/icrc.h"
#include "farverbs/wire/roce.h"

namespace farverbs::io {
namespace {

// A file that is gone with the test.
struct TemporaryFile {
  std::string path;
  explicit TemporaryFile(const std::string& name)
      : path((std::filesystem::temp_directory_path() /
              ("farverbs-" + name + "-" + std::to_string(getpid())))
                 .string()) {}
  ~TemporaryFile() { std::filesystem::remove(path); }
};

std::unique_ptr<PcapPort> open_port(const char* address, uint16_t port, const TemporaryFile& file) {
  UdpOptions options;
  options.local = {IpAddress::parse(address).value(), port};
  return std::make_unique<PcapPort>(UdpPort::open(options).value(),
                                    wire::PcapWriter::create(file.path).value(), os_wall_clock);
}

// Three frames whose ICRCs are right, with the identification that the kernel gave.
void expect_valid(const TemporaryFile& file, const Endpoint& source, const Endpoint& destination) {
  auto reader = wire::PcapReader::open(file.path);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  for (uint16_t i = 0; i < 3; ++i) {
    auto packet = reader->next();
    ASSERT_TRUE(packet.ok()) << packet.error().message;
    ASSERT_TRUE(packet->has_value());
    EXPECT_GT((*packet)->time.ns(), 0);
    const wire::Frame frame = wire::dissect((*packet)->link, (*packet)->data);
    ASSERT_EQ(frame.kind, wire::FrameKind::roce_v2);
    EXPECT_EQ(frame.source(), source);
    EXPECT_EQ(frame.destination(), destination);
    EXPECT_EQ(frame.traffic_class(), 0x2A);
    EXPECT_EQ(frame.ip_id(), frame.ipv4 ? i : 0);
    const auto parsed = wire::parse(frame.packet);
    ASSERT_TRUE(static_cast<bool>(parsed));
    EXPECT_EQ(wire::compute_icrc(frame.icrc_flow(), frame.packet, frame.ip_id()), parsed->icrc());
  }
  auto end = reader->next();
  ASSERT_TRUE(end.ok());
  EXPECT_FALSE(end->has_value());
}

TEST(PcapPort, CapturesOfBothEndsAreValid) {
  FV_EXPECT_IN_OWN_NETWORK([] {
    for (const char* address : {"127.0.0.1", "::1"}) {
      const TemporaryFile sent("sent");
      const TemporaryFile received("received");
      auto a = open_port(address, 0, sent);
      auto b = open_port(address, kRoceUdpPort, received);
      const Endpoint source = a->local();
      const Endpoint destination = b->local();
      const wire::IcrcFlow icrc = wire::IcrcFlow::roce_v2(source, destination);
      OwnedBurst burst(4096);
      const std::array<std::byte, 256> payload{};
      std::array<std::byte, 1024> packet{};
      packet[0] = std::byte{0x04};  // RC SEND_ONLY
      for (uint16_t i = 0; i < 3; ++i) {
        const size_t size = wire::seal(packet.data(), 12, payload, icrc, i);
        std::copy_n(packet.begin(), size, burst->append(size));
      }
      ASSERT_EQ(a->send({destination, 0x2A, 64}, *burst), SendStatus::kSent);
      EXPECT_EQ(split(receive_datagrams(*b, 3)).size(), 3u);
      EXPECT_EQ(a->not_written() + b->not_written(), 0u);
      a.reset();  // closes the files
      b.reset();
      expect_valid(sent, source, destination);
      expect_valid(received, source, destination);
    }
  });
}

}  // namespace
}  // namespace farverbs::io
