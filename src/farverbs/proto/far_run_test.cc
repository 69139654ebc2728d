// Runs of a far message's packets: the same outcome as packet by packet, as far as they go.
#include <sys/mman.h>

#include "farverbs/base/fault_guard.h"
#include "farverbs/proto/far_testing.h"

namespace farverbs::proto {
namespace {

using namespace testing;
using Verdict = FarResponder::Verdict;

constexpr size_t kPayload = 1000;
constexpr size_t kPackets = 10;
constexpr PacketNumber kFirst = 0x12'00FF'FFFC;  // the PSN wraps around inside

// Packets 1 .. 9 of a message of 20 whose packet 0 has come.
class FarRuns : public ::testing::TestWithParam<bool> {
 protected:
  FarRuns() {
    side.a.receive(kAt, 100'000);
    EXPECT_EQ(side.take(packet(0)), Verdict::kTaken);
    for (size_t i = 1; i < kPackets; ++i) packets.push_back(numbered(packet(i), kFirst + i - 1));
  }
  bool write() const { return GetParam(); }
  Bytes packet(size_t i, uint32_t message = 0) const {
    return write() ? side.write(message, kAt, data, i * kPayload, (i + 1) * kPayload)
                   : side.send(message, 0, data, i * kPayload, (i + 1) * kPayload);
  }
  // The run ends before packet `index` of packets, which is then like any other.
  void ends_before(size_t index) {
    EXPECT_EQ(side.take_run(packets, kFirst).packets, index);
    EXPECT_TRUE(side.holds(kAt, data, 0, (1 + index) * kPayload));
    EXPECT_EQ(side.a.counters().received_packets, 1 + index);
    EXPECT_EQ(side.a.counters().received_payload_bytes, (1 + index) * kPayload);
    for (size_t i = 1 + index; i < 20; ++i) EXPECT_EQ(side.take(packet(i)), Verdict::kTaken);
    EXPECT_TRUE(side.holds(kAt, data, 0, data.size()));
    EXPECT_EQ(side.far.executed(), 1u);
  }

  static constexpr size_t kAt = 4096;
  Bytes data = random_bytes(20 * kPayload, 1);
  FarSide side;
  std::vector<Bytes> packets;
};

TEST_P(FarRuns, Whole) { ends_before(kPackets - 1); }
TEST_P(FarRuns, ADamagedPacketEndsIt) {
  packets[5][200] ^= std::byte{1};
  ends_before(5);
}
TEST_P(FarRuns, AnotherNumberEndsIt) {
  packets[6] = numbered(packets[6], kFirst + 7);
  ends_before(6);
}
TEST_P(FarRuns, ANumberOfAnotherRoundEndsIt) {
  packets[6] = numbered(packets[6], kFirst + 6 + (1 << 24));
  ends_before(6);
}
TEST_P(FarRuns, AnotherMessageEndsIt) {
  packets[3] = numbered(packet(4, 1), kFirst + 3);
  ends_before(3);
}
TEST_P(FarRuns, AGapInTheMessageEndsIt) {
  packets[3] = numbered(packet(5), kFirst + 3);
  ends_before(3);
}
TEST_P(FarRuns, FlagsEndIt) {
  packets[4] = changed(packets[4], [](Bytes& b) { b[14] |= std::byte{0x40}; });  // repairable
  ends_before(4);
}
// Blocks of forward error correction need each of their packets.
TEST_P(FarRuns, RepairablePacketsMakeNone) {
  for (Bytes& p : packets) p = changed(p, [](Bytes& b) { b[14] |= std::byte{0x40}; });
  ends_before(0);
}
TEST_P(FarRuns, AnotherKeyOrSequenceEndsIt) {
  packets[4] = changed(packets[4], [this](Bytes& b) { b[write() ? 28 : 20] ^= std::byte{1}; });
  ends_before(4);
}
TEST_P(FarRuns, TheMessagesLastPacketEndsIt) {
  packets[8] = changed(packets[8], [](Bytes& b) { b[14] |= std::byte{0x80}; });
  EXPECT_EQ(side.take_run(packets, kFirst).packets, 8u);
  EXPECT_EQ(side.take(packets[8]), Verdict::kTaken);
  EXPECT_EQ(side.far.executed(), 1u);
}
TEST_P(FarRuns, AckReqIsTold) {
  EXPECT_FALSE(side.take_run({packets[0], packets[1]}, kFirst).ack_request);
  packets[3] = changed(packets[3], [](Bytes& b) { b[8] |= std::byte{0x80}; });
  const auto taken = side.take_run({packets[2], packets[3]}, kFirst + 2);
  EXPECT_EQ(taken.packets, 2u);
  EXPECT_TRUE(taken.ack_request);
}
TEST_P(FarRuns, NoneWhereAnythingIsUnusual) {
  EXPECT_EQ(side.take_run({packets[0]}, kFirst).packets, 0u);  // one packet is none
  EXPECT_EQ(side.take_run(packets, kFirst + 1).packets, 0u);
  EXPECT_EQ(side.take_run({packets[1], packets[2]}, kFirst + 1).packets, 0u);  // a gap before
  EXPECT_EQ(FarSide().take_run(packets, kFirst).packets, 0u);                  // not begun
  // A later message is being placed: its bytes must be spared.
  EXPECT_EQ(side.take(side.write(1, 500'000, data, 0, 100)), Verdict::kTaken);
  EXPECT_EQ(side.take_run(packets, kFirst).packets, 0u);
}
INSTANTIATE_TEST_SUITE_P(Kinds, FarRuns, ::testing::Bool(), [](const auto& kind) {
  return std::string(kind.param ? "Write" : "Send");
});

TEST(FarRun, OfALaterMessageIsSparedByAnEarlierOne) {
  FarSide side;
  const Bytes later = random_bytes(20 * kPayload, 1);
  const Bytes early = random_bytes(10 * kPayload, 2);
  std::vector<Bytes> packets;
  for (size_t i = 0; i < 10; ++i) {
    packets.push_back(numbered(side.write(1, 0, later, i * kPayload, (i + 1) * kPayload), i));
  }
  EXPECT_EQ(side.take(packets[0]), Verdict::kTaken);
  packets.erase(packets.begin());
  EXPECT_EQ(side.take_run(packets, 1).packets, 9u);
  EXPECT_EQ(side.take(side.write(0, 5 * kPayload, early, 0, 10 * kPayload)), Verdict::kTaken);
  EXPECT_EQ(side.far.executed(), 1u);
  EXPECT_TRUE(side.holds(0, later, 0, 10 * kPayload));
  EXPECT_TRUE(side.holds(5 * kPayload, early, 5 * kPayload, 10 * kPayload));
}

TEST(FarRun, EndsWithTheRegion) {
  FarSide side;
  const Bytes data = random_bytes(20 * kPayload, 1);
  const size_t at = side.a.options.memory_bytes - 5 * kPayload - 1;
  EXPECT_EQ(side.take(side.write(0, at, data, 0, kPayload)), Verdict::kTaken);
  std::vector<Bytes> packets;
  for (size_t i = 1; i < 10; ++i) {
    packets.push_back(
        numbered(side.write(0, at, data, i * kPayload, (i + 1) * kPayload), kFirst + i - 1));
  }
  EXPECT_EQ(side.take_run(packets, kFirst).packets, 4u);
  EXPECT_EQ(side.take(packets[4]), Verdict::kTaken);
  EXPECT_TRUE(side.refused(wire::NakCode::remote_access_error));
}

TEST(FarRun, EndsWithTheReceive) {
  FarSide side;
  side.a.receive(0, 5 * kPayload + 1);
  const Bytes data = random_bytes(20 * kPayload, 1);
  EXPECT_EQ(side.take(side.send(0, 0, data, 0, kPayload)), Verdict::kTaken);
  std::vector<Bytes> packets;
  for (size_t i = 1; i < 10; ++i) {
    packets.push_back(
        numbered(side.send(0, 0, data, i * kPayload, (i + 1) * kPayload), kFirst + i - 1));
  }
  EXPECT_EQ(side.take_run(packets, kFirst).packets, 4u);
  EXPECT_EQ(side.take(packets[4]), Verdict::kTaken);
  EXPECT_TRUE(side.refused(wire::NakCode::invalid_request));
  EXPECT_EQ(Side::summary(side.a.receives()), "1 local length error");
}

TEST(FarRun, EndsWhereMemoryIsGone) {
  install_fault_guard();
  auto* const pages = static_cast<std::byte*>(
      mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  FarSide side;
  auto* const region = side.a.table.register_region(1, pages, 8192, 0, kAllAccess).value();
  mprotect(pages + 4096, 4096, PROT_NONE);
  const Bytes data = random_bytes(8000, 1);
  const auto packet = [&](size_t i) {
    return numbered(far_packet(Opcode::far_write, 0, false, part(data, i * 1000, i * 1000 + 1000),
                               wire::FarPlace{i * 1000, MemoryKey(region->key.load()),
                                              static_cast<uint32_t>(i * 1000)}),
                    kFirst + i);
  };
  EXPECT_EQ(side.take(packet(0)), Verdict::kTaken);
  const auto taken =
      side.take_run({packet(1), packet(2), packet(3), packet(4), packet(5)}, kFirst + 1);
  EXPECT_EQ(taken.packets, 3u);
  EXPECT_EQ(side.take(packet(4)), Verdict::kTaken);
  EXPECT_TRUE(side.refused(wire::NakCode::remote_operational_error));
  munmap(pages, 8192);
}

}  // namespace
}  // namespace farverbs::proto
