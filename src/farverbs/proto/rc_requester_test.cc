// The requester's rules, one by one, against a peer whose packets the test writes.
#include "farverbs/proto/proto_testing.h"

namespace farverbs::proto {
namespace {

using namespace testing;
using wire::NakCode;

constexpr uint32_t kMtu = 256;

Bytes read_response(const Side& to, Opcode opcode, uint32_t psn, size_t bytes,
                    uint8_t fill = 0x77) {
  const Bytes payload(bytes, std::byte{fill});
  if (opcode == Opcode::rc_read_response_middle) return packet(to, opcode, psn, payload);
  return packet(to, opcode, psn, payload, wire::Aeth{wire::Syndrome::ack().byte(), 0});
}

TEST(RcRequester, ReadReservesItsPsns) {
  Scripted s;
  s.a.read(0, 600, s.ghost, 0);
  s.a.read(1000, 0, s.ghost, 0);
  s.a.write(0, 8, s.ghost, 0);
  EXPECT_EQ(s.a.trace(), (Lines{"READ_REQUEST 100 len 600 A", "READ_REQUEST 103 len 0 A",
                                "WRITE_ONLY 104 len 8 A"}));
}

TEST(RcRequester, OneAckCompletesAllBeforeIt) {
  Scripted s;
  for (int i = 0; i < 5; ++i) s.a.write(0, 8, s.ghost, 0);
  EXPECT_EQ(s.a.poll().size(), 5u);
  s.ack(102);
  EXPECT_EQ(Side::summary(s.a.sends()), "1 success, 2 success, 3 success");
  s.ack(104);
  EXPECT_EQ(Side::summary(s.a.sends()), "4 success, 5 success");
  EXPECT_TRUE(s.a.qp->next_timer().is_never());
}

TEST(RcRequester, OnlyTheLastOfManyMessagesAsksForAnAck) {
  Scripted s;
  for (int i = 0; i < 3; ++i) s.a.write(0, 8, s.ghost, 0);
  EXPECT_EQ(s.a.trace(),
            (Lines{"WRITE_ONLY 100 len 8", "WRITE_ONLY 101 len 8", "WRITE_ONLY 102 len 8 A"}));
}

TEST(RcRequester, GhostAcksAreIgnored) {
  Scripted s;
  s.ack(99);
  s.ack(100);
  s.ack(0x800000);
  s.a.write(0, 8, s.ghost, 0);
  s.a.poll();
  s.ack(101);  // never sent
  s.ack(98);
  s.ack(5000);
  EXPECT_EQ(s.a.sends().size(), 0u);
  s.ack(100);
  s.ack(100);
  EXPECT_EQ(s.a.sends().size(), 1u);
  EXPECT_EQ(s.a.state(), QpState::kRts);
}

TEST(RcRequester, ASequenceNakAcknowledgesWhatIsBeforeItAndGoesBack) {
  Scripted s;
  s.a.write(0, 8, s.ghost, 0);
  s.a.write(0, 1000, s.ghost, 0);
  EXPECT_EQ(s.a.poll().size(), 5u);
  s.nak(NakCode::psn_sequence_error, 102);
  EXPECT_EQ(Side::summary(s.a.sends()), "1 success");
  // Mid-message; the first packet that is sent again asks for an answer.
  EXPECT_EQ(s.a.trace(), (Lines{"WRITE_MIDDLE 102 A", "WRITE_MIDDLE 103", "WRITE_LAST 104 A"}));
  EXPECT_EQ(s.a.counters().retransmitted_packets, 3u);
}

TEST(RcRequester, OneRewindForOneLossWithinARoundTrip) {
  Scripted s;
  s.a.write(0, 8, s.ghost, 0);
  s.a.poll();
  s.a.now = s.a.now + Duration::milliseconds(1);
  s.ack(100);  // the round trip is known: 1 ms
  s.a.write(0, 1000, s.ghost, 0);
  s.a.poll();
  s.nak(NakCode::psn_sequence_error, 101);
  EXPECT_EQ(s.a.poll().size(), 4u);
  s.nak(NakCode::psn_sequence_error, 101);
  EXPECT_EQ(s.a.poll().size(), 0u);
  s.a.now = s.a.now + Duration::milliseconds(10);
  s.nak(NakCode::psn_sequence_error, 101);
  EXPECT_EQ(s.a.poll().size(), 4u);
}

TEST(RcRequester, AnOldAckCoversWhatARewindTookBack) {
  Scripted s;
  s.a.write(0, 1000, s.ghost, 0);
  s.a.poll();
  s.nak(NakCode::psn_sequence_error, 101);
  s.ack(103);
  EXPECT_EQ(s.a.poll().size(), 0u);
  EXPECT_EQ(s.a.sends().size(), 1u);
  EXPECT_EQ(s.a.inflight, 0u);
}

TEST(RcRequester, AnAckBeyondAReadMeansALostResponse) {
  Scripted s;
  s.a.read(0, 600, s.ghost, 0);
  s.a.write(0, 8, s.ghost, 0);
  s.a.poll();
  s.say(read_response(s.a, Opcode::rc_read_response_first, 100, kMtu));
  s.ack(103);
  EXPECT_EQ(s.a.sends().size(), 0u);
  EXPECT_EQ(s.a.trace(), (Lines{"READ_REQUEST 101 len 344 A", "WRITE_ONLY 103 len 8 A"}));
}

TEST(RcRequester, AnAckBeyondAnAtomicMeansALostResponse) {
  Scripted s;
  s.a.fetch_add(0, 1, s.ghost, 0);
  s.a.write(8, 8, s.ghost, 0);
  s.a.poll();
  s.ack(101);
  EXPECT_EQ(s.a.trace(), (Lines{"FETCH_ADD 100 A", "WRITE_ONLY 101 len 8 A"}));
}

TEST(RcRequester, ALostReadResponseIsAskedForFromTheMissingPacket) {
  Scripted s;
  s.a.read(0, 5000, s.ghost, 100);  // PSNs 100 to 119
  s.a.poll();
  s.say(read_response(s.a, Opcode::rc_read_response_first, 100, kMtu));
  s.say(read_response(s.a, Opcode::rc_read_response_middle, 101, kMtu));
  s.say(read_response(s.a, Opcode::rc_read_response_middle, 103, kMtu));
  const auto packets = s.a.poll();
  EXPECT_EQ(describe(packets), Lines{"READ_REQUEST 102 len 4488 A"});
  const wire::Reth reth = (*wire::parse(packets[0])).reth();
  EXPECT_EQ(reth.address, s.ghost.address(100 + 512));
  // Its answer may begin with MIDDLE (rxe) or FIRST (IBTA).
  s.say(read_response(s.a, Opcode::rc_read_response_middle, 102, kMtu));
  s.say(read_response(s.a, Opcode::rc_read_response_first, 103, kMtu));
  EXPECT_EQ(s.a.poll().size(), 0u);
  for (uint32_t psn = 104; psn < 119; ++psn) {
    s.say(read_response(s.a, Opcode::rc_read_response_middle, psn, kMtu));
  }
  s.say(read_response(s.a, Opcode::rc_read_response_last, 119, 5000 - 19 * kMtu));
  EXPECT_EQ(Side::summary(s.a.sends()), "1 success");
}

TEST(RcRequester, WhatIsAskedForAgainStaysInsideOneEarlierRequest) {
  Options options;
  options.config.read_chunk_bytes = 1024;
  Scripted s(options);
  s.a.read(0, 3000, s.ghost, 0);
  EXPECT_EQ(s.a.trace(), (Lines{"READ_REQUEST 100 len 1024 A", "READ_REQUEST 104 len 1024 A",
                                "READ_REQUEST 108 len 952 A"}));
  s.say(read_response(s.a, Opcode::rc_read_response_first, 100, kMtu));
  s.say(read_response(s.a, Opcode::rc_read_response_middle, 102, kMtu));
  EXPECT_EQ(s.a.trace(), (Lines{"READ_REQUEST 101 len 768 A", "READ_REQUEST 104 len 1024 A",
                                "READ_REQUEST 108 len 952 A"}));
}

TEST(RcRequester, ReadsObeyMaxRdAtomic) {
  Options options;
  options.rd_atomic = 2;
  Scripted s(options);
  for (int i = 0; i < 3; ++i) s.a.read(0, 8, s.ghost, 0);
  EXPECT_EQ(s.a.poll().size(), 2u);
  EXPECT_FALSE(s.a.qp->wants_transmit());
  s.say(read_response(s.a, Opcode::rc_read_response_only, 100, 8));
  EXPECT_TRUE(s.a.qp->wants_transmit());
  EXPECT_EQ(s.a.trace(), Lines{"READ_REQUEST 102 len 8 A"});
}

TEST(RcRequester, AResponseOfTheWrongLengthIsABadResponse) {
  Scripted s;
  s.a.read(0, 600, s.ghost, 0);
  s.a.poll();
  s.say(read_response(s.a, Opcode::rc_read_response_first, 100, 100));
  EXPECT_EQ(Side::summary(s.a.sends()), "1 bad response");
  EXPECT_EQ(s.a.state(), QpState::kErr);
}

// --- Time ----------------------------------------------------------------------------------------

TEST(RcRequester, TheTimerRunsFourMicrosecondsTimesTwoToTheTimeout) {
  Options options;
  options.timeout = 10;
  Scripted s(options);
  s.a.write(0, 8, s.ghost, 0);
  s.a.poll();
  EXPECT_EQ((s.a.qp->next_timer() - s.a.now).ns(), 4096 * 1024);
  options.timeout = 0;
  Scripted never(options);
  never.a.write(0, 8, never.ghost, 0);
  never.a.poll();
  EXPECT_TRUE(never.a.qp->next_timer().is_never());
}

TEST(RcRequester, ProgressRestartsTheTimer) {
  Scripted s;
  s.a.write(0, 1000, s.ghost, 0);
  s.a.poll();
  const Time first = s.a.qp->next_timer();
  s.a.now = s.a.now + Duration::milliseconds(5);
  s.ack(101);
  EXPECT_EQ((s.a.qp->next_timer() - first).ns(), 5'000'000);
}

class RetryCount : public ::testing::TestWithParam<int> {};
TEST_P(RetryCount, MeansThatManyTriesAfterTheFirst) {
  Options options;
  options.retry_count = static_cast<uint8_t>(GetParam());
  Scripted s(options);
  s.a.write(0, 8, s.ghost, 0);
  s.a.write(0, 8, s.ghost, 0);
  int tries = 0;
  while (s.a.state() == QpState::kRts) {
    if (s.a.poll().size() == 2) ++tries;
    ASSERT_TRUE(s.a.fire_timer());
    ASSERT_LT(tries, 20);
  }
  EXPECT_EQ(tries, GetParam() + 1);
  EXPECT_EQ(Side::summary(s.a.sends()), "1 transport retries exceeded, 2 work request flushed");
  EXPECT_EQ(s.a.poll().size(), 0u);
  EXPECT_EQ(s.a.timeouts, GetParam() + 1);
  EXPECT_EQ(s.a.inflight, 0u);
}
INSTANTIATE_TEST_SUITE_P(All, RetryCount, ::testing::Range(0, 8));

TEST(RcRequester, ProgressResetsTheRetryCount) {
  Options options;
  options.retry_count = 1;
  Scripted s(options);
  s.a.write(0, 2000, s.ghost, 0);
  for (uint32_t psn = 100; psn < 107; ++psn) {
    s.a.poll();
    s.a.fire_timer();
    s.a.poll();
    s.ack(psn);
  }
  EXPECT_EQ(s.a.state(), QpState::kRts);
}

struct RnrCase {
  uint8_t code;
  int64_t microseconds;
};
class RnrTimer : public ::testing::TestWithParam<RnrCase> {};
TEST_P(RnrTimer, WaitsForTheTimeOfItsCode) {
  Scripted s;
  s.a.send(0, 8);
  s.a.poll();
  s.rnr(GetParam().code, 100);
  EXPECT_EQ((s.a.qp->next_timer() - s.a.now).ns(), GetParam().microseconds * 1000);
  EXPECT_FALSE(s.a.qp->wants_transmit());
  EXPECT_EQ(s.a.poll().size(), 0u);
  s.a.fire_timer();
  EXPECT_TRUE(s.a.qp->wants_transmit());
  EXPECT_EQ(s.a.trace(), Lines{"SEND_ONLY 100 A"});
}
INSTANTIATE_TEST_SUITE_P(Codes, RnrTimer,
                         ::testing::Values(RnrCase{0, 655'360}, RnrCase{1, 10}, RnrCase{2, 20},
                                           RnrCase{5, 60}, RnrCase{12, 640}, RnrCase{31, 491'520}));

class RnrRetry : public ::testing::TestWithParam<int> {};
TEST_P(RnrRetry, CountsAndSevenIsForEver) {
  Options options;
  options.rnr_retry = static_cast<uint8_t>(GetParam());
  Scripted s(options);
  s.a.send(0, 8);
  int tries = 0;
  while (s.a.state() == QpState::kRts && tries < 500) {
    tries += static_cast<int>(s.a.poll().size());
    s.rnr(1, 100);
    s.a.fire_timer();
  }
  if (GetParam() == 7) {
    EXPECT_EQ(tries, 500);
  } else {
    EXPECT_EQ(tries, GetParam() + 1);
    EXPECT_EQ(Side::summary(s.a.sends()), "1 receiver-not-ready retries exceeded");
  }
}
INSTANTIATE_TEST_SUITE_P(All, RnrRetry, ::testing::Range(0, 8));

TEST(RcRequester, AnRnrNakAcknowledgesWhatIsBeforeIt) {
  Scripted s;
  s.a.write(0, 8, s.ghost, 0);
  s.a.send(0, 600);
  s.a.poll();
  s.rnr(1, 101);
  EXPECT_EQ(Side::summary(s.a.sends()), "1 success");
  s.a.fire_timer();
  EXPECT_EQ(s.a.trace(), (Lines{"SEND_FIRST 101 A", "SEND_MIDDLE 102", "SEND_LAST 103 A"}));
}

// --- Failures ------------------------------------------------------------------------------------

struct NakCase {
  NakCode code;
  CompletionStatus status;
};
class Refusals : public ::testing::TestWithParam<NakCase> {};
TEST_P(Refusals, FailTheirRequestAndFlushTheRest) {
  Options options;
  options.signal_all = false;
  Scripted s(options);
  s.a.receive(0, 8);
  s.a.write(0, 8, s.ghost, 0, model::kSignaled);
  s.a.write(0, 8, s.ghost, 0);  // unsignaled: its failure completes all the same
  s.a.write(0, 8, s.ghost, 0);
  s.a.poll();
  s.nak(GetParam().code, 101);
  const auto sends = s.a.sends();
  ASSERT_EQ(sends.size(), 3u);
  EXPECT_EQ(sends[0].status, CompletionStatus::kSuccess);
  EXPECT_EQ(sends[1].status, GetParam().status);
  EXPECT_EQ(sends[2].status, CompletionStatus::kWorkRequestFlushed);
  EXPECT_EQ(Side::summary(s.a.receives()), "1 work request flushed");
  EXPECT_EQ(s.a.state(), QpState::kErr);
  EXPECT_TRUE(s.a.qp->next_timer().is_never());
  // What is posted now is flushed as well.
  s.a.write(0, 8, s.ghost, 0);
  s.a.receive(0, 8);
  EXPECT_EQ(Side::summary(s.a.sends()), "4 work request flushed");
  EXPECT_EQ(Side::summary(s.a.receives()), "2 work request flushed");
}
INSTANTIATE_TEST_SUITE_P(
    All, Refusals,
    ::testing::Values(NakCase{NakCode::invalid_request, CompletionStatus::kRemoteInvalidRequest},
                      NakCase{NakCode::remote_access_error, CompletionStatus::kRemoteAccessError},
                      NakCase{NakCode::remote_operational_error,
                              CompletionStatus::kRemoteOperationError}));

TEST(RcRequester, UnsignaledRequestsCompleteSilently) {
  Options options;
  options.signal_all = false;
  Scripted s(options);
  s.a.write(0, 8, s.ghost, 0);
  s.a.write(0, 8, s.ghost, 0, model::kSignaled);
  s.a.poll();
  s.ack(101);
  EXPECT_EQ(Side::summary(s.a.sends()), "2 success");
}

TEST(RcRequester, ABadLocalKeyFailsAfterWhatCameBefore) {
  Scripted s;
  s.a.write(0, 8, s.ghost, 0);
  auto bad = s.a.request(SendOpcode::kSend, 0, 64);
  s.a.one.lkey = MemoryKey(3);
  s.a.post(bad);
  s.a.write(0, 8, s.ghost, 0);
  EXPECT_EQ(s.a.poll().size(), 1u);
  EXPECT_EQ(s.a.sends().size(), 0u);  // the first may still succeed, or need another try
  s.a.fire_timer();
  EXPECT_EQ(s.a.trace(), Lines{"WRITE_ONLY 100 len 8 A"});
  s.ack(100);
  EXPECT_EQ(Side::summary(s.a.sends()),
            "1 success, 2 local protection error, 3 work request flushed");
}

TEST(RcRequester, AReadIntoMemoryThatMayNotBeWrittenFails) {
  Scripted s;
  const auto region = s.a.table.register_region(1, s.a.bytes(0), 64, s.a.address(0), 0);
  auto r = s.a.request(SendOpcode::kRead, 0, 8);
  s.a.one.lkey = MemoryKey(region.value()->key.load());
  s.a.post(r);
  EXPECT_EQ(s.a.poll().size(), 0u);
  EXPECT_EQ(Side::summary(s.a.sends()), "1 local protection error");
}

// --- Order ---------------------------------------------------------------------------------------

TEST(RcRequester, AFenceWaitsForReadsAndAtomics) {
  Scripted s;
  s.a.read(0, 8, s.ghost, 0);
  s.a.write(0, 8, s.ghost, 0, model::kFence);
  EXPECT_EQ(s.a.poll().size(), 1u);
  EXPECT_FALSE(s.a.qp->wants_transmit());
  s.say(read_response(s.a, Opcode::rc_read_response_only, 100, 8));
  EXPECT_EQ(s.a.trace(), Lines{"WRITE_ONLY 101 len 8 A"});
  s.a.write(0, 8, s.ghost, 0, model::kFence);  // a WRITE is nothing to wait for
  EXPECT_EQ(s.a.trace(), Lines{"WRITE_ONLY 102 len 8 A"});
}

TEST(RcRequester, LocalInvalidateWaitsForWhatCameBefore) {
  Scripted s;
  const auto region =
      s.a.table.register_region(1, s.a.bytes(0), 64, s.a.address(0), kAllAccess).value();
  const MemoryKey key(region->key.load());
  s.a.write(0, 8, s.ghost, 0);
  model::SendWorkRequest r;
  r.wr_id = 7;
  r.opcode = SendOpcode::kLocalInvalidate;
  r.invalidate_key = key;
  s.a.post(r);
  EXPECT_EQ(s.a.trace(), Lines{"WRITE_ONLY 100 len 8 A"});
  EXPECT_TRUE(region->holds(key));
  s.ack(100);
  EXPECT_TRUE(s.a.qp->wants_transmit());
  s.a.poll();
  EXPECT_FALSE(region->holds(key));
  EXPECT_EQ(Side::summary(s.a.sends()), "1 success, 7 success");
}

TEST(RcRequester, BindWindowInOrder) {
  Link link;
  auto window = link.b.table.allocate_window(1, model::MemoryKind::kWindow2).value();
  model::SendWorkRequest r;
  r.wr_id = 7;
  r.opcode = SendOpcode::kBindWindow;
  r.window = window;
  r.bind_region_lkey = link.b.key();
  r.bind_address = link.b.address(64);
  r.bind_length = 64;
  r.bind_access = model::kRemoteWrite;
  link.b.post(r);
  link.settle();
  EXPECT_EQ(Side::summary(link.b.sends()), "7 success");
  const MemoryKey key(window->key.load());
  link.a.fill(0, 8, 5);
  link.a.one_sided(SendOpcode::kWrite, 0, 8, link.b.address(64), key);
  link.settle();
  EXPECT_EQ(std::memcmp(link.a.bytes(0), link.b.bytes(64), 8), 0);
  link.a.one_sided(SendOpcode::kWrite, 0, 8, link.b.address(128), key);
  link.settle();
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success, 2 remote access error");
}

TEST(RcRequester, SolicitedIsSetOnTheLastPacketOfWhatTakesAReceive) {
  Scripted s;
  s.a.send(0, 300, model::kSolicited);
  s.a.write(0, 8, s.ghost, 0, model::kSolicited);
  EXPECT_EQ(s.a.trace(), (Lines{"SEND_FIRST 100", "SEND_LAST 101 S", "WRITE_ONLY 102 len 8 A"}));
}

TEST(RcRequester, SendWithInvalidateCarriesTheKey) {
  Scripted s;
  auto r = s.a.request(SendOpcode::kSendWithInvalidate, 0, 300);
  r.invalidate_key = MemoryKey(0x1234);
  s.a.post(r);
  const auto packets = s.a.poll();
  EXPECT_EQ(describe(packets), (Lines{"SEND_FIRST 100", "SEND_LAST_INVALIDATE 101 A"}));
  EXPECT_EQ((*wire::parse(packets[1])).ieth().rkey, MemoryKey(0x1234));
}

// --- Credits -------------------------------------------------------------------------------------

TEST(RcRequester, CreditsLimitSends) {
  Scripted s;
  s.a.write(0, 8, s.ghost, 0);
  s.a.poll();
  s.say(answer(s.a, wire::Syndrome::ack(wire::credit_code_for(2)), 100, 1));
  for (int i = 0; i < 5; ++i) s.a.send(0, 8);
  EXPECT_EQ(s.a.trace(), (Lines{"SEND_ONLY 101", "SEND_ONLY 102 A"}));
  EXPECT_FALSE(s.a.qp->wants_transmit());
  s.say(answer(s.a, wire::Syndrome::ack(wire::credit_code_for(0)), 102, 3));
  // Nothing is in flight and no credit is left: one goes to ask.
  EXPECT_EQ(s.a.trace(), Lines{"SEND_ONLY 103 A"});
  s.say(answer(s.a, wire::Syndrome::ack(wire::kNoCredit), 103, 4));
  EXPECT_EQ(s.a.poll().size(), 2u);
}

TEST(RcRequester, WritesNeedNoCredit) {
  Scripted s;
  s.a.write(0, 8, s.ghost, 0);
  s.a.poll();
  s.say(answer(s.a, wire::Syndrome::ack(wire::credit_code_for(0)), 100, 1));
  for (int i = 0; i < 5; ++i) s.a.write(0, 8, s.ghost, 0);
  EXPECT_EQ(s.a.poll().size(), 5u);
}

}  // namespace
}  // namespace farverbs::proto
