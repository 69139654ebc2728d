// The responder's rules, one by one, against a peer whose packets the test writes.
#include "farverbs/proto/proto_testing.h"

namespace farverbs::proto {
namespace {

using namespace testing;
using model::AsyncEventType;

class RcResponderTest : public ::testing::Test {
 protected:
  explicit RcResponderTest(const Options& options = {}) : s(options) {}
  Side& a() { return s.a; }
  std::span<const std::byte> data(size_t length) { return {payload.data(), length}; }
  void send(uint32_t psn, size_t length, Opcode opcode = Opcode::rc_send_only) {
    s.say(packet(a(), opcode, psn, data(length)));
  }
  void write(uint32_t psn, size_t offset, size_t length) {
    s.say(packet(a(), Opcode::rc_write_only, psn, data(length), reth(offset, length)));
  }
  wire::Reth reth(size_t offset, size_t length) {
    return {a().address(offset), a().key(), static_cast<uint32_t>(length)};
  }
  void read(uint32_t psn, size_t offset, size_t length) {
    s.say(packet(a(), Opcode::rc_read_request, psn, {}, reth(offset, length)));
  }
  void fetch_add(uint32_t psn, size_t offset, uint64_t add) {
    s.say(packet(a(), Opcode::rc_fetch_add, psn, {},
                 wire::AtomicEth{a().address(offset), a().key(), add, 0}));
  }
  // The payload of the newest response as polled.
  Bytes payload_of(const Bytes& bytes) {
    const auto view = *wire::parse(bytes);
    return {view.payload().begin(), view.payload().end()};
  }

  Scripted s;
  Bytes payload = Bytes(5000, std::byte{0x5A});
};

TEST_F(RcResponderTest, DuplicateWriteIsNotPlacedAndIsAckedWithTheNewestPsn) {
  write(100, 0, 64);
  write(101, 64, 64);
  EXPECT_EQ(a().trace(), Lines{"ACK 101 msn 2"});
  std::memset(a().bytes(0), 0, 64);
  write(100, 0, 64);
  EXPECT_EQ(a().trace(), Lines{"ACK 101 msn 2"});
  EXPECT_EQ(a().bytes(0)[0], std::byte{0});
  EXPECT_EQ(a().counters().duplicates_received, 1u);
}

TEST_F(RcResponderTest, DuplicateSendTakesNoReceive) {
  a().receive(0, 256);
  a().receive(256, 256);
  send(100, 10);
  send(100, 10);
  EXPECT_EQ(a().receives().size(), 1u);
  EXPECT_EQ(a().trace(), Lines{"ACK 100 msn 1"});
}

TEST_F(RcResponderTest, DuplicateReadReplaysASubsetAndReadsMemoryAgain) {
  a().fill(0, 700, 1);
  read(100, 0, 700);
  EXPECT_EQ(a().trace(), (Lines{"READ_RESPONSE_FIRST 100 msn 1", "READ_RESPONSE_MIDDLE 101",
                                "READ_RESPONSE_LAST 102 msn 1"}));
  a().fill(256, 444, 2);
  read(101, 256, 444);
  const auto packets = a().poll();
  EXPECT_EQ(describe(packets),
            (Lines{"READ_RESPONSE_FIRST 101 msn 1", "READ_RESPONSE_LAST 102 msn 1"}));
  const Bytes first = payload_of(packets[0]);
  EXPECT_EQ(std::memcmp(first.data(), a().bytes(256), 256), 0);
  read(101, 256, 100);
  EXPECT_EQ(a().trace(), Lines{"READ_RESPONSE_ONLY 101 msn 1"});
}

TEST_F(RcResponderTest, DuplicateReadOfOtherMemoryIsNotAnswered) {
  read(100, 0, 700);
  a().poll();
  read(101, 260, 444);  // another address
  read(101, 256, 445);  // longer than what is left
  read(99, 0, 10);      // none that is known
  s.say(packet(a(), Opcode::rc_read_request, 100, {},
               wire::Reth{a().address(0), MemoryKey(77), 700}));  // another key
  EXPECT_EQ(a().trace(), Lines{});
  EXPECT_EQ(a().state(), QpState::kRts);
}

TEST_F(RcResponderTest, DuplicateAtomicTellsTheStoredResultAndDoesNothing) {
  a().word(0) = 5;
  fetch_add(100, 0, 3);
  auto packets = a().poll();
  fetch_add(100, 0, 3);
  const auto again = a().poll();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(describe(again), Lines{"ATOMIC_ACK 100 msn 1"});
  EXPECT_EQ((*wire::parse(again[0])).atomic_ack_eth().original, 5u);
  EXPECT_EQ(a().word(0), 8u);
}

TEST_F(RcResponderTest, AGapIsNakedOnceUntilTheExpectedPacketComes) {
  write(102, 0, 8);
  EXPECT_EQ(a().trace(), Lines{"NAK0 100 msn 0"});
  write(103, 0, 8);
  write(101, 0, 8);
  EXPECT_EQ(a().trace(), Lines{});
  write(100, 0, 8);
  EXPECT_EQ(a().trace(), Lines{"ACK 100 msn 1"});
  write(103, 0, 8);
  EXPECT_EQ(a().trace(), Lines{"NAK0 101 msn 1"});
  EXPECT_EQ(a().counters().sequence_naks_sent, 2u);
}

TEST_F(RcResponderTest, ANakIsNotSentIfWhatWasMissingComesFirst) {
  write(101, 0, 8);
  write(100, 0, 8);
  EXPECT_EQ(a().trace(), Lines{"ACK 100 msn 1"});
}

TEST_F(RcResponderTest, RnrNakCarriesThePsnAndThenThereIsSilence) {
  send(100, 8);
  EXPECT_EQ(a().trace(), Lines{"RNR1 100 msn 0"});
  send(101, 8);
  send(102, 8);
  EXPECT_EQ(a().trace(), Lines{});
  send(100, 8);
  EXPECT_EQ(a().trace(), Lines{"RNR1 100 msn 0"});
  a().receive(0, 256);
  send(100, 8);
  EXPECT_EQ(a().trace(), Lines{"ACK 100 msn 1"});
  EXPECT_EQ(a().counters().rnr_naks_sent, 2u);
}

TEST_F(RcResponderTest, WriteWithImmediateWithoutReceiveIsRefusedAtItsLastPacket) {
  s.say(packet(a(), Opcode::rc_write_first, 100, data(256), reth(0, 300)));
  s.say(packet(a(), Opcode::rc_write_last_imm, 101, data(44), wire::ImmDt{9}));
  EXPECT_EQ(a().trace(), Lines{"RNR1 101 msn 0"});
  a().receive(0, 0);
  s.say(packet(a(), Opcode::rc_write_last_imm, 101, data(44), wire::ImmDt{9}));
  EXPECT_EQ(a().trace(), Lines{"ACK 101 msn 1"});
  const auto got = a().receives();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].byte_length, 300u);
}

TEST_F(RcResponderTest, MsnRisesAtMessageEndAndForReadsAtOnce) {
  s.say(packet(a(), Opcode::rc_write_first, 100, data(256), reth(0, 300)));
  EXPECT_EQ(a().trace(), Lines{"ACK 100 msn 0"});
  s.say(packet(a(), Opcode::rc_write_last, 101, data(44)));
  EXPECT_EQ(a().trace(), Lines{"ACK 101 msn 1"});
  read(102, 0, 600);
  read(105, 0, 8);
  EXPECT_EQ(a().trace(), (Lines{"READ_RESPONSE_FIRST 102 msn 3", "READ_RESPONSE_MIDDLE 103",
                                "READ_RESPONSE_LAST 104 msn 3", "READ_RESPONSE_ONLY 105 msn 3"}));
}

TEST_F(RcResponderTest, AnswersLeaveInTheOrderOfPackets) {
  read(100, 0, 300);
  write(102, 0, 8);
  write(105, 0, 8);  // a gap
  EXPECT_EQ(a().trace(), (Lines{"READ_RESPONSE_FIRST 100 msn 2", "READ_RESPONSE_LAST 101 msn 2",
                                "NAK0 103 msn 2"}));
}

TEST_F(RcResponderTest, NoAckOvertakesAReadResponse) {
  read(100, 0, 3000);
  write(112, 0, 8);
  EXPECT_EQ(describe(a().poll(2)),
            (Lines{"READ_RESPONSE_FIRST 100 msn 2", "READ_RESPONSE_MIDDLE 101"}));
  const auto rest = a().trace();
  EXPECT_EQ(rest.back(), "ACK 112 msn 2");
  EXPECT_EQ(rest[rest.size() - 2], "READ_RESPONSE_LAST 111 msn 2");
}

TEST_F(RcResponderTest, ReadBeyondTheLimitIsInvalid) {
  for (uint32_t i = 0; i < 4; ++i) read(100 + i, 0, 8);
  read(104, 0, 8);
  EXPECT_EQ(a().trace().back(), "NAK1 104 msn 4");
  EXPECT_EQ(a().state(), QpState::kErr);
}

TEST_F(RcResponderTest, AnsweredReadsDoNotCountAgainstTheLimit) {
  for (uint32_t i = 0; i < 20; ++i) {
    read(100 + i, 0, 8);
    EXPECT_EQ(a().poll().size(), 1u);
  }
  EXPECT_EQ(a().state(), QpState::kRts);
}

TEST_F(RcResponderTest, AReplayUnderWayMakesRoomForANewRequest) {
  for (uint32_t i = 0; i < 4; ++i) read(100 + i, 0, 8);
  a().poll();
  read(100, 0, 8);  // a ghost from the network
  read(104, 0, 8);
  EXPECT_EQ(a().trace(), Lines{"READ_RESPONSE_ONLY 104 msn 5"});
  EXPECT_EQ(a().state(), QpState::kRts);
}

TEST_F(RcResponderTest, ZeroLengthWriteAndReadLookAtNoKey) {
  const wire::Reth nowhere{0xDEAD0000, MemoryKey(0xBAD), 0};
  s.say(packet(a(), Opcode::rc_write_only, 100, {}, nowhere));
  s.say(packet(a(), Opcode::rc_read_request, 101, {}, nowhere));
  EXPECT_EQ(a().trace(), Lines{"READ_RESPONSE_ONLY 101 msn 2"});
  a().receive(0, 0);
  s.say(packet(a(), Opcode::rc_write_only_imm, 102, {}, nowhere, wire::ImmDt{1}));
  EXPECT_EQ(a().receives().size(), 1u);
}

TEST_F(RcResponderTest, ImmediateReceiveTellsTheWrittenLength) {
  a().receive(4096, 8);
  s.say(packet(a(), Opcode::rc_write_only_imm, 100, data(200), reth(0, 200), wire::ImmDt{7}));
  const auto got = a().receives();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].byte_length, 200u);
  EXPECT_EQ(a().bytes(4096)[0], std::byte{0});
}

struct BadLength {
  const char* name;
  Opcode first, second;
  size_t first_bytes, second_bytes, announced;
};
void PrintTo(const BadLength& b, std::ostream* out) { *out << b.name; }

class RcBadLength : public RcResponderTest, public ::testing::WithParamInterface<BadLength> {};
TEST_P(RcBadLength, IsAnInvalidRequest) {
  const BadLength& p = GetParam();
  a().receive(8192, 4096);
  const auto say = [&](Opcode opcode, uint32_t psn, size_t bytes) {
    if (wire::opcode_info(opcode).has(wire::Extension::reth)) {
      s.say(packet(a(), opcode, psn, data(bytes), reth(0, p.announced)));
    } else {
      s.say(packet(a(), opcode, psn, data(bytes)));
    }
  };
  say(p.first, 100, p.first_bytes);
  if (a().state() != QpState::kErr) say(p.second, 101, p.second_bytes);
  EXPECT_EQ(a().trace().back().substr(0, 5), "NAK1 ");
  EXPECT_EQ(a().state(), QpState::kErr);
}
INSTANTIATE_TEST_SUITE_P(
    Lengths, RcBadLength,
    ::testing::Values(
        BadLength{"first short", Opcode::rc_send_first, Opcode::rc_send_last, 255, 1, 0},
        BadLength{"first long", Opcode::rc_send_first, Opcode::rc_send_last, 260, 1, 0},
        BadLength{"middle short", Opcode::rc_send_first, Opcode::rc_send_middle, 256, 100, 0},
        BadLength{"last empty", Opcode::rc_send_first, Opcode::rc_send_last, 256, 0, 0},
        BadLength{"last long", Opcode::rc_send_first, Opcode::rc_send_last, 256, 257, 0},
        BadLength{"only long", Opcode::rc_send_only, Opcode::rc_send_only, 257, 0, 0},
        BadLength{"write only differs", Opcode::rc_write_only, Opcode::rc_write_only, 8, 8, 9},
        BadLength{"write first alone", Opcode::rc_write_first, Opcode::rc_write_last, 256, 1, 256},
        BadLength{"write last short", Opcode::rc_write_first, Opcode::rc_write_last, 256, 1, 300},
        BadLength{"write last long", Opcode::rc_write_first, Opcode::rc_write_last, 256, 100, 300},
        BadLength{"write middle at end", Opcode::rc_write_first, Opcode::rc_write_middle, 256, 256,
                  512},
        BadLength{"write too long", Opcode::rc_write_first, Opcode::rc_write_last, 256, 1,
                  0x80000001},
        BadLength{"middle of nothing", Opcode::rc_send_middle, Opcode::rc_send_last, 256, 1, 0},
        BadLength{"last of nothing", Opcode::rc_write_last, Opcode::rc_send_last, 8, 1, 0},
        BadLength{"first in message", Opcode::rc_send_first, Opcode::rc_send_first, 256, 256, 0},
        BadLength{"write in send", Opcode::rc_send_first, Opcode::rc_write_last, 256, 8, 0},
        BadLength{"send in write", Opcode::rc_write_first, Opcode::rc_send_last, 256, 8, 300}));

TEST_F(RcResponderTest, ReadInsideAMessageIsInvalid) {
  s.say(packet(a(), Opcode::rc_write_first, 100, data(256), reth(0, 300)));
  read(101, 0, 8);
  EXPECT_EQ(a().trace(), Lines{"NAK1 101 msn 0"});
}

TEST_F(RcResponderTest, SendLongerThanTheReceiveFailsBothSides) {
  a().receive(0, 300);
  a().receive(300, 300);
  send(100, 256, Opcode::rc_send_first);
  send(101, 100, Opcode::rc_send_last);
  EXPECT_EQ(a().trace(), Lines{"NAK1 101 msn 0"});
  EXPECT_EQ(Side::summary(a().receives()), "1 local length error, 2 work request flushed");
  EXPECT_EQ(a().state(), QpState::kErr);
}

TEST_F(RcResponderTest, BadKeyRangeAndRightAreAccessErrors) {
  const auto fails = [&](const wire::Reth& r, uint32_t access, const char* expected) {
    Options options;
    options.access = access;
    Scripted t(options);
    wire::Reth mine = r;
    if (mine.rkey == MemoryKey(1)) mine.rkey = t.a.key();
    if (mine.address < 1 << 20) mine.address += t.a.address(0);
    t.say(packet(t.a, Opcode::rc_write_only, 100, data(r.length), mine));
    EXPECT_EQ(t.a.trace(), Lines{expected});
    EXPECT_EQ(t.a.state(), QpState::kErr);
    EXPECT_EQ(t.a.bytes(0)[0], std::byte{0});
  };
  fails({0, MemoryKey(0xBADBAD), 8}, kAllAccess, "NAK2 100 msn 0");
  fails({(1 << 20) - 4, MemoryKey(1), 8}, kAllAccess, "NAK2 100 msn 0");
  fails({0, MemoryKey(1), 8}, model::kLocalWrite, "NAK1 100 msn 0");  // the QP does not allow it
}

TEST_F(RcResponderTest, ABadKeyOfALongWriteIsToldAtItsFirstPacketAndOnlyThere) {
  s.say(packet(a(), Opcode::rc_write_first, 100, data(256), wire::Reth{1, MemoryKey(3), 600}));
  s.say(packet(a(), Opcode::rc_write_middle, 101, data(256)));
  EXPECT_EQ(a().trace(), Lines{"NAK2 100 msn 0"});
  EXPECT_EQ(a().trace(), Lines{});
  EXPECT_EQ(a().events.count(AsyncEventType::kQpAccessError), 1u);
}

TEST_F(RcResponderTest, MisalignedAtomicIsInvalid) {
  s.say(
      packet(a(), Opcode::rc_fetch_add, 100, {}, wire::AtomicEth{a().address(4), a().key(), 1, 0}));
  EXPECT_EQ(a().trace(), Lines{"NAK1 100 msn 0"});
}

TEST_F(RcResponderTest, AtomicsAreBigEndianOnTheWireAndHostOrderInMemory) {
  a().word(8) = 0x0102030405060708;
  fetch_add(100, 8, 1);
  const auto packets = a().poll();
  const auto bytes = std::span(packets[0]).subspan(16, 8);
  EXPECT_EQ(bytes[0], std::byte{1});
  EXPECT_EQ(bytes[7], std::byte{8});
  EXPECT_EQ(a().word(8), 0x0102030405060709u);
}

TEST_F(RcResponderTest, RegionGoneBeforeTheResponseIsAnAccessError) {
  read(100, 0, 3000);
  EXPECT_EQ(a().poll(3).size(), 3u);
  ASSERT_TRUE(a().table.deregister(a().region).ok());
  EXPECT_EQ(a().trace(), Lines{"NAK2 103 msn 1"});
  EXPECT_EQ(a().state(), QpState::kErr);
}

TEST_F(RcResponderTest, RegionGoneInsideAWriteIsAnAccessError) {
  s.say(packet(a(), Opcode::rc_write_first, 100, data(256), reth(0, 600)));
  ASSERT_TRUE(a().table.deregister(a().region).ok());
  std::memset(a().bytes(256), 0, 256);
  s.say(packet(a(), Opcode::rc_write_middle, 101, data(256)));
  EXPECT_EQ(a().trace(), Lines{"NAK2 101 msn 0"});
  EXPECT_EQ(a().bytes(256)[0], std::byte{0});
}

TEST_F(RcResponderTest, SolicitedEventsOfTheLastPacketAndOfErrors) {
  const auto notified_by = [&](const Bytes& bytes) {
    const int before = a().notifications.count;
    a().receive_cq.request_notification(true);
    s.say(bytes);
    return a().notifications.count > before;
  };
  const auto solicited = [&](Opcode opcode, uint32_t psn, size_t length) {
    Bytes bytes = packet(a(), opcode, psn, data(length));
    bytes[1] |= std::byte{0x80};
    const size_t end = bytes.size() - wire::kIcrcSize;
    const uint32_t icrc = byte_swap(wire::compute_icrc(s.ghost.flow, bytes, 0));
    store_be(bytes.data() + end, icrc);
    return bytes;
  };
  for (int i = 0; i < 3; ++i) a().receive(0, 300);
  EXPECT_FALSE(notified_by(packet(a(), Opcode::rc_send_only, 100, data(8))));
  EXPECT_FALSE(notified_by(solicited(Opcode::rc_send_first, 101, 256)));
  EXPECT_TRUE(notified_by(solicited(Opcode::rc_send_last, 102, 8)));
  EXPECT_TRUE(notified_by(packet(a(), Opcode::rc_send_last, 103, data(8))));  // an error: flushed
}

TEST_F(RcResponderTest, OneAckSaysAllAndAtTheLatestAfterTheConfiguredCount) {
  for (uint32_t i = 0; i < 127; ++i) write(100 + i, 0, 8);
  EXPECT_TRUE(a().qp->ack_pending());
  EXPECT_FALSE(a().qp->wants_transmit());
  a().defer_acks = true;
  EXPECT_EQ(a().trace(), Lines{});
  write(227, 0, 8);  // the 128th
  EXPECT_FALSE(a().qp->ack_pending());
  EXPECT_TRUE(a().qp->wants_transmit());
  EXPECT_EQ(a().trace(), Lines{"ACK 227 msn 128"});
}

TEST_F(RcResponderTest, ADeferredAckRidesBehindARequest) {
  write(100, 0, 8);
  a().defer_acks = true;
  EXPECT_EQ(a().trace(), Lines{});
  a().write(0, 8, s.ghost, 0);
  EXPECT_EQ(a().trace(), (Lines{"WRITE_ONLY 100 len 8 A", "ACK 100 msn 1"}));
}

TEST_F(RcResponderTest, AnAckEndsABurstOfLongerPackets) {
  write(100, 0, 8);
  a().write(0, 256, s.ghost, 0);
  a().bursts = 0;
  EXPECT_EQ(a().poll().size(), 2u);
  EXPECT_EQ(a().bursts, 1u);
}

TEST_F(RcResponderTest, CreditsCountTheReceivesThatArePosted) {
  for (int i = 0; i < 5; ++i) a().receive(0, 16);
  send(100, 8);
  const auto packets = a().poll();
  const wire::Syndrome syndrome((*wire::parse(packets[0])).aeth().syndrome);
  EXPECT_EQ(wire::credits_of(syndrome.value()), 4u);
}

TEST_F(RcResponderTest, DamagedPacketsChangeNothing) {
  a().receive(0, 1024);
  send(100, 256, Opcode::rc_send_first);
  Bytes damaged = packet(a(), Opcode::rc_send_last, 101, data(100));
  damaged[damaged.size() - 1] ^= std::byte{1};  // ICRC; IPv4's identification can't explain this
  damaged[damaged.size() - 4] ^= std::byte{0x10};
  s.say(damaged);
  EXPECT_EQ(a().receives().size(), 0u);
  send(101, 100, Opcode::rc_send_last);
  EXPECT_EQ(a().receives().size(), 1u);
  EXPECT_EQ(a().trace(), Lines{"ACK 101 msn 1"});
}

TEST_F(RcResponderTest, SendWithInvalidateTakesTheKeyAway) {
  auto second = a().table.register_region(1, a().bytes(4096), 4096, a().address(4096), kAllAccess);
  const MemoryKey key(second.value()->key.load());
  a().receive(0, 64);
  s.say(packet(a(), Opcode::rc_send_only_invalidate, 100, data(8), wire::Ieth{key}));
  const auto got = a().receives();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].invalidated_key, key);
  EXPECT_EQ(got[0].flags & model::kWithInvalidate, model::kWithInvalidate);
  EXPECT_EQ(a().table.find(key), nullptr);
  a().receive(0, 64);
  s.say(packet(a(), Opcode::rc_send_only_invalidate, 101, data(8), wire::Ieth{key}));
  EXPECT_EQ(a().trace().back(), "NAK2 101 msn 1");
  EXPECT_EQ(Side::summary(a().receives()), "2 work request flushed");
}

TEST_F(RcResponderTest, ReceivesIntoSeveralElements) {
  const model::ScatterGatherElement pieces[] = {a().sge(0, 3), a().sge(1000, 0), a().sge(512, 300)};
  model::ReceiveWorkRequest r;
  r.wr_id = 9;
  r.sges = pieces;
  ASSERT_TRUE(a().qp->post_receive(r).ok());
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i);
  s.say(packet(a(), Opcode::rc_send_first, 100, data(256)));
  s.say(packet(a(), Opcode::rc_send_last, 101, data(40)));
  ASSERT_EQ(a().receives().size(), 1u);
  EXPECT_EQ(a().bytes(2)[0], std::byte{2});
  EXPECT_EQ(a().bytes(512)[0], std::byte{3});
  EXPECT_EQ(a().bytes(512 + 252)[0], std::byte{255});
  EXPECT_EQ(a().bytes(512 + 253)[0], std::byte{0});
}

TEST_F(RcResponderTest, AReceiveWithABadKeyFailsBothSides) {
  model::ScatterGatherElement e = a().sge(0, 64);
  e.lkey = MemoryKey(5);
  model::ReceiveWorkRequest r;
  r.wr_id = 4;
  r.sges = {&e, 1};
  ASSERT_TRUE(a().qp->post_receive(r).ok());
  send(100, 8);
  EXPECT_EQ(a().trace(), Lines{"NAK3 100 msn 0"});
  EXPECT_EQ(Side::summary(a().receives()), "4 local protection error");
}

TEST_F(RcResponderTest, FarOpcodesAndOtherServicesAreDropped) {
  for (const uint8_t opcode : {0xC0, 0xFF, 0x24, 0x64, 0xA4}) {
    Bytes bytes = packet(a(), Opcode::rc_send_only, 100, data(64));
    bytes[0] = static_cast<std::byte>(opcode);
    s.say(bytes);
  }
  EXPECT_EQ(a().trace(), Lines{});
  EXPECT_EQ(a().counters().dropped_packets, 5u);
}

TEST_F(RcResponderTest, PkeyMustMatchInItsLow15Bits) {
  Bytes bytes = packet(a(), Opcode::rc_write_only, 100, data(8), reth(0, 8));
  bytes[3] = std::byte{0xFE};
  s.say(bytes);
  EXPECT_EQ(a().counters().dropped_packets, 1u);
}

TEST_F(RcResponderTest, CongestionNotificationsAreCounted) {
  s.say(packet(a(), Opcode::cnp, 0, {}, wire::CnpPayload{}));
  EXPECT_EQ(a().counters().congestion_notifications, 1u);
}

TEST(RcResponder, CommunicationEstablishedInRtr) {
  Side a(1, {});
  Side b(2, {});
  a.to_rtr(b);
  const Bytes payload(8);
  const wire::Reth reth{a.address(0), a.key(), 8};
  a.arrive(packet(a, Opcode::rc_write_only, 100, payload, reth), b.flow, 2);
  a.arrive(packet(a, Opcode::rc_write_only, 101, payload, reth), b.flow, 2);
  EXPECT_EQ(a.events.count(AsyncEventType::kCommunicationEstablished), 1u);
  EXPECT_EQ(a.trace(), Lines{"ACK 101 msn 2"});
}

TEST(RcResponder, PsnWrapsAround) {
  Options options;
  options.receive_psn = 0xFFFFFE;
  Scripted s(options);
  const Bytes payload(8);
  const wire::Reth reth{s.a.address(0), s.a.key(), 8};
  for (const uint32_t psn : {0xFFFFFEu, 0xFFFFFFu, 0u, 1u}) {
    s.say(packet(s.a, Opcode::rc_write_only, psn, payload, reth));
  }
  EXPECT_EQ(s.a.trace(), Lines{"ACK 1 msn 4"});
  s.say(packet(s.a, Opcode::rc_write_only, 0xFFFFFF, payload, reth));
  EXPECT_EQ(s.a.trace(), Lines{"ACK 1 msn 4"});
}

}  // namespace
}  // namespace farverbs::proto
