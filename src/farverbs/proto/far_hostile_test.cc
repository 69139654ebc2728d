// A far QP whose peer lies, repeats itself, or falls silent: nothing changes that should not, what
// is refused is counted, and memory stays bounded. docs/far-transport.md sections 3 and 11.
#include "farverbs/proto/far_pair_testing.h"

namespace farverbs::proto {
namespace {

using namespace testing;

constexpr PacketNumber kFirst = FarScripted::kFirst;
constexpr size_t kTarget = 100'000;

class FarHostile : public ::testing::Test {
 protected:
  // `answer` must change nothing but the count of dropped packets.
  void expect_ignored(const FarAnswer& answer) {
    const uint64_t inflight = far.a.inflight;
    const uint64_t dropped = far.a.counters().dropped_packets;
    const size_t rtts = far.a.rtts.size();
    const Time timer = far.a.qp->next_timer();
    far.pass(Duration::milliseconds(1));
    far.answer(answer);
    EXPECT_EQ(far.a.counters().dropped_packets, dropped + 1);
    EXPECT_EQ(far.a.inflight, inflight);
    EXPECT_EQ(far.a.acked_bytes + far.a.lost_bytes + far.a.marks, 0u);
    EXPECT_EQ(far.a.rtts.size(), rtts);
    EXPECT_EQ(far.a.qp->next_timer(), timer);
    EXPECT_TRUE(far.a.sends().empty());
    EXPECT_FALSE(far.a.qp->wants_transmit());
    EXPECT_EQ(far.a.state(), QpState::kRts);
  }
  FarScripted far;
};

TEST_F(FarHostile, AcknowledgementsOfWhatWasNeverSent) {
  far.a.write(0, 10'000, far.ghost, kTarget);
  const size_t sent = far.poll().size();
  ASSERT_EQ(sent, 9u);
  FarAnswer answer;
  answer.executed = 1;
  answer.marks = 5;
  for (const PacketNumber greatest :
       {kFirst + 9, kFirst + 10, kFirst + 100'000, kFirst + (PacketNumber{1} << 38)}) {
    answer.greatest = greatest;
    answer.first = static_cast<uint32_t>(greatest - kFirst + 1);
    expect_ignored(answer);
  }
  // Below the first.
  answer.greatest = kFirst + 8;
  answer.first = 10;
  expect_ignored(answer);
  answer.first = ~0u;
  expect_ignored(answer);
  answer.first = 0;
  expect_ignored(answer);
  answer.first = 1;
  answer.ranges = {{4, 5}};  // ends below
  expect_ignored(answer);
  answer.ranges = {{0xFFFF, 0}, {0xFFFF, 0}, {1, 1}};
  expect_ignored(answer);
  answer.greatest = kFirst - 2;
  answer.first = 1;
  answer.ranges.clear();
  expect_ignored(answer);
}

TEST_F(FarHostile, AcknowledgementsThatAreCutShort) {
  far.a.write(0, 10'000, far.ghost, kTarget);
  far.poll();
  // More ranges announced than there are: those that are there count.
  FarAnswer answer{kFirst + 8, 1, 0};
  answer.ranges = {{1, 2}};
  answer.range_count = 255;
  far.answer(answer);
  EXPECT_EQ(far.a.acked_bytes, 2 * 1'252u + 344u);
  EXPECT_EQ(far.a.state(), QpState::kRts);
}

// A number in every few thousand is not used; who acknowledges it guesses.
TEST_F(FarHostile, OptimisticAcknowledgements) {
  far.a.options.depth = 512;
  PacketNumber skipped = 0;
  PacketNumber expected = kFirst;
  for (int i = 0; i < 60 && skipped == 0; ++i) {
    far.a.write(0, 200'000, far.ghost, kTarget);
    for (const FarSeen& s : far.poll()) {
      if (s.number != expected && skipped == 0) skipped = expected;
      expected = s.number + 1;
    }
  }
  ASSERT_NE(skipped, 0u);
  FarAnswer answer{skipped, static_cast<uint32_t>(skipped - kFirst + 1), 0};
  expect_ignored(answer);
  answer.greatest = expected - 1;
  answer.first = static_cast<uint32_t>(expected - kFirst);
  expect_ignored(answer);
  answer.first = static_cast<uint32_t>(expected - 1 - skipped);
  answer.ranges = {{0, 1}};  // the skipped one, in a range
  expect_ignored(answer);
  answer.ranges.clear();
  far.answer(answer);
  EXPECT_GT(far.a.acked_bytes, 0u);
}

TEST_F(FarHostile, ExecutedMayNeitherShrinkNorJump) {
  far.a.request_allowance = 3'000;  // the second is sent in part
  far.a.write(0, 1'000, far.ghost, kTarget);
  far.a.write(0, 10'000, far.ghost, kTarget);
  far.a.write(0, 1'000, far.ghost, kTarget);
  const size_t sent = far.poll().size();
  ASSERT_EQ(sent, 3u);
  // All packets arrived, and messages were carried out that were not sent in whole.
  for (const uint32_t executed : {2u, 3u, 4u, 0x7FFF'FFFFu}) {
    far.answer({kFirst + 2, 3, executed});
    EXPECT_TRUE(far.a.sends().empty()) << executed;
    EXPECT_EQ(far.a.state(), QpState::kRts);
  }
  EXPECT_GE(far.a.counters().dropped_packets, 4u);
  far.answer({kFirst + 2, 3, 1});
  EXPECT_EQ(Side::summary(far.a.sends()), "1 success");
  far.answer({kFirst + 2, 3, 0});
  far.answer({kFirst + 2, 3, 0x8000'0000});
  EXPECT_TRUE(far.a.sends().empty());
  far.a.request_allowance = 1 << 20;
  const size_t rest = far.poll().size();
  far.answer({kFirst + 2 + rest, static_cast<uint32_t>(3 + rest), 3});
  EXPECT_EQ(Side::summary(far.a.sends()), "2 success, 3 success");
  EXPECT_EQ(far.a.inflight, 0u);
  EXPECT_TRUE(far.a.idle());
}

// A message is not carried out that waits for a receive, whatever an acknowledgement claims.
TEST_F(FarHostile, ExecutedDuringANotReadyPause) {
  far.a.request_allowance = 3'000;
  far.a.send(0, 10'000);
  ASSERT_EQ(far.poll().size(), 3u);
  FarAnswer answer{kFirst - 1, 0, 0, wire::FarStatus::not_ready, 20};
  far.answer(answer);
  EXPECT_EQ(far.a.counters().rnr_naks_received, 1u);
  far.answer({kFirst + 2, 3, 1});
  EXPECT_TRUE(far.a.sends().empty());
  far.a.request_allowance = 1 << 20;
  far.a.fire_timer();
  EXPECT_EQ(far.poll().size(), 9u);
}

TEST_F(FarHostile, AbsurdDelaysTimestampsAndMarks) {
  for (uint64_t i = 0; i < 20; ++i) {
    far.a.write(0, 100, far.ghost, kTarget);
    ASSERT_EQ(far.poll().size(), 1u);
    far.pass(Duration::milliseconds(10));
    FarAnswer answer{kFirst + i, static_cast<uint32_t>(i + 1), static_cast<uint32_t>(i + 1)};
    answer.delay_us = i % 2 == 0 ? ~0u : 0u;
    answer.time_us = static_cast<uint32_t>(i * 0x7777'7777);
    answer.marks = i % 2 == 0 ? 0x7000'0000u : 0;
    far.answer(answer);
  }
  ASSERT_EQ(far.a.rtts.size(), 20u);
  for (const Duration rtt : far.a.rtts) EXPECT_EQ(rtt, Duration::milliseconds(10));
  EXPECT_EQ(far.a.state(), QpState::kRts);
  // There are never more marks than packets.
  EXPECT_LE(far.a.marks, 20u);
}

TEST_F(FarHostile, UnknownStatusAndUnknownRefusal) {
  far.a.write(0, 100, far.ghost, kTarget);
  far.poll();
  far.answer({kFirst, 1, 0, static_cast<wire::FarStatus>(77), 3});
  EXPECT_EQ(far.a.state(), QpState::kRts);
  // A refusal of what has not been sent.
  far.answer({kFirst, 1, 1, wire::FarStatus::refused, 2});
  EXPECT_EQ(Side::summary(far.a.sends()), "1 success");
  EXPECT_EQ(far.a.state(), QpState::kRts);
  far.a.write(0, 100, far.ghost, kTarget);
  far.poll();
  far.answer({kFirst + 1, 2, 1, wire::FarStatus::refused, 250});
  EXPECT_EQ(Side::summary(far.a.sends()), "2 remote invalid request");
}

TEST_F(FarHostile, DamagedPacketsChangeNothing) {
  far.a.write(0, 100, far.ghost, kTarget);
  far.poll();
  for (size_t at = 12; at < 44; ++at) {
    Bytes bytes = far_answer({kFirst, 1, 1});
    bytes[at] ^= std::byte{0x10};
    far.say(bytes);
  }
  EXPECT_TRUE(far.a.sends().empty());
  EXPECT_EQ(far.a.acked_bytes, 0u);
  far.answer({kFirst, 1, 1});
  EXPECT_EQ(Side::summary(far.a.sends()), "1 success");
}

TEST_F(FarHostile, OldAndRepeatedPackets) {
  const Bytes content(8, std::byte{7});
  const auto write = [&](PacketNumber number, uint32_t message, std::byte value) {
    return numbered(far_packet(Opcode::far_write, message, true, Bytes(8, value),
                               wire::FarPlace{far.a.address(kTarget), far.a.key(), 0}),
                    number);
  };
  for (uint32_t i = 0; i < 100; ++i) far.say(write(kFirst + i, i, static_cast<std::byte>(i)));
  const Bytes state(far.a.bytes(kTarget), far.a.bytes(kTarget) + 8);
  EXPECT_EQ(state[0], std::byte{99});
  far.poll();
  const uint64_t before = far.a.counters().duplicates_received;
  for (uint32_t i = 0; i < 100; ++i) far.say(write(kFirst + i, i, std::byte{1}));
  EXPECT_EQ(far.a.counters().duplicates_received, before + 100);
  EXPECT_FALSE(far.a.qp->ack_pending());
  // Years old: before the first number, or half the space away.
  const uint64_t dropped = far.a.counters().dropped_packets;
  far.say(write(kFirst - 1, 99, std::byte{2}));
  far.say(write(kFirst - 5'000, 100, std::byte{2}));
  far.say(write(kFirst + (PacketNumber{1} << 39) + 200, 100, std::byte{2}));
  EXPECT_EQ(far.a.counters().dropped_packets, dropped + 3);
  // An old message in a new packet.
  far.say(write(kFirst + 100, 5, std::byte{3}));
  EXPECT_EQ(std::memcmp(far.a.bytes(kTarget), state.data(), 8), 0);
  EXPECT_EQ(far.a.state(), QpState::kRts);
}

TEST_F(FarHostile, ResponsesNobodyAskedFor) {
  far.say(numbered(
      far_packet(Opcode::far_read_response, 0, true, Bytes(100, std::byte{1}), wire::FarOffset{0}),
      kFirst));
  far.say(numbered(far_packet(Opcode::far_atomic_response, 0, true, {}, wire::AtomicAckEth{3}),
                   kFirst + 1));
  far.a.read(0, 1'000, far.ghost, kTarget);
  far.poll();
  // Beyond the end, and of the wrong kind.
  far.say(numbered(far_packet(Opcode::far_read_response, 0, true, Bytes(100, std::byte{1}),
                              wire::FarOffset{950}),
                   kFirst + 2));
  far.say(numbered(far_packet(Opcode::far_read_response, 0, true, Bytes(100, std::byte{1}),
                              wire::FarOffset{~0u}),
                   kFirst + 3));
  far.say(numbered(far_packet(Opcode::far_atomic_response, 0, true, {}, wire::AtomicAckEth{3}),
                   kFirst + 4));
  EXPECT_TRUE(far.a.sends().empty());
  for (size_t i = 0; i < 1'000; ++i) ASSERT_EQ(far.a.bytes()[i], std::byte{0});
  EXPECT_EQ(far.a.state(), QpState::kRts);
}

// A peer that takes packets and never says so: what is kept for it has an end.
TEST_F(FarHostile, ASilentPeerCostsBoundedMemory) {
  const size_t before = far.a.qp->footprint().total_bytes;
  for (int i = 0; i < 400; ++i) far.a.write(0, 1'000'000, far.ghost, 0);
  far.a.request_allowance = 10'000'000;
  const size_t sent = far.poll().size();
  EXPECT_LE(sent, 8'000u);  // the allowance
  EXPECT_FALSE(far.poll().empty());
  far.a.request_allowance = 0;
  size_t more = 0;
  for (int i = 0; i < 400 && far.a.fire_timer(); ++i) more += far.poll().size();
  EXPECT_LE(more, 200u);  // two at each probe timeout
  EXPECT_EQ(far.a.state(), QpState::kErr);
  EXPECT_EQ(far.a.inflight, 0u);
  EXPECT_LT(far.a.qp->footprint().total_bytes, before + (size_t{2} << 20));
}

// The same with an allowance without end.
TEST_F(FarHostile, NoMorePacketsAreKeptThanTheMost) {
  far.a.storage_bytes = 2'000;
  far.a.datagram_bytes = 60;
  for (int i = 0; i < 40; ++i) far.a.write(0, 1'000'000, far.ghost, 0);
  size_t sent = 0;
  std::vector<std::byte> storage(60'000);
  wire::TxBurst burst;
  for (;;) {
    burst.reset(storage, 1'000);
    TransmitContext context;
    context.now = far.a.now;
    context.burst = &burst;
    context.icrc = &far.a.flow;
    context.request_allowance = context.read_allowance = uint64_t{1} << 40;
    context.max_packets = 1u << 20;
    context.datagram_bytes = 60;
    const TransmitResult result = far.a.qp->poll_transmit(context);
    sent += result.packets;
    far.a.inflight += result.request_bytes;
    if (result.status != TransmitStatus::kBurstFull) {
      EXPECT_EQ(result.status, TransmitStatus::kWindow);
      break;
    }
    ASSERT_LE(sent, FarSent::kMostPackets + 1);
  }
  EXPECT_LE(sent, FarSent::kMostPackets);
  EXPECT_LT(far.a.qp->footprint().total_bytes, size_t{40} << 20);
  // Its probes still leave, and nobody is kept busy.
  far.a.datagram_bytes = 60;
  far.a.request_allowance = 0;
  far.a.fire_timer();
  EXPECT_EQ(far.poll().size(), 2u);
  EXPECT_FALSE(far.a.qp->wants_respond());
  far.a.to_state(QpState::kErr);
  far.a.collect();
  EXPECT_EQ(far.a.inflight, 0u);
}

// A peer that answers every packet with a hole: every packet is sent again at most as often as
// numbers are told lost, and records do not pile up.
TEST_F(FarHostile, APeerThatAcknowledgesOnlyTheNewest) {
  far.a.write(0, 100'000, far.ghost, kTarget);
  uint64_t newest = 0;
  size_t sent = 0;
  for (int i = 0; i < 300; ++i) {
    for (const FarSeen& s : far.poll()) {
      newest = s.number;
      ++sent;
    }
    far.pass(Duration::milliseconds(20));
    far.answer({newest, 1, 0});
    if (far.a.qp->next_timer() <= far.a.now) far.a.fire_timer();
  }
  EXPECT_EQ(far.a.state(), QpState::kRts);
  EXPECT_LT(far.a.qp->footprint().total_bytes, size_t{4} << 20);
}

TEST_F(FarHostile, APeerThatTalksStandardRc) {
  far.a.write(0, 100, far.ghost, kTarget);
  far.poll();
  for (uint32_t psn = 99; psn < 102; ++psn) {
    far.say(answer(far.a, wire::Syndrome::ack(), psn, 1));
    far.say(answer(far.a, wire::Syndrome::nak(wire::NakCode::remote_access_error), psn, 1));
  }
  EXPECT_TRUE(far.a.sends().empty());
  EXPECT_EQ(far.a.state(), QpState::kRts);
  far.answer({kFirst, 1, 1});
  EXPECT_EQ(Side::summary(far.a.sends()), "1 success");
}

}  // namespace
}  // namespace farverbs::proto
