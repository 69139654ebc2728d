// Section 4 of docs/far-transport.md, rule by rule: placement in any order, and what waits.
#include "farverbs/proto/far_testing.h"

namespace farverbs::proto {
namespace {

using namespace testing;
using Verdict = FarResponder::Verdict;
using wire::FarStatus;
using wire::NakCode;

constexpr auto kTaken = Verdict::kTaken;
constexpr auto kDropped = Verdict::kDropped;
constexpr auto kDamaged = Verdict::kDamaged;

TEST(FarPlacing, InAnyOrderButTheLastPacketAfterAllOthers) {
  FarSide side;
  const Bytes data = random_bytes(3500, 1);
  EXPECT_EQ(side.take(side.write(0, 64, data, 2000, 3000)), kTaken);
  EXPECT_TRUE(side.holds(64, data, 2000, 3000));
  EXPECT_EQ(side.take(side.write(0, 64, data, 3000, 3500)), kTaken);
  EXPECT_TRUE(side.zero(64 + 3000, 500));
  EXPECT_EQ(side.take(side.write(0, 64, data, 0, 1000)), kTaken);
  EXPECT_TRUE(side.holds(64, data, 0, 1000));
  EXPECT_TRUE(side.zero(64 + 3000, 500));
  EXPECT_EQ(side.far.executed(), 0u);
  EXPECT_EQ(side.take(side.write(0, 64, data, 1000, 2000)), kTaken);
  EXPECT_TRUE(side.holds(64, data, 0, 3500));
  EXPECT_EQ(side.far.executed(), 1u);
  EXPECT_TRUE(side.zero(64 + 3500, 100));
}

TEST(FarPlacing, InOrder) {
  FarSide side;
  const Bytes data = random_bytes(200'000, 2);
  for (size_t i = 0; i < data.size(); i += 1000) {
    EXPECT_EQ(side.far.executed(), 0u);
    EXPECT_EQ(side.take(side.write(0, 8, data, i, i + 1000)), kTaken);
    EXPECT_TRUE(side.holds(8, data, i, i + 1000));
  }
  EXPECT_EQ(side.far.executed(), 1u);
  EXPECT_EQ(side.a.counters().received_packets, 200u);
  EXPECT_EQ(side.a.counters().received_payload_bytes, 200'000u);
  EXPECT_EQ(side.a.counters().dropped_packets, 0u);
}

TEST(FarPlacing, AWriteOfOnePacketWaitsForEarlierMessages) {
  FarSide side;
  const Bytes first = random_bytes(100, 1);
  const Bytes flag = random_bytes(8, 2);
  EXPECT_EQ(side.take(side.write(1, 512, flag, 0, 8)), kTaken);
  EXPECT_TRUE(side.zero(512, 8));
  EXPECT_EQ(side.far.executed(), 0u);
  EXPECT_EQ(side.take(side.write(0, 0, first, 0, 100)), kTaken);
  EXPECT_TRUE(side.holds(0, first, 0, 100));
  EXPECT_TRUE(side.holds(512, flag, 0, 8));
  EXPECT_EQ(side.far.executed(), 2u);
}

TEST(FarPlacing, OnlyTheLastPacketOfALaterMessageWaits) {
  FarSide side;
  const Bytes later = random_bytes(250, 1);
  EXPECT_EQ(side.take(side.write(1, 512, later, 0, 200)), kTaken);
  EXPECT_EQ(side.take(side.write(1, 512, later, 200, 250)), kTaken);
  EXPECT_TRUE(side.holds(512, later, 0, 200));
  EXPECT_TRUE(side.zero(512 + 200, 50));
  EXPECT_EQ(side.take(side.write(0, 0, later, 0, 250)), kTaken);
  EXPECT_TRUE(side.holds(512, later, 200, 250));
  EXPECT_EQ(side.far.executed(), 2u);
}

TEST(FarPlacing, BytesOfALaterMessageStay) {
  FarSide side;
  const Bytes early = random_bytes(3000, 1);
  const Bytes later = random_bytes(700, 2);
  // Message 2 writes [1100, 1500) of it and [1600, 1700) already; its rest will.
  EXPECT_EQ(side.take(side.write(2, 1100, later, 0, 400)), kTaken);
  EXPECT_EQ(side.take(side.write(2, 1100, later, 500, 600)), kTaken);
  EXPECT_EQ(side.take(side.write(0, 0, early, 1000, 2000)), kTaken);
  EXPECT_TRUE(side.holds(0, early, 1000, 1100));
  EXPECT_TRUE(side.holds(1100, later, 0, 400));
  EXPECT_TRUE(side.holds(0, early, 1500, 1600));
  EXPECT_TRUE(side.holds(1100, later, 500, 600));
  EXPECT_TRUE(side.holds(0, early, 1700, 2000));
  EXPECT_EQ(side.take(side.write(2, 1100, later, 400, 500)), kTaken);
  EXPECT_EQ(side.take(side.write(2, 1100, later, 600, 700)), kTaken);
  EXPECT_TRUE(side.holds(1100, later, 0, 600));
  EXPECT_EQ(side.take(side.write(0, 0, early, 2000, 3000)), kTaken);
  EXPECT_EQ(side.take(side.write(0, 0, early, 0, 1000)), kTaken);
  EXPECT_EQ(side.far.executed(), 1u);
  EXPECT_TRUE(side.holds(0, early, 1700, 1800));
  EXPECT_EQ(side.take(side.write(1, 8000, early, 0, 3000)), kTaken);
  EXPECT_EQ(side.far.executed(), 3u);
  EXPECT_TRUE(side.holds(1100, later, 0, 700));
  EXPECT_TRUE(side.holds(0, early, 0, 1100));
  EXPECT_TRUE(side.holds(0, early, 1800, 3000));
}

// What was held is written late as well.
TEST(FarPlacing, AHeldPacketSparesBytesOfALaterMessage) {
  FarSide side;
  const Bytes early = random_bytes(500, 1);
  const Bytes later = random_bytes(900, 2);
  EXPECT_EQ(side.take(side.write(1, 0, early, 0, 500)), kTaken);
  EXPECT_EQ(side.take(side.write(2, 100, later, 0, 200)), kTaken);
  EXPECT_EQ(side.take(side.write(0, 8000, early, 0, 500)), kTaken);
  EXPECT_EQ(side.far.executed(), 2u);
  EXPECT_TRUE(side.holds(0, early, 0, 100));
  EXPECT_TRUE(side.holds(100, later, 0, 200));
  EXPECT_TRUE(side.holds(0, early, 300, 500));
}

// Receives may name one buffer again and again.
TEST(FarPlacing, LaterSendsWinInASharedReceiveBuffer) {
  FarSide side;
  const model::ScatterGatherElement pieces[] = {side.a.sge(0, 100), side.a.sge(1000, 400)};
  for (uint64_t id : {1, 2}) {
    model::ReceiveWorkRequest receive;
    receive.wr_id = id;
    receive.sges = pieces;
    ASSERT_TRUE(side.a.qp->post_receive(receive).ok());
  }
  const Bytes early = random_bytes(500, 1);
  const Bytes later = random_bytes(300, 2);
  EXPECT_EQ(side.take(side.send(1, 1, later, 50, 200)), kTaken);
  EXPECT_EQ(side.take(side.send(0, 0, early, 0, 500)), kTaken);
  EXPECT_TRUE(side.holds(0, early, 0, 50));
  EXPECT_TRUE(side.holds(0, later, 50, 100));
  EXPECT_TRUE(side.holds(1000 - 100, later, 100, 200));
  EXPECT_TRUE(side.holds(1000 - 100, early, 200, 500));
}

TEST(FarPlacing, ManyMessagesAheadFindTheirWritersAgain) {
  FarSide side;
  const Bytes data = random_bytes(300, 3);
  constexpr uint32_t kMessages = 1000;
  for (uint32_t m = kMessages; m-- > 1;) {
    EXPECT_EQ(side.take(side.write(m, m * 512, data, 0, 200)), kTaken);
  }
  // Message 0 covers them all; what each has written stays.
  const Bytes all = random_bytes(512 * 512, 4);
  for (size_t i = 0; i < all.size(); i += 1024) {
    EXPECT_EQ(side.take(side.write(0, 0, all, i, i + 1024)), kTaken);
  }
  EXPECT_EQ(side.far.executed(), 1u);
  EXPECT_TRUE(side.holds(0, all, 0, 512));
  for (uint32_t m = 1; m < 512; ++m) {
    ASSERT_TRUE(side.holds(m * 512, data, 0, 200)) << m;
    ASSERT_TRUE(side.holds(0, all, m * 512 + 200, m * 512 + 512)) << m;
  }
  for (uint32_t m = 1; m < kMessages; ++m) {
    // The message after it has not ended: the last packet of this one is written at once.
    EXPECT_EQ(side.take(side.write(m, m * 512, data, 200, 300)), kTaken);
  }
  EXPECT_EQ(side.far.executed(), kMessages);
  EXPECT_LT(side.far.memory_bytes(), 4096u);
}

// The ring of messages goes round while writers that are still ahead are in it.
TEST(FarPlacing, AWriterFarAheadIsFoundAfterManyMessages) {
  FarSide side;
  const Bytes data = random_bytes(300, 3);
  const Bytes late = random_bytes(300, 4);
  uint32_t m = 0;
  for (; m < 100; ++m) EXPECT_EQ(side.take(side.write(m, 8192, data, 0, 300)), kTaken);
  EXPECT_EQ(side.take(side.write(200, 100, data, 0, 200)), kTaken);
  for (; m < 130; ++m) EXPECT_EQ(side.take(side.write(m, 8192, data, 0, 300)), kTaken);
  EXPECT_EQ(side.take(side.write(m, 0, late, 0, 300)), kTaken);
  EXPECT_EQ(side.far.executed(), 131u);
  EXPECT_TRUE(side.holds(0, late, 0, 100));
  EXPECT_TRUE(side.holds(100, data, 0, 200));
}

TEST(FarPlacing, WhatHasComeIsNotWrittenAgain) {
  FarSide side;
  const Bytes data = random_bytes(3000, 1);
  const Bytes other = random_bytes(3000, 2);
  EXPECT_EQ(side.take(side.write(0, 0, data, 1000, 2000)), kTaken);
  EXPECT_EQ(side.take(side.write(0, 0, other, 1000, 2000)), kTaken);
  EXPECT_EQ(side.take(side.write(0, 0, other, 500, 2500)), kTaken);  // cut in another way
  EXPECT_TRUE(side.holds(0, other, 500, 1000));
  EXPECT_TRUE(side.holds(0, data, 1000, 2000));
  EXPECT_TRUE(side.holds(0, other, 2000, 2500));
  EXPECT_EQ(side.take(side.write(0, 0, data, 2500, 3000)), kTaken);
  EXPECT_EQ(side.take(side.write(0, 0, other, 2500, 3000)), kTaken);
  EXPECT_EQ(side.take(side.write(0, 0, data, 0, 500)), kTaken);
  EXPECT_EQ(side.far.executed(), 1u);
  EXPECT_TRUE(side.holds(0, data, 2500, 3000));
  EXPECT_EQ(side.take(side.write(0, 0, other, 0, 500)), kTaken);  // carried out
  EXPECT_TRUE(side.holds(0, data, 0, 500));
  EXPECT_EQ(side.far.executed(), 1u);
  EXPECT_EQ(side.a.counters().duplicates_received, 3u);
}

// Lost data is cut to the present path MTU: the end may come in larger and smaller packets.
TEST(FarPlacing, TheEndMayBeCutDifferently) {
  for (const bool larger_first : {false, true}) {
    FarSide side;
    const Bytes data = random_bytes(1000, 1);
    const size_t first = larger_first ? 200 : 600;
    EXPECT_EQ(side.take(side.write(0, 0, data, first, 1000)), kTaken);
    EXPECT_EQ(side.take(side.write(0, 0, data, 800 - first, 1000)), kTaken);
    EXPECT_TRUE(side.zero(600, 400));  // this much is held at least
    EXPECT_EQ(side.take(side.write(0, 0, data, 0, 200)), kTaken);
    EXPECT_EQ(side.far.executed(), 1u);
    EXPECT_TRUE(side.holds(0, data, 0, 1000));
  }
}

TEST(FarPlacing, DamagedPacketsChangeNothing) {
  FarSide side;
  side.a.receive(100'000, 4096);
  const Bytes data = random_bytes(2500, 1);
  const auto damaged = [&](Bytes packet, size_t from_end) {
    packet[packet.size() - from_end] ^= std::byte{1};
    return side.take(packet);
  };
  EXPECT_EQ(damaged(side.write(0, 0, data, 0, 1000), 300), kDamaged);
  EXPECT_TRUE(side.zero(0, 1000));
  EXPECT_EQ(side.take(side.write(0, 0, data, 0, 1000)), kTaken);
  // Its place is known: it may be written, but does not count.
  EXPECT_EQ(damaged(side.write(0, 0, data, 1000, 2000), 300), kDamaged);
  EXPECT_TRUE(side.zero(2000, 1000));
  EXPECT_EQ(side.take(side.write(0, 0, data, 1000, 2000)), kTaken);
  EXPECT_TRUE(side.holds(0, data, 0, 2000));
  // The last byte shows that the message is there.
  EXPECT_EQ(damaged(side.write(0, 0, data, 2000, 2500), 300), kDamaged);
  EXPECT_TRUE(side.zero(2000, 1000));
  EXPECT_EQ(side.take(side.write(0, 0, data, 2000, 2500)), kTaken);
  EXPECT_EQ(side.take(side.send(1, 0, data, 0, 1000)), kTaken);
  EXPECT_EQ(damaged(side.send(1, 0, data, 1000, 2500), 300), kDamaged);
  EXPECT_EQ(side.far.executed(), 1u);
  EXPECT_EQ(side.take(side.send(1, 0, data, 1000, 2500)), kTaken);
  EXPECT_TRUE(side.holds(100'000, data, 0, 2500));
  EXPECT_EQ(damaged(side.fetch_add(2, 512, 1), 8), kDamaged);
  EXPECT_EQ(side.far.executed(), 2u);
  EXPECT_EQ(side.a.counters().dropped_packets, 5u);
  EXPECT_FALSE(side.far.failed());
}

// Less padding is more payload.
TEST(FarPlacing, DamagedPaddingWritesNothing) {
  FarSide side;
  const Bytes data = random_bytes(3000, 1);
  EXPECT_EQ(side.take(side.write(0, 0, data, 0, 1000)), kTaken);
  Bytes packet = side.write(0, 0, data, 1000, 2001);
  packet[1] ^= std::byte{0x30};
  packet[packet.size() - 5] = std::byte{1};
  EXPECT_EQ(side.take(packet), kDamaged);
  EXPECT_TRUE(side.zero(2001, 10));
}

TEST(FarPlacing, ADamagedHeaderChoosesNoPlace) {
  FarSide side;
  const Bytes data = random_bytes(3000, 1);
  EXPECT_EQ(side.take(side.write(0, 0, data, 0, 1000)), kTaken);
  const Bytes good = side.write(0, 0, data, 1000, 2000);
  for (size_t byte = 0; byte < wire::opcode_info(Opcode::far_write).header_length; ++byte) {
    if (byte == 4) continue;  // not covered
    for (int bit = 0; bit < 8; ++bit) {
      Bytes bad = good;
      bad[byte] ^= static_cast<std::byte>(1 << bit);
      const wire::ParseResult parsed = wire::parse(bad);
      if (!parsed || !parsed->has(wire::Extension::far_base)) continue;
      ASSERT_EQ(side.take(bad), kDamaged) << byte << " " << bit;
    }
  }
  EXPECT_TRUE(side.zero(2000, 2000));
  EXPECT_TRUE(side.holds(0, data, 0, 1000));
}

TEST(FarPlacing, ZeroLengthMessages) {
  FarSide side;
  side.a.receive(0, 0);
  side.a.receive(0, 64);
  const Bytes none;
  EXPECT_EQ(side.take(far_packet(Opcode::far_write, 0, true, {},
                                 wire::FarPlace{0xDEAD, MemoryKey(1), 0})),
            kTaken);
  EXPECT_EQ(side.take(side.send(1, 0, none, 0, 0)), kTaken);
  EXPECT_EQ(side.take(far_packet(Opcode::far_write_imm, 2, true, {},
                                 wire::FarPlace{0xDEAD, MemoryKey(1), 0}, wire::FarSequence{1},
                                 wire::ImmDt{7})),
            kTaken);
  EXPECT_EQ(side.take(far_packet(Opcode::far_read_request, 3, true, {},
                                 wire::Reth{0xDEAD, MemoryKey(1), 0})),
            kTaken);
  EXPECT_EQ(side.far.executed(), 4u);
  const auto completions = side.a.receives();
  ASSERT_EQ(completions.size(), 2u);
  EXPECT_EQ(completions[0].byte_length, 0u);
  EXPECT_EQ(completions[1].byte_length, 0u);
  FarResponder::Response* const read = side.far.next_response();
  ASSERT_NE(read, nullptr);
  EXPECT_EQ(read->length, 0u);
  read->begun = true;
  EXPECT_EQ(side.far.next_response(), nullptr);
  side.far.acknowledged(3, 0);
  EXPECT_EQ(side.far.find_response(3), nullptr);
}

// --- What is kept has limits

TEST(FarLimits, AFullStoreDropsButNeverStops) {
  Options options;
  options.config.far_hold_bytes = 20'000;
  FarSide side(options);
  const Bytes data = random_bytes(1000, 1);
  uint32_t held = 0;
  for (uint32_t m = 1; m < 100; ++m) {
    if (side.take(side.write(m, m * 1024, data, 0, 1000)) == kTaken) ++held;
    EXPECT_LT(side.far.memory_bytes(), 30'000u);
  }
  EXPECT_GT(held, 10u);
  EXPECT_LT(held, 20u);
  EXPECT_EQ(side.take(side.write(60, 0, data, 0, 500)), kDropped);
  for (uint32_t m = 0; m < 100; ++m) {
    EXPECT_EQ(side.take(side.write(m, m * 1024, data, 0, 1000)), kTaken);
  }
  EXPECT_EQ(side.far.executed(), 100u);
  for (uint32_t m = 0; m < 100; ++m) EXPECT_TRUE(side.holds(m * 1024, data, 0, 1000));
  EXPECT_LT(side.far.memory_bytes(), 2000u);
}

// Not even while the first message itself comes in the worst order.
TEST(FarLimits, AFullStoreTakesTheNextMessagesNextBytes) {
  Options options;
  options.config.far_hold_bytes = 3000;
  FarSide side(options);
  const Bytes data = random_bytes(2000, 1);
  uint32_t later = 1;
  while (side.take(side.write(later, later * 4096, data, 0, 100)) == kTaken) ++later;
  EXPECT_EQ(side.take(side.write(0, 4096, data, 1000, 2000)), kDropped);
  for (size_t i = 0; i < 2000; i += 100) {
    EXPECT_EQ(side.take(side.write(0, 4096, data, i, i + 100)), kTaken);
  }
  EXPECT_GE(side.far.executed(), 1u);
  EXPECT_TRUE(side.holds(4096, data, 0, 2000));
}

// Every second byte of a later message: remembering them takes more than they do.
TEST(FarLimits, WhatIsRememberedOfGapsIsBounded) {
  Options options;
  options.config.far_hold_bytes = 4000;
  FarSide side(options);
  const Bytes data = random_bytes(20'000, 1);
  size_t taken = 0;
  for (size_t i = 1; i < 10'000; i += 2) {
    if (side.take(side.write(1, 0, data, i, i + 1)) == kTaken) ++taken;
  }
  EXPECT_GT(taken, 100u);
  EXPECT_LT(taken, 2000u);
  EXPECT_LT(side.far.memory_bytes(), 12'000u);
}

TEST(FarLimits, MessagesAhead) {
  Options options;
  options.config.far_messages_ahead = 8;
  FarSide side(options);
  const Bytes data = random_bytes(64, 1);
  EXPECT_EQ(side.take(side.write(8, 0, data, 0, 64)), kDropped);
  EXPECT_EQ(side.take(side.write(7, 0, data, 0, 64)), kTaken);
  EXPECT_EQ(side.take(side.write(0x8000'0000, 0, data, 0, 64)), kTaken);  // long carried out
  EXPECT_TRUE(side.zero(0, 64));
  EXPECT_EQ(side.take(side.write(0x7FFF'FFFF, 0, data, 0, 64)), kDropped);
}

TEST(FarLimits, AnIdleResponderIsSmall) {
  FarSide side;
  EXPECT_EQ(side.far.memory_bytes(), 0u);
  EXPECT_LE(sizeof(FarResponder), 640u);
  const Bytes data = random_bytes(3000, 1);
  for (uint32_t m = 0; m < 100; ++m) {
    EXPECT_EQ(side.take(side.write(m, 0, data, 0, 1500)), kTaken);
    EXPECT_EQ(side.take(side.write(m, 0, data, 1500, 3000)), kTaken);
  }
  EXPECT_LT(side.far.memory_bytes(), 1500u);
  side.far.reset();
  EXPECT_EQ(side.far.memory_bytes(), 0u);
  side.far.start();
  EXPECT_EQ(side.far.executed(), 0u);
  EXPECT_EQ(side.take(side.write(0, 5000, data, 0, 3000)), kTaken);
  EXPECT_EQ(side.far.executed(), 1u);
}

TEST(FarLimits, MessageNumbersWrapAround) {
  FarSide side;
  // 2^32 messages would take too long; what counts is the distance.
  const Bytes data = random_bytes(8, 1);
  for (uint32_t m = 0; m < 70'000; ++m) {
    ASSERT_EQ(side.take(side.write(m, (m % 100) * 8, data, 0, 8)), kTaken);
  }
  EXPECT_EQ(side.far.executed(), 70'000u);
  EXPECT_EQ(side.take(side.write(0, 4096, data, 0, 8)), kTaken);
  EXPECT_TRUE(side.zero(4096, 8));
}

}  // namespace
}  // namespace farverbs::proto
