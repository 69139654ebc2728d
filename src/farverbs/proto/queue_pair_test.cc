// States, errors and events of a QP: what may be posted when, flushes, SQD, SRQ, full CQs, memory
// that goes away.
#include <sys/mman.h>

#include "farverbs/base/fault_guard.h"
#include "farverbs/proto/proto_testing.h"

namespace farverbs::proto {
namespace {

using namespace testing;
using model::AsyncEventType;

TEST(QueuePair, PostingObeysTheState) {
  Side a(1, {});
  Side b(2, {});
  const model::SendWorkRequest send = a.request(SendOpcode::kSend, 0, 8);
  model::ReceiveWorkRequest receive;
  const auto can_send = [&] { return a.qp->post_send(send).ok(); };
  const auto can_receive = [&] { return a.qp->post_receive(receive).ok(); };
  EXPECT_FALSE(can_receive());  // RESET
  EXPECT_FALSE(can_send());
  a.to_rtr(b);
  EXPECT_TRUE(can_receive());
  EXPECT_FALSE(can_send());
  const auto refused = a.qp->post_send(send);
  EXPECT_EQ(refused.error().code, EINVAL);
  EXPECT_NE(refused.error().message.find("RTR"), std::string::npos);
  a.to_rts();
  EXPECT_TRUE(can_send());
  a.to_state(QpState::kErr);
  EXPECT_TRUE(can_send());
  EXPECT_TRUE(can_receive());
}

TEST(QueuePair, ARefusedModifyChangesNothing) {
  Side a(1, {});
  model::QpAttributes attributes;
  attributes.state = QpState::kRts;
  attributes.qkey = 99;
  EXPECT_FALSE(
      a.qp->modify(a.now, attributes, model::kAttrState | model::kAttrQkey, a.limits).ok());
  EXPECT_EQ(a.state(), QpState::kReset);
  EXPECT_EQ(a.qp->qp().attributes.qkey, 0u);
}

TEST(QueuePair, ToErrorFlushesInOrder) {
  Scripted s;
  s.a.receive(0, 8);
  s.a.receive(0, 8);
  for (int i = 0; i < 3; ++i) s.a.write(0, 8, s.ghost, 0);
  s.a.poll();
  s.a.to_state(QpState::kErr);
  s.a.collect();
  EXPECT_EQ(Side::summary(s.a.sends()),
            "1 work request flushed, 2 work request flushed, 3 work request flushed");
  EXPECT_EQ(Side::summary(s.a.receives()), "1 work request flushed, 2 work request flushed");
  EXPECT_EQ(s.a.inflight, 0u);
  s.ack(102);
  EXPECT_EQ(s.a.sends().size(), 0u);
  EXPECT_EQ(s.a.poll().size(), 0u);
  EXPECT_TRUE(s.a.qp->next_timer().is_never());
}

TEST(QueuePair, ResetForgetsAllAndPurgesCompletions) {
  Link link;
  link.a.write(0, 8, link.b, 0);
  link.settle();
  link.a.write(0, 3000, link.b, 0);
  link.a.poll();
  EXPECT_EQ(link.a.send_cq.size(), 1u);
  link.a.to_state(QpState::kReset);
  link.a.collect();
  EXPECT_EQ(link.a.send_cq.size(), 0u);
  EXPECT_EQ(link.a.inflight, 0u);
  EXPECT_TRUE(link.a.qp->next_timer().is_never());
  // And again from the beginning, with other numbers.
  link.b.to_state(QpState::kReset);
  link.a.options.send_psn = link.b.options.receive_psn = 5000;
  link.a.connect(link.b);
  link.b.connect(link.a);
  link.a.fill(0, 3000, 8);
  link.a.write(0, 3000, link.b, 0);
  link.settle();
  EXPECT_EQ(link.a.sends().size(), 1u);
  EXPECT_EQ(std::memcmp(link.a.bytes(0), link.b.bytes(0), 3000), 0);
}

TEST(QueuePair, SqdFinishesWhatWasStartedAndTells) {
  Scripted s;
  s.a.write(0, 2000, s.ghost, 0);
  s.a.write(0, 8, s.ghost, 0);
  EXPECT_EQ(s.a.poll(3).size(), 3u);
  model::QpAttributes a = s.a.qp->qp().attributes;
  a.state = QpState::kSqd;
  a.enable_sqd_notify = true;
  s.a.modify(a, model::kAttrEnableSqdNotify);
  EXPECT_EQ(s.a.poll().size(), 5u);  // the rest of the first WRITE, nothing of the second
  EXPECT_FALSE(s.a.qp->wants_transmit());
  EXPECT_EQ(s.a.events.count(AsyncEventType::kSqDrained), 0u);
  s.ack(107);
  EXPECT_EQ(s.a.events.count(AsyncEventType::kSqDrained), 1u);
  EXPECT_EQ(Side::summary(s.a.sends()), "1 success");
  s.a.write(0, 8, s.ghost, 0);  // may be posted, does not start
  EXPECT_EQ(s.a.poll().size(), 0u);
  s.a.to_state(QpState::kRts);
  EXPECT_EQ(s.a.trace(), (Lines{"WRITE_ONLY 108 len 8", "WRITE_ONLY 109 len 8 A"}));
  EXPECT_EQ(s.a.events.count(AsyncEventType::kSqDrained), 1u);
}

TEST(QueuePair, SqdIsDrainedAtOnceWhenNothingRuns) {
  Scripted s;
  model::QpAttributes a = s.a.qp->qp().attributes;
  a.state = QpState::kSqd;
  a.enable_sqd_notify = true;
  s.a.modify(a, model::kAttrEnableSqdNotify);
  EXPECT_EQ(s.a.events.count(AsyncEventType::kSqDrained), 1u);
}

TEST(QueuePair, SqdStillAnswersThePeer) {
  Scripted s;
  s.a.to_state(QpState::kSqd);
  const Bytes payload(8);
  s.say(packet(s.a, Opcode::rc_write_only, 100, payload, wire::Reth{s.a.address(0), s.a.key(), 8}));
  EXPECT_EQ(s.a.trace(), Lines{"ACK 100 msn 1"});
}

TEST(QueuePair, SrqReceivesStayAndLastWqeReachedIsRaised) {
  Options options;
  options.srq = true;
  Scripted s(options);
  s.a.receive(0, 64);
  s.a.receive(0, 64);
  EXPECT_FALSE(s.a.qp->post_receive({}).ok());
  const Bytes payload(8);
  s.say(packet(s.a, Opcode::rc_send_only, 100, payload));
  EXPECT_EQ(Side::summary(s.a.receives()), "1 success");
  const auto packets = s.a.poll();  // no credits: others may take them
  EXPECT_EQ(wire::Syndrome((*wire::parse(packets[0])).aeth().syndrome).value(), wire::kNoCredit);
  s.a.to_state(QpState::kErr);
  EXPECT_EQ(s.a.receives().size(), 0u);
  EXPECT_EQ(s.a.srq.count(), 1u);
  EXPECT_EQ(s.a.events.count(AsyncEventType::kLastWqeReached), 1u);
}

TEST(QueuePair, TheReceiveInUseIsFlushedEvenFromAnSrq) {
  Options options;
  options.srq = true;
  Scripted s(options);
  s.a.receive(0, 600);
  const Bytes payload(256);
  s.say(packet(s.a, Opcode::rc_send_first, 100, payload));
  s.a.to_state(QpState::kErr);
  EXPECT_EQ(Side::summary(s.a.receives()), "1 work request flushed");
}

TEST(QueuePair, AFullSendCqTakesTheQpToError) {
  Options options;
  options.cq_depth = 2;
  Scripted s(options);
  for (int i = 0; i < 4; ++i) s.a.write(0, 8, s.ghost, 0);
  s.a.poll();
  s.ack(103);
  EXPECT_EQ(s.a.state(), QpState::kErr);
  EXPECT_EQ(s.a.events.count(AsyncEventType::kCqError), 1u);
  EXPECT_EQ(s.a.events.count(AsyncEventType::kQpFatal), 1u);
}

TEST(QueuePair, AFullReceiveCqTakesTheQpToError) {
  Options options;
  options.cq_depth = 2;
  Scripted s(options);
  const Bytes payload(8);
  for (uint32_t i = 0; i < 3; ++i) {
    s.a.receive(0, 8);
    s.say(packet(s.a, Opcode::rc_send_only, 100 + i, payload));
  }
  EXPECT_EQ(s.a.state(), QpState::kErr);
  EXPECT_EQ(s.a.trace().back().substr(0, 4), "NAK3");
}

TEST(QueuePair, LocalFailureIsFatal) {
  Scripted s;
  s.a.write(0, 8, s.ghost, 0);
  s.a.poll();
  s.a.qp->fail(s.a.now);
  EXPECT_EQ(s.a.state(), QpState::kErr);
  EXPECT_EQ(Side::summary(s.a.sends()), "1 work request flushed");
  EXPECT_EQ(s.a.events.count(AsyncEventType::kQpFatal), 1u);
}

TEST(QueuePair, AResponderErrorEndsBothSides) {
  Link link;
  link.a.one_sided(SendOpcode::kWrite, 0, 8, link.b.address(0), MemoryKey(3));
  link.a.write(0, 8, link.b, 0);
  link.settle();
  EXPECT_EQ(Side::summary(link.a.sends()), "1 remote access error, 2 work request flushed");
  EXPECT_EQ(link.b.state(), QpState::kErr);
  EXPECT_EQ(link.b.events.count(AsyncEventType::kQpAccessError), 1u);
}

TEST(QueuePair, ARefusalWaitsForTheReadsBeforeIt) {
  Link link;
  link.b.fill(0, 3000, 1);
  link.a.read(0, 3000, link.b, 0);
  link.a.one_sided(SendOpcode::kWrite, 0, 8, link.b.address(0), MemoryKey(3));
  link.settle();
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success, 2 remote access error");
  EXPECT_EQ(std::memcmp(link.a.bytes(0), link.b.bytes(0), 3000), 0);
}

// A page that is registered and then unmapped: every way to touch it must end in a completion.
class GoneMemory : public ::testing::Test {
 protected:
  GoneMemory() {
    install_fault_guard();
    page = static_cast<std::byte*>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  ~GoneMemory() override { munmap(page, 4096); }
  MemoryKey register_at(Side& side) {
    const auto entry =
        side.table.register_region(1, page, 4096, reinterpret_cast<uint64_t>(page), kAllAccess);
    return MemoryKey(entry.value()->key.load());
  }
  void take_away() { mprotect(page, 4096, PROT_NONE); }
  uint64_t address() const { return reinterpret_cast<uint64_t>(page); }

  Link link;
  std::byte* page;
};

TEST_F(GoneMemory, AsSourceIsALocalProtectionError) {
  auto r = link.a.request(SendOpcode::kWrite, 0, 0);
  const model::ScatterGatherElement gone{address(), 1000, register_at(link.a)};
  r.sges = {&gone, 1};
  r.remote_address = link.b.address(0);
  r.remote_key = link.b.key();
  link.a.post(r);
  take_away();
  link.settle();
  EXPECT_EQ(Side::summary(link.a.sends()), "1 local protection error");
}

TEST_F(GoneMemory, AsTargetOfAWriteIsARemoteOperationError) {
  const MemoryKey key = register_at(link.b);
  take_away();
  link.a.one_sided(SendOpcode::kWrite, 0, 1000, address(), key);
  link.settle();
  EXPECT_EQ(Side::summary(link.a.sends()), "1 remote operation error");
  EXPECT_EQ(link.b.state(), QpState::kErr);
}

TEST_F(GoneMemory, AsSourceOfAReadIsARemoteOperationError) {
  const MemoryKey key = register_at(link.b);
  take_away();
  link.a.one_sided(SendOpcode::kRead, 0, 1000, address(), key);
  link.settle();
  EXPECT_EQ(Side::summary(link.a.sends()), "1 remote operation error");
}

TEST_F(GoneMemory, UnderAnAtomicIsARemoteOperationError) {
  const MemoryKey key = register_at(link.b);
  take_away();
  auto r = link.a.request(SendOpcode::kFetchAdd, 0, 8);
  r.remote_address = address();
  r.remote_key = key;
  link.a.post(r);
  link.settle();
  EXPECT_EQ(Side::summary(link.a.sends()), "1 remote operation error");
}

TEST_F(GoneMemory, AsTargetOfAReadIsALocalProtectionError) {
  auto r = link.a.request(SendOpcode::kRead, 0, 0);
  const model::ScatterGatherElement gone{address(), 1000, register_at(link.a)};
  r.sges = {&gone, 1};
  r.remote_address = link.b.address(0);
  r.remote_key = link.b.key();
  link.a.post(r);
  take_away();
  link.settle();
  EXPECT_EQ(Side::summary(link.a.sends()), "1 local protection error");
}

TEST_F(GoneMemory, AsReceiveBufferFailsBothSides) {
  const model::ScatterGatherElement gone{address(), 1000, register_at(link.b)};
  model::ReceiveWorkRequest r;
  r.wr_id = 5;
  r.sges = {&gone, 1};
  ASSERT_TRUE(link.b.qp->post_receive(r).ok());
  take_away();
  link.a.send(0, 600);
  link.settle();
  EXPECT_EQ(Side::summary(link.a.sends()), "1 remote operation error");
  EXPECT_EQ(Side::summary(link.b.receives()), "5 local protection error");
}

}  // namespace
}  // namespace farverbs::proto
