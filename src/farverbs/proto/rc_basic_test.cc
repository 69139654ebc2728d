// What every RC operation does when nothing goes wrong: the packets, the memory, the completions.
#include "farverbs/proto/proto_testing.h"

namespace farverbs::proto {
namespace {

using namespace testing;

TEST(RcBasic, SendOnePacket) {
  Link link;
  link.b.receive(4096, 256);
  link.a.fill(0, 100, 1);
  link.a.send(0, 100);
  EXPECT_EQ(link.a.trace(), Lines{"SEND_ONLY 100 A"});
}

TEST(RcBasic, SendSizesArriveAndComplete) {
  for (const uint32_t length : {0u, 1u, 3u, 255u, 256u, 257u, 512u, 1000u, 5000u}) {
    Link link;
    link.a.fill(0, length, length);
    link.b.receive(8192, length + 8);
    link.a.send(0, length);
    link.settle();
    EXPECT_EQ(std::memcmp(link.a.bytes(0), link.b.bytes(8192), length), 0) << length;
    const auto receives = link.b.receives();
    ASSERT_EQ(Side::summary(receives), "1 success");
    EXPECT_EQ(receives[0].byte_length, length);
    EXPECT_EQ(receives[0].opcode, model::CompletionOpcode::kReceive);
    EXPECT_EQ(Side::summary(link.a.sends()), "1 success");
    EXPECT_EQ(link.a.inflight, 0u);
    EXPECT_TRUE(link.a.qp->next_timer().is_never());
  }
}

TEST(RcBasic, WriteSizesArriveAndOneAckSaysAll) {
  for (const uint32_t length : {0u, 1u, 255u, 256u, 257u, 4096u, 100'001u}) {
    Link link;
    link.a.fill(0, length, length);
    link.a.write(0, length, link.b, 200'000);
    link.settle();
    EXPECT_EQ(std::memcmp(link.a.bytes(0), link.b.bytes(200'000), length), 0) << length;
    EXPECT_EQ(Side::summary(link.a.sends()), "1 success");
    EXPECT_EQ(link.b.receives().size(), 0u);
  }
}

TEST(RcBasic, WritePackets) {
  Link link;
  link.a.write(0, 700, link.b, 4096);
  EXPECT_EQ(link.a.trace(),
            (Lines{"WRITE_FIRST 100 len 700", "WRITE_MIDDLE 101", "WRITE_LAST 102 A"}));
}

TEST(RcBasic, WriteWithImmediate) {
  Link link;
  link.b.receive(0, 0);
  link.a.fill(0, 300, 3);
  auto r = link.a.request(SendOpcode::kWriteWithImmediate, 0, 300);
  r.remote_address = link.b.address(4096);
  r.remote_key = link.b.key();
  r.immediate = 0xABCD1234;
  link.a.post(r);
  link.settle();
  const auto receives = link.b.receives();
  ASSERT_EQ(Side::summary(receives), "1 success");
  EXPECT_EQ(receives[0].opcode, model::CompletionOpcode::kReceiveWithImmediate);
  EXPECT_EQ(receives[0].byte_length, 300u);
  EXPECT_EQ(receives[0].immediate, 0xABCD1234u);
  EXPECT_EQ(receives[0].flags & model::kWithImmediate, model::kWithImmediate);
  EXPECT_EQ(std::memcmp(link.a.bytes(0), link.b.bytes(4096), 300), 0);
}

TEST(RcBasic, ReadSizes) {
  for (const uint32_t length : {0u, 1u, 256u, 257u, 5000u, 100'000u}) {
    Link link;
    link.b.fill(0, length, length + 1);
    link.a.read(200'000, length, link.b, 0);
    link.settle();
    EXPECT_EQ(std::memcmp(link.a.bytes(200'000), link.b.bytes(0), length), 0) << length;
    const auto sends = link.a.sends();
    ASSERT_EQ(Side::summary(sends), "1 success");
    EXPECT_EQ(sends[0].byte_length, length);
    EXPECT_EQ(link.a.read_inflight, 0u);
    EXPECT_TRUE(link.a.qp->next_timer().is_never());
  }
}

TEST(RcBasic, ReadPackets) {
  Link link;
  link.a.read(0, 700, link.b, 4096);
  link.cross(link.a, link.b);
  EXPECT_EQ(link.b.trace(), (Lines{"READ_RESPONSE_FIRST 100 msn 1", "READ_RESPONSE_MIDDLE 101",
                                   "READ_RESPONSE_LAST 102 msn 1"}));
}

TEST(RcBasic, Atomics) {
  Link link;
  link.b.word(0) = 40;
  link.a.fetch_add(64, 2, link.b, 0);
  link.a.compare_swap(72, 42, 7, link.b, 0);
  link.a.compare_swap(80, 42, 9, link.b, 0);
  link.settle();
  EXPECT_EQ(link.a.word(64), 40u);
  EXPECT_EQ(link.a.word(72), 42u);
  EXPECT_EQ(link.a.word(80), 7u);
  EXPECT_EQ(link.b.word(0), 7u);
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success, 2 success, 3 success");
}

TEST(RcBasic, InlineAndSeveralElements) {
  Link link;
  link.a.fill(0, 2000, 9);
  link.b.receive(8192, 1000);
  const model::ScatterGatherElement pieces[] = {link.a.sge(0, 10), link.a.sge(500, 0),
                                                link.a.sge(100, 600), link.a.sge(1000, 90)};
  auto r = link.a.request(SendOpcode::kSend, 0, 0);
  r.sges = pieces;
  link.a.post(r);
  link.settle();
  EXPECT_EQ(std::memcmp(link.b.bytes(8192), link.a.bytes(0), 10), 0);
  EXPECT_EQ(std::memcmp(link.b.bytes(8202), link.a.bytes(100), 600), 0);
  EXPECT_EQ(std::memcmp(link.b.bytes(8802), link.a.bytes(1000), 90), 0);

  // Inline: no key is looked at, and the buffer is free at once.
  char text[] = "inline data";
  const model::ScatterGatherElement element{reinterpret_cast<uint64_t>(text), sizeof text,
                                            MemoryKey(1)};
  auto inlined = link.a.request(SendOpcode::kSend, 0, 0);
  inlined.sges = {&element, 1};
  inlined.flags = model::kInline;
  link.b.receive(0, 64);
  link.a.post(inlined);
  text[0] = 'x';
  link.settle();
  EXPECT_STREQ(reinterpret_cast<const char*>(link.b.bytes(0)), "inline data");
}

TEST(RcBasic, ManyMessagesInBursts) {
  Link link;
  for (int i = 0; i < 100; ++i) {
    link.a.fill(static_cast<size_t>(i) * 1024, 1024, static_cast<uint64_t>(i));
    link.a.write(static_cast<size_t>(i) * 1024, 1024, link.b, static_cast<size_t>(i) * 1024);
  }
  link.settle();
  EXPECT_EQ(std::memcmp(link.a.bytes(0), link.b.bytes(0), 100 * 1024), 0);
  EXPECT_EQ(link.a.sends().size(), 100u);
  EXPECT_EQ(link.a.inflight, 0u);
}

}  // namespace
}  // namespace farverbs::proto
