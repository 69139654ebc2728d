// Section 4 of docs/far-transport.md, rule by rule: messages that take a receive, READs, atomics,
// and refusals.
#include <sys/mman.h>

#include "farverbs/base/fault_guard.h"
#include "farverbs/proto/far_testing.h"

namespace farverbs::proto {
namespace {

using namespace testing;
using Verdict = FarResponder::Verdict;
using model::AsyncEventType;
using wire::FarStatus;
using wire::NakCode;

constexpr auto kTaken = Verdict::kTaken;
constexpr auto kDropped = Verdict::kDropped;

// --- Receives

TEST(FarReceiving, SendsGoToTheReceiveThatTheyNameAndCompleteInOrder) {
  FarSide side;
  for (size_t i = 0; i < 3; ++i) side.a.receive(i * 4096, 4096);
  const Bytes data = random_bytes(2000, 1);
  EXPECT_EQ(side.take(side.send(2, 2, data, 1000, 2000)), kTaken);
  EXPECT_TRUE(side.holds(2 * 4096, data, 1000, 2000));
  EXPECT_EQ(side.take(side.send(2, 2, data, 0, 1000)), kTaken);
  EXPECT_TRUE(side.holds(2 * 4096, data, 0, 2000));
  EXPECT_EQ(side.take(side.send(1, 1, data, 0, 2000)), kTaken);
  EXPECT_TRUE(side.a.receives().empty());
  EXPECT_EQ(side.take(side.send(0, 0, data, 0, 2000)), kTaken);
  EXPECT_EQ(Side::summary(side.a.receives()), "1 success, 2 success, 3 success");
  EXPECT_EQ(side.far.executed(), 3u);
  EXPECT_TRUE(side.holds(0, data, 0, 2000));
  EXPECT_TRUE(side.holds(4096, data, 0, 2000));
}

TEST(FarReceiving, Completions) {
  FarSide side;
  for (size_t i = 0; i < 4; ++i) side.a.receive(i * 4096, 4096);
  const Bytes data = random_bytes(300, 1);
  auto* const region = side.a.table.register_region(1, side.a.bytes(), 64, 0, kAllAccess).value();
  const MemoryKey key(region->key.load());
  const wire::FarOffset offset{200};
  EXPECT_EQ(side.take(side.send(0, 0, data, 0, 200)), kTaken);
  EXPECT_EQ(side.take(far_packet(Opcode::far_send_imm, 0, true, part(data, 200, 300),
                                 wire::FarSequence{0}, offset, wire::ImmDt{0xABCD})),
            kTaken);
  EXPECT_EQ(side.take(far_packet(Opcode::far_send_invalidate, 1, true, part(data, 0, 100),
                                 wire::FarSequence{1}, wire::FarOffset{0}, wire::Ieth{key})),
            kTaken);
  EXPECT_EQ(region->key.load(), 0u);
  EXPECT_EQ(side.take(side.write(2, 20'000, data, 0, 250)), kTaken);
  EXPECT_EQ(side.take(side.write_imm(2, 20'000, data, 250, 2, 0x1234)), kTaken);
  side.a.receive_cq.request_notification(true);
  EXPECT_EQ(side.a.notifications.count, 0);
  EXPECT_EQ(side.take(solicited(side.send(3, 3, data, 0, 300))), kTaken);
  EXPECT_EQ(side.a.notifications.count, 1);
  const auto all = side.a.receives();
  ASSERT_EQ(all.size(), 4u);
  using model::CompletionOpcode;
  EXPECT_EQ(all[0].byte_length, 300u);
  EXPECT_EQ(all[0].immediate, 0xABCDu);
  EXPECT_EQ(all[0].flags, model::kWithImmediate);
  EXPECT_EQ(all[0].opcode, CompletionOpcode::kReceive);
  EXPECT_EQ(all[0].qpn, side.a.qp->qp().qpn);
  EXPECT_EQ(all[0].source_qpn, side.ghost.qp->qp().qpn);
  EXPECT_EQ(all[1].byte_length, 100u);
  EXPECT_EQ(all[1].invalidated_key, key);
  EXPECT_EQ(all[1].flags, model::kWithInvalidate);
  EXPECT_EQ(all[2].opcode, CompletionOpcode::kReceiveWithImmediate);
  EXPECT_EQ(all[2].byte_length, 300u);  // what was written
  EXPECT_EQ(all[2].immediate, 0x1234u);
  EXPECT_EQ(all[3].flags, 0u);
  EXPECT_EQ(all[3].byte_length, 300u);
  EXPECT_TRUE(side.zero(2 * 4096, 4096));  // a WRITE writes nothing into its receive
}

TEST(FarReceiving, AnUnsolicitedMessageDoesNotNotify) {
  FarSide side;
  side.a.receive(0, 64);
  side.a.receive_cq.request_notification(true);
  EXPECT_EQ(side.take(side.send(0, 0, random_bytes(8, 1), 0, 8)), kTaken);
  EXPECT_EQ(side.a.notifications.count, 0);
  EXPECT_EQ(side.a.receives().size(), 1u);
}

TEST(FarReceiving, AWriteWithImmediateNeedsNoRoomInItsReceive) {
  FarSide side;
  side.a.receive(0, 0);
  const Bytes data = random_bytes(100, 1);
  EXPECT_EQ(side.take(side.write_imm(0, 4096, data, 0, 0, 9)), kTaken);
  EXPECT_TRUE(side.holds(4096, data, 0, 100));
  const auto all = side.a.receives();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].byte_length, 100u);
}

TEST(FarReceiving, ManyPiecesOfAReceive) {
  FarSide side;
  const model::ScatterGatherElement pieces[] = {side.a.sge(0, 100), side.a.sge(1000, 1),
                                                side.a.sge(2000, 0), side.a.sge(3000, 899)};
  model::ReceiveWorkRequest receive;
  receive.sges = pieces;
  ASSERT_TRUE(side.a.qp->post_receive(receive).ok());
  const Bytes data = random_bytes(1000, 1);
  EXPECT_EQ(side.take(side.send(0, 0, data, 500, 1000)), kTaken);
  EXPECT_EQ(side.take(side.send(0, 0, data, 0, 500)), kTaken);
  EXPECT_EQ(side.far.executed(), 1u);
  EXPECT_TRUE(side.holds(0, data, 0, 100));
  EXPECT_TRUE(side.holds(900, data, 100, 101));
  EXPECT_TRUE(side.holds(3000 - 101, data, 101, 1000));
}

TEST(FarReceiving, TheReceiveLimitIsTold) {
  FarSide side;
  EXPECT_EQ(side.far.told().status, FarStatus::ok);
  EXPECT_TRUE(side.far.told().has_receive_limit);
  EXPECT_EQ(side.far.told().receive_limit, 0u);
  for (size_t i = 0; i < 5; ++i) side.a.receive(i * 64, 64);
  EXPECT_EQ(side.far.told().receive_limit, 5u);
  EXPECT_EQ(side.take(side.send(2, 2, random_bytes(8, 1), 0, 8)), kTaken);
  EXPECT_EQ(side.far.told().receive_limit, 5u);  // taken from the queue or not
  Options options;
  options.srq = true;
  FarSide shared(options);
  shared.a.receive(0, 64);
  EXPECT_FALSE(shared.far.told().has_receive_limit);
  options.srq = false;
  options.config.end_to_end_credits = false;
  EXPECT_FALSE(FarSide(options).far.told().has_receive_limit);
}

TEST(FarReceiving, NotReady) {
  FarSide side;
  const Bytes data = random_bytes(2000, 1);
  EXPECT_EQ(side.take(side.send(0, 0, data, 0, 1000)), kDropped);
  FarResponder::Told told = side.far.told();
  EXPECT_EQ(told.status, FarStatus::not_ready);
  EXPECT_EQ(told.detail, side.a.options.min_rnr_timer);
  EXPECT_TRUE(told.has_receive_limit);
  EXPECT_EQ(told.receive_limit, 0u);
  EXPECT_EQ(side.take(side.send(1, 1, data, 0, 2000)), kDropped);
  EXPECT_EQ(side.a.counters().rnr_naks_sent, 1u);
  side.a.receive(0, 4096);
  side.a.receive(4096, 4096);
  told = side.far.told();
  EXPECT_EQ(told.status, FarStatus::ok);
  EXPECT_EQ(told.receive_limit, 2u);
  EXPECT_EQ(side.take(side.send(0, 0, data, 1000, 2000)), kTaken);
  EXPECT_EQ(side.take(side.send(0, 0, data, 0, 1000)), kTaken);
  EXPECT_EQ(side.far.executed(), 1u);
  EXPECT_EQ(side.take(side.send(1, 1, data, 0, 2000)), kTaken);
  EXPECT_EQ(Side::summary(side.a.receives()), "1 success, 2 success");
}

TEST(FarReceiving, AWriteWithImmediateThatIsNotReadyComesAgain) {
  FarSide side;
  const Bytes data = random_bytes(2000, 1);
  EXPECT_EQ(side.take(side.write(0, 0, data, 0, 1000)), kTaken);
  EXPECT_EQ(side.take(side.write_imm(0, 0, data, 1000, 0, 5)), kDropped);
  EXPECT_EQ(side.far.told().status, FarStatus::not_ready);
  EXPECT_TRUE(side.zero(1000, 1000));
  side.a.receive(8192, 0);
  EXPECT_EQ(side.take(side.write(0, 0, data, 1000, 1400)), kTaken);  // cut differently
  EXPECT_EQ(side.take(side.write_imm(0, 0, data, 1400, 0, 5)), kTaken);
  EXPECT_EQ(side.far.told().status, FarStatus::ok);
  EXPECT_EQ(side.far.executed(), 1u);
  EXPECT_TRUE(side.holds(0, data, 0, 2000));
  EXPECT_EQ(side.a.receives().size(), 1u);
}

TEST(FarReceiving, NotReadyTellsOfTheFirstReceiveThatIsMissing) {
  FarSide side;
  const Bytes data = random_bytes(100, 1);
  side.a.receive(0, 4096);
  EXPECT_EQ(side.take(side.send(3, 3, data, 0, 100)), kDropped);
  EXPECT_EQ(side.far.told().receive_limit, 1u);
  EXPECT_EQ(side.take(side.send(1, 1, data, 0, 100)), kDropped);
  EXPECT_EQ(side.far.told().receive_limit, 1u);
  for (size_t i = 1; i < 4; ++i) side.a.receive(i * 4096, 4096);
  EXPECT_EQ(side.far.told().status, FarStatus::ok);
  EXPECT_EQ(side.take(side.send(3, 3, data, 0, 100)), kTaken);
  EXPECT_EQ(side.take(side.send(1, 1, data, 0, 100)), kTaken);
}

TEST(FarReceiving, ASharedQueueIsTakenFromOnArrival) {
  Options options;
  options.srq = true;
  FarSide side(options);
  for (size_t i = 0; i < 4; ++i) side.a.receive(i * 4096, 4096);
  const Bytes data = random_bytes(100, 1);
  EXPECT_EQ(side.take(side.send(1, 1, data, 0, 100)), kTaken);
  EXPECT_EQ(side.a.srq.count(), 2u);
  EXPECT_TRUE(side.holds(4096, data, 0, 100));
  EXPECT_EQ(side.take(side.send(0, 0, data, 0, 100)), kTaken);
  EXPECT_EQ(Side::summary(side.a.receives()), "1 success, 2 success");
  // Those in hand are flushed, others' are not.
  EXPECT_EQ(side.take(side.send(3, 2, data, 0, 50)), kTaken);
  side.far.flush();
  EXPECT_EQ(Side::summary(side.a.receives()), "3 work request flushed");
  EXPECT_EQ(side.a.srq.count(), 1u);
}

TEST(FarReceiving, FlushInOrder) {
  FarSide side;
  for (size_t i = 0; i < 4; ++i) side.a.receive(i * 4096, 4096);
  const Bytes data = random_bytes(100, 1);
  EXPECT_EQ(side.take(side.send(0, 0, data, 0, 100)), kTaken);
  EXPECT_EQ(side.take(side.send(2, 2, data, 0, 100)), kTaken);
  side.far.flush();
  EXPECT_EQ(Side::summary(side.a.receives()),
            "1 success, 2 work request flushed, 3 work request flushed, 4 work request flushed");
  EXPECT_EQ(side.take(side.send(1, 1, data, 0, 100)), kDropped);
  EXPECT_EQ(side.far.executed(), 1u);
}

// A peer that names receives it can't have a message for must not drain a shared queue.
TEST(FarReceiving, SequencesThatCannotBe) {
  const Bytes data = random_bytes(100, 1);
  Options options;
  options.srq = true;
  for (int which = 0; which < 4; ++which) {
    SCOPED_TRACE(which);
    FarSide side(options);
    for (size_t i = 0; i < 8; ++i) side.a.receive(i * 4096, 4096);
    EXPECT_EQ(side.take(side.write(0, 40'000, data, 0, 50)), kTaken);
    switch (which) {
      case 0:  // more than there are messages
        EXPECT_EQ(side.take(side.send(1, 2, data, 0, 100)), kTaken);
        EXPECT_EQ(side.a.srq.count(), 8u);
        break;
      case 1:  // taken by another message
        EXPECT_EQ(side.take(side.send(2, 0, data, 0, 100)), kTaken);
        EXPECT_EQ(side.take(side.send(1, 0, data, 0, 100)), kTaken);
        break;
      case 2:  // completed before
        EXPECT_EQ(side.take(side.send(1, 0xFFFF'FFFF, data, 0, 100)), kTaken);
        break;
      case 3:  // not in the messages' order
        EXPECT_EQ(side.take(side.send(1, 1, data, 0, 100)), kTaken);
        break;
    }
    EXPECT_FALSE(side.far.failed());
    EXPECT_EQ(side.take(side.write(0, 40'000, data, 50, 100)), kTaken);
    EXPECT_TRUE(side.refused(NakCode::invalid_request));
    EXPECT_EQ(side.far.executed(), 1u);
    EXPECT_TRUE(side.a.receives().empty());
  }
}

// --- READs and atomics

TEST(FarAnswering, InOrderAndKeptUntilAcknowledged) {
  FarSide side;
  side.a.word(512) = 40;
  EXPECT_EQ(side.take(side.read(2, 0, 5000)), kTaken);
  EXPECT_EQ(side.take(side.fetch_add(1, 512, 2)), kTaken);
  EXPECT_EQ(side.far.next_response(), nullptr);
  EXPECT_EQ(side.a.word(512), 40u);
  EXPECT_EQ(side.take(side.compare_swap(0, 512, 40, 100)), kTaken);
  EXPECT_EQ(side.far.executed(), 3u);
  EXPECT_EQ(side.a.word(512), 102u);
  FarResponder::Response* next = side.far.next_response();
  ASSERT_NE(next, nullptr);
  EXPECT_TRUE(next->atomic);
  EXPECT_EQ(next->message, 0u);
  EXPECT_EQ(next->original, 40u);
  EXPECT_EQ(next->length, 8u);
  next->sent = 8;
  next->begun = true;
  next = side.far.next_response();
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(next->message, 1u);
  EXPECT_EQ(next->original, 100u);
  next->sent = 8;
  next->begun = true;
  next = side.far.next_response();
  ASSERT_NE(next, nullptr);
  EXPECT_FALSE(next->atomic);
  EXPECT_EQ(next->message, 2u);
  EXPECT_EQ(next->address, side.a.address(0));
  EXPECT_EQ(next->key, side.a.key());
  EXPECT_EQ(next->length, 5000u);
  next->sent = 3000;
  next->begun = true;
  EXPECT_EQ(side.far.next_response()->message, 2u);
  side.far.acknowledged(1, 8);
  EXPECT_EQ(side.far.find_response(1), nullptr);
  EXPECT_NE(side.far.find_response(0), nullptr);
  side.far.acknowledged(2, 3000);
  ASSERT_NE(side.far.next_response(), nullptr);
  EXPECT_EQ(side.far.next_response()->message, 2u);
  side.far.next_response()->sent = 5000;
  EXPECT_EQ(side.far.next_response(), nullptr);
  side.far.acknowledged(2, 1000);
  EXPECT_NE(side.far.find_response(2), nullptr);
  side.far.acknowledged(2, 1000);
  EXPECT_EQ(side.far.find_response(2), nullptr);
  side.far.acknowledged(2, 1000);  // of old
  side.far.acknowledged(0, 8);
  // A duplicate asks for nothing: the response was sent and is repaired by itself.
  EXPECT_EQ(side.take(side.fetch_add(1, 512, 2)), kTaken);
  EXPECT_EQ(side.a.word(512), 102u);
  EXPECT_EQ(side.far.next_response(), nullptr);
}

TEST(FarAnswering, ACompareThatFailsTellsWhatItFound) {
  FarSide side;
  side.a.word(512) = 7;
  EXPECT_EQ(side.take(side.compare_swap(0, 512, 8, 100)), kTaken);
  EXPECT_EQ(side.a.word(512), 7u);
  EXPECT_EQ(side.far.next_response()->original, 7u);
}

TEST(FarAnswering, MoreThanWasAgreedIsDropped) {
  Options options;
  options.dest_rd_atomic = 2;
  FarSide side(options);
  for (uint32_t m = 0; m < 20; ++m) EXPECT_EQ(side.take(side.fetch_add(m, 512, 1)), kTaken);
  EXPECT_EQ(side.take(side.fetch_add(20, 512, 1)), kDropped);
  EXPECT_EQ(side.take(side.read(21, 512, 8)), kDropped);
  EXPECT_EQ(side.a.word(512), 20u);
  FarResponder::Response* const first = side.far.find_response(0);
  first->sent = 8;
  first->begun = true;
  side.far.acknowledged(0, 8);
  EXPECT_EQ(side.take(side.fetch_add(20, 512, 1)), kTaken);
  EXPECT_EQ(side.a.word(512), 21u);
  // Those that wait for their turn count as well.
  FarSide waiting(options);
  for (uint32_t m = 1; m <= 20; ++m) EXPECT_EQ(waiting.take(waiting.read(m, 512, 8)), kTaken);
  EXPECT_EQ(waiting.take(waiting.read(21, 512, 8)), kDropped);
}

TEST(FarAnswering, MemoryBehindAReadGoes) {
  FarSide side;
  for (uint32_t m = 0; m < 3; ++m) EXPECT_EQ(side.take(side.read(m, 0, 5000)), kTaken);
  side.far.refuse_response(1, NakCode::remote_access_error);
  EXPECT_TRUE(side.refused(NakCode::remote_access_error));
  EXPECT_EQ(side.far.failure_event(), AsyncEventType::kQpAccessError);
  EXPECT_EQ(side.far.executed(), 1u);
  EXPECT_NE(side.far.find_response(0), nullptr);  // is still to be answered
  EXPECT_EQ(side.far.find_response(1), nullptr);
  EXPECT_EQ(side.far.find_response(2), nullptr);
  EXPECT_EQ(side.far.next_response()->message, 0u);
  side.far.refuse_response(0, NakCode::remote_operational_error);
  EXPECT_EQ(side.far.executed(), 0u);
  EXPECT_TRUE(side.refused(NakCode::remote_operational_error));
}

// --- Refusals

struct Refusal {
  const char* name;
  NakCode code;
  AsyncEventType event;
  std::function<std::vector<Bytes>(FarSide&)> packets;  // of message 1
};

// Each message that can't be carried out is told of in its turn, and does nothing.
TEST(FarRefusing, InOrder) {
  constexpr auto kInvalid = NakCode::invalid_request;
  constexpr auto kAccess = NakCode::remote_access_error;
  constexpr auto kRequestError = AsyncEventType::kQpRequestError;
  constexpr auto kAccessError = AsyncEventType::kQpAccessError;
  const Bytes data = random_bytes(3000, 1);
  const auto w = Opcode::far_write;
  const std::vector<Refusal> refusals = {
      {"unknown key", kAccess, kAccessError,
       [&](FarSide& s) -> std::vector<Bytes> {
         return {far_packet(w, 1, true, part(data, 0, 100),
                            wire::FarPlace{s.a.address(0), MemoryKey(12345), 0})};
       }},
      {"outside of the region", kAccess, kAccessError,
       [&](FarSide& s) -> std::vector<Bytes> {
         return {s.write(1, (1 << 20) - 99, data, 0, 100)};
       }},
      {"other keys", kInvalid, kRequestError,
       [&](FarSide& s) -> std::vector<Bytes> {
         return {s.write(1, 0, data, 0, 1000),
                 far_packet(w, 1, false, part(data, 1000, 2000),
                            wire::FarPlace{s.a.address(1000), MemoryKey(3), 1000})};
       }},
      {"other addresses", kInvalid, kRequestError,
       [&](FarSide& s) -> std::vector<Bytes> {
         return {s.write(1, 0, data, 0, 1000), s.write(1, 8, data, 1000, 2000)};
       }},
      {"two ends", kInvalid, kRequestError,
       [&](FarSide& s) -> std::vector<Bytes> {
         return {s.write(1, 0, data, 2000, 3000),
                 far_packet(w, 1, true, part(data, 1000, 1500), s.place(0, 1000))};
       }},
      {"payload beyond the end", kInvalid, kRequestError,
       [&](FarSide& s) -> std::vector<Bytes> {
         return {far_packet(w, 1, true, part(data, 1000, 1500), s.place(0, 1000)),
                 s.write(1, 0, data, 1400, 1600)};
       }},
      {"payload that goes on beyond the end", kInvalid, kRequestError,
       [&](FarSide& s) -> std::vector<Bytes> {
         return {far_packet(w, 1, true, part(data, 1000, 1500), s.place(0, 1000)),
                 s.write(1, 0, data, 0, 1000), s.write(1, 0, data, 1000, 2000)};
       }},
      {"an end before payload", kInvalid, kRequestError,
       [&](FarSide& s) -> std::vector<Bytes> {
         return {s.write(1, 0, data, 1400, 1600),
                 far_packet(w, 1, true, part(data, 1000, 1500), s.place(0, 1000))};
       }},
      {"too long", kInvalid, kRequestError,
       [&](FarSide& s) -> std::vector<Bytes> {
         return {far_packet(w, 1, true, part(data, 0, 1000),
                            wire::FarPlace{s.a.address(0), s.a.key(), 0x8000'0000u - 999})};
       }},
      {"WRITE, then SEND", kInvalid, kRequestError,
       [&](FarSide& s) -> std::vector<Bytes> {
         return {s.write(1, 0, data, 0, 1000), s.send(1, 0, data, 1000, 2000)};
       }},
      {"an immediate not at the end", kInvalid, kRequestError,
       [&](FarSide& s) -> std::vector<Bytes> {
         return {far_packet(Opcode::far_write_imm, 1, false, part(data, 0, 1000), s.place(0, 0),
                            wire::FarSequence{0}, wire::ImmDt{1})};
       }},
      {"a SEND's immediate not at the end", kInvalid, kRequestError,
       [&](FarSide&) -> std::vector<Bytes> {
         return {far_packet(Opcode::far_send_imm, 1, false, part(data, 0, 1000),
                            wire::FarSequence{0}, wire::FarOffset{0}, wire::ImmDt{1})};
       }},
      {"two sequences", kInvalid, kRequestError,
       [&](FarSide& s) -> std::vector<Bytes> {
         return {s.send(1, 0, data, 0, 1000), s.send(1, 1, data, 1000, 2000)};
       }},
      {"a key to invalidate that is none", kAccess, kAccessError,
       [&](FarSide&) -> std::vector<Bytes> {
         return {far_packet(Opcode::far_send_invalidate, 1, true, part(data, 0, 100),
                            wire::FarSequence{0}, wire::FarOffset{0}, wire::Ieth{MemoryKey(77)})};
       }},
      {"READ of an unknown key", kAccess, kAccessError,
       [&](FarSide& s) -> std::vector<Bytes> {
         return {far_packet(Opcode::far_read_request, 1, true, {},
                            wire::Reth{s.a.address(0), MemoryKey(9), 100})};
       }},
      {"READ too long", kInvalid, kRequestError,
       [&](FarSide& s) -> std::vector<Bytes> {
         return {far_packet(Opcode::far_read_request, 1, true, {},
                            wire::Reth{s.a.address(0), s.a.key(), 0x8000'0001u})};
       }},
      {"two READs of one number", kInvalid, kRequestError,
       [&](FarSide& s) -> std::vector<Bytes> {
         return {s.read(1, 0, 100), s.read(1, 0, 101)};
       }},
      {"atomic not aligned", kInvalid, kRequestError,
       [&](FarSide& s) -> std::vector<Bytes> { return {s.fetch_add(1, 4, 1)}; }},
      {"atomic of an unknown key", kAccess, kAccessError,
       [&](FarSide& s) -> std::vector<Bytes> {
         return {far_packet(Opcode::far_fetch_add, 1, true, {},
                            wire::AtomicEth{s.a.address(0), MemoryKey(9), 1, 0})};
       }},
  };
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.name);
    FarSide side;
    side.a.receive(500'000, 4096);
    for (const Bytes& packet : refusal.packets(side)) EXPECT_EQ(side.take(packet), kTaken);
    EXPECT_EQ(side.take(side.fetch_add(2, 512 * 1024, 1)), kTaken);
    EXPECT_FALSE(side.far.failed());
    EXPECT_EQ(side.far.told().status, FarStatus::ok);
    EXPECT_EQ(side.far.executed(), 0u);
    EXPECT_EQ(side.take(side.write(0, 600'000, data, 0, 3000)), kTaken);
    EXPECT_TRUE(side.holds(600'000, data, 0, 3000));
    EXPECT_TRUE(side.refused(refusal.code));
    EXPECT_EQ(side.far.failure_event(), refusal.event);
    EXPECT_EQ(side.far.executed(), 1u);
    EXPECT_EQ(side.a.word(512 * 1024), 0u);  // nothing after it
    EXPECT_EQ(side.take(side.write(1, 700'000, data, 0, 2000)), kTaken);
    EXPECT_EQ(side.take(side.write(3, 700'000, data, 0, 2000)), kTaken);
    EXPECT_TRUE(side.zero(700'000, 3000));
    EXPECT_EQ(side.far.executed(), 1u);
    side.far.flush();
    EXPECT_EQ(Side::summary(side.a.receives()), "1 work request flushed");
    EXPECT_TRUE(side.refused(refusal.code));
  }
}

TEST(FarRefusing, RightsOfTheQp) {
  const Bytes data = random_bytes(64, 1);
  const struct {
    uint32_t missing;
    std::function<Bytes(FarSide&)> packet;
  } cases[] = {
      {model::kRemoteWrite, [&](FarSide& s) { return s.write(0, 0, data, 0, 64); }},
      {model::kRemoteRead, [&](FarSide& s) { return s.read(0, 0, 64); }},
      {model::kRemoteAtomic, [&](FarSide& s) { return s.fetch_add(0, 0, 1); }},
  };
  for (const auto& c : cases) {
    Options options;
    options.access = kAllAccess & ~c.missing;
    FarSide side(options);
    EXPECT_EQ(side.take(c.packet(side)), kTaken);
    EXPECT_TRUE(side.refused(NakCode::invalid_request));
    EXPECT_TRUE(side.zero(0, 64));
  }
  Options options;
  options.dest_rd_atomic = 0;
  FarSide side(options);
  EXPECT_EQ(side.take(side.read(0, 0, 64)), kTaken);
  EXPECT_TRUE(side.refused(NakCode::invalid_request));
}

TEST(FarRefusing, ASendLongerThanItsReceive) {
  for (const bool second_packet : {false, true}) {
    FarSide side;
    side.a.receive(0, 1500);
    side.a.receive(4096, 1500);
    const Bytes data = random_bytes(1501, 1);
    if (second_packet) {
      EXPECT_EQ(side.take(side.send(1, 1, data, 0, 1000)), kTaken);
    }
    const size_t begin = second_packet ? 1000 : 0;
    EXPECT_EQ(side.take(side.send(1, 1, data, begin, 1501)), kTaken);
    EXPECT_FALSE(side.far.failed());
    EXPECT_EQ(side.take(side.send(0, 0, data, 0, 1500)), kTaken);
    EXPECT_EQ(side.take(far_packet(Opcode::far_send, 0, true, {}, wire::FarSequence{0},
                                   wire::FarOffset{1500})),
              kTaken);
    EXPECT_TRUE(side.refused(NakCode::invalid_request));
    EXPECT_EQ(side.far.failure_event(), AsyncEventType::kDeviceFatal);
    EXPECT_EQ(Side::summary(side.a.receives()), "1 success, 2 local length error");
  }
}

TEST(FarRefusing, AReceiveWhoseMemoryCannotBeWritten) {
  FarSide side;
  model::ScatterGatherElement piece = side.a.sge(0, 100);
  piece.lkey = MemoryKey(5);
  model::ReceiveWorkRequest receive;
  receive.wr_id = 1;
  receive.sges = {&piece, 1};
  ASSERT_TRUE(side.a.qp->post_receive(receive).ok());
  EXPECT_EQ(side.take(side.send(0, 0, random_bytes(8, 1), 0, 8)), kTaken);
  EXPECT_TRUE(side.refused(NakCode::remote_operational_error));
  EXPECT_EQ(Side::summary(side.a.receives()), "1 local protection error");
}

TEST(FarRefusing, ACompletionQueueOverflows) {
  Options options;
  options.cq_depth = 2;
  FarSide side(options);
  for (int i = 0; i < 4; ++i) side.a.receive(0, 64);
  for (uint32_t m = 0; m < 3; ++m) {
    EXPECT_EQ(side.take(side.send(m, m, random_bytes(8, 1), 0, 8)), kTaken);
  }
  EXPECT_TRUE(side.refused(NakCode::remote_operational_error));
  EXPECT_EQ(side.far.failure_event(), AsyncEventType::kQpFatal);
  EXPECT_EQ(side.far.executed(), 2u);
}

// Pages of a valid region that are gone: a truncated file, an unmapped range.
class FarGoneMemory : public ::testing::Test {
 protected:
  FarGoneMemory() {
    install_fault_guard();
    pages = static_cast<std::byte*>(
        mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    region = side.a.table.register_region(1, pages, 8192, 0, kAllAccess).value();
    mprotect(pages + 4096, 4096, PROT_NONE);
  }
  ~FarGoneMemory() override { munmap(pages, 8192); }
  Bytes write(uint32_t message, size_t begin, size_t end, bool last) const {
    return far_packet(Opcode::far_write, message, last, part(data, begin, end),
                      wire::FarPlace{begin, key(), static_cast<uint32_t>(begin)});
  }
  MemoryKey key() const { return MemoryKey(region->key.load()); }

  FarSide side;
  Bytes data = random_bytes(8192, 1);
  std::byte* pages = nullptr;
  model::MemoryEntry* region = nullptr;
};

TEST_F(FarGoneMemory, OnePassWrite) {
  EXPECT_EQ(side.take(write(0, 0, 4000, false)), kTaken);
  EXPECT_EQ(side.take(write(0, 4000, 5000, false)), kTaken);
  EXPECT_TRUE(side.refused(NakCode::remote_operational_error));
  EXPECT_EQ(side.far.failure_event(), AsyncEventType::kQpFatal);
}
TEST_F(FarGoneMemory, ADamagedPacketRefusesNothing) {
  EXPECT_EQ(side.take(write(0, 0, 4000, false)), kTaken);
  Bytes packet = write(0, 4000, 5000, false);
  packet[100] ^= std::byte{1};
  EXPECT_EQ(side.take(packet), Verdict::kDamaged);
  EXPECT_FALSE(side.far.failed());
}
TEST_F(FarGoneMemory, OutOfOrderWrite) {
  EXPECT_EQ(side.take(write(0, 5000, 6000, false)), kTaken);
  EXPECT_TRUE(side.refused(NakCode::remote_operational_error));
}
TEST_F(FarGoneMemory, HeldWrite) {
  EXPECT_EQ(side.take(write(0, 4000, 8000, true)), kTaken);
  EXPECT_FALSE(side.far.failed());
  EXPECT_EQ(side.take(write(0, 0, 4000, false)), kTaken);
  EXPECT_TRUE(side.refused(NakCode::remote_operational_error));
}
TEST_F(FarGoneMemory, Atomic) {
  EXPECT_EQ(
      side.take(far_packet(Opcode::far_fetch_add, 0, true, {}, wire::AtomicEth{4096, key(), 1, 0})),
      kTaken);
  EXPECT_TRUE(side.refused(NakCode::remote_operational_error));
}
TEST_F(FarGoneMemory, Send) {
  model::ScatterGatherElement piece{0, 8192, key()};
  model::ReceiveWorkRequest receive;
  receive.wr_id = 1;
  receive.sges = {&piece, 1};
  ASSERT_TRUE(side.a.qp->post_receive(receive).ok());
  EXPECT_EQ(side.take(side.send(0, 0, data, 0, 4000)), kTaken);
  EXPECT_EQ(side.take(side.send(0, 0, data, 4000, 5000)), kTaken);
  EXPECT_TRUE(side.refused(NakCode::remote_operational_error));
  EXPECT_EQ(Side::summary(side.a.receives()), "1 local protection error");
}

TEST(FarRefusing, AKeyThatGoesWhileItsMessageArrives) {
  FarSide side;
  const Bytes data = random_bytes(3000, 1);
  EXPECT_EQ(side.take(side.write(0, 0, data, 0, 1000)), kTaken);
  const Bytes next = side.write(0, 0, data, 1000, 2000);
  ASSERT_TRUE(side.a.table.deregister(side.a.region).ok());
  EXPECT_EQ(side.take(next), kTaken);
  EXPECT_TRUE(side.refused(NakCode::remote_access_error));
  EXPECT_TRUE(side.zero(1000, 1000));
}

}  // namespace
}  // namespace farverbs::proto
