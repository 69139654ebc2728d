// Two far QPs end to end: what the application sees, whatever becomes of packets.
// docs/far-transport.md sections 4 to 7.
#include <set>

#include "farverbs/proto/far_pair_testing.h"

namespace farverbs::proto {
namespace {

using namespace testing;

constexpr size_t kSource = 0;
constexpr size_t kTarget = 100'000;

// Three packets of WRITE, two of SEND, a READ of three, an atomic, and a last WRITE.
void post_exchange(Link& link) {
  link.a.fill(kSource, 20'000, 1);
  link.b.fill(kTarget + 50'000, 20'000, 2);
  link.b.word(8'000) = 41;
  link.b.receive(200'000, 4'000);
  link.a.write(kSource, 3'000, link.b, kTarget);
  link.a.send(3'000, 2'000);
  link.a.read(50'000, 3'500, link.b, kTarget + 50'000);
  link.a.fetch_add(60'000, 1, link.b, 8'000);
  link.a.write(6'000, 1'000, link.b, kTarget + 6'000);
}
void expect_exchanged(Link& link) {
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success, 2 success, 3 success, 4 success, 5 success");
  const auto received = link.b.receives();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].status, CompletionStatus::kSuccess);
  EXPECT_EQ(received[0].byte_length, 2'000u);
  const auto same = [&](size_t a, size_t b, size_t n) {
    return std::memcmp(link.a.bytes(a), link.b.bytes(b), n) == 0;
  };
  EXPECT_TRUE(same(kSource, kTarget, 3'000));
  EXPECT_TRUE(same(3'000, 200'000, 2'000));
  EXPECT_TRUE(same(50'000, kTarget + 50'000, 3'500));
  EXPECT_TRUE(same(6'000, kTarget + 6'000, 1'000));
  EXPECT_EQ(link.a.word(60'000), 41u);
  EXPECT_EQ(link.b.word(8'000), 42u);
}
void expect_silent(Side& side) {
  EXPECT_EQ(side.inflight, 0u);
  EXPECT_TRUE(side.idle());
  EXPECT_FALSE(side.qp->wants_transmit());
  EXPECT_FALSE(side.qp->wants_respond());
  EXPECT_FALSE(side.qp->ack_pending());
}

TEST(FarMachine, EveryKindOfRequest) {
  Link link(far_options(), far_options());
  EXPECT_TRUE(link.a.qp->far());
  post_exchange(link);
  link.run();
  expect_exchanged(link);
  expect_silent(link.a);
  expect_silent(link.b);
  EXPECT_EQ(link.a.counters().timeouts + link.b.counters().timeouts, 0u);
  EXPECT_EQ(link.a.counters().retransmitted_packets, 0u);
  EXPECT_EQ(link.a.lost_bytes, 0u);
}

TEST(FarMachine, ImmediateAndInvalidationArrive) {
  Link link(far_options(), far_options());
  link.b.receive(0, 4'000);
  link.b.receive(0, 4'000);
  auto write = link.a.request(SendOpcode::kWriteWithImmediate, 0, 3'000);
  write.remote_address = link.b.address(kTarget);
  write.remote_key = link.b.key();
  write.immediate = 77;
  link.a.post(write);
  auto send = link.a.request(SendOpcode::kSendWithImmediate, 0, 1'216);  // fits but for ImmDt
  send.immediate = 78;
  link.a.post(send);
  link.run();
  const auto received = link.b.receives();
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].immediate, 77u);
  EXPECT_EQ(received[0].byte_length, 3'000u);
  EXPECT_EQ(received[1].immediate, 78u);
  EXPECT_EQ(received[1].byte_length, 1'216u);
  expect_silent(link.a);
}

TEST(FarMachine, CountsOnlyContentAsPayload) {
  Link link(far_options(), far_options());
  link.a.probe_bytes = 1'472;
  post_exchange(link);
  link.run();
  EXPECT_EQ(link.a.probe_arrived, 1'472u);
  EXPECT_EQ(link.a.counters().sent_payload_bytes, 6'000u);
  EXPECT_EQ(link.b.counters().sent_payload_bytes, 3'500u);
}

// Every packet of the exchange in turn is lost once.
TEST(FarMachine, AnySinglePacketMayBeLost) {
  size_t count = 0;
  size_t without_timeout = 0;
  for (size_t lost = 0; lost == 0 || lost < count; ++lost) {
    SCOPED_TRACE("packet " + std::to_string(lost) + " is lost");
    Link link(far_options(), far_options());
    post_exchange(link);
    size_t at = 0;
    uint32_t loser = 0;
    bool a_later_one_arrived = false;
    link.run([&](const Side& from, Bytes& packet) {
      const FarSeen s = seen(packet);
      if (at++ == lost) {
        if (s.numbered()) loser = from.number;
        return false;
      }
      if (from.number == loser && s.numbered() && from.counters().timeouts == 0) {
        a_later_one_arrived = true;
      }
      return true;
    });
    count = std::max(count, at);
    expect_exchanged(link);
    expect_silent(link.a);
    expect_silent(link.b);
    const uint64_t timeouts = link.a.counters().timeouts + link.b.counters().timeouts;
    if (a_later_one_arrived) {
      ++without_timeout;
      EXPECT_EQ(timeouts, 0u);
    } else {
      EXPECT_LE(timeouts, 1u);  // the tail
    }
  }
  EXPECT_GT(count, 12u);
  EXPECT_GE(without_timeout, 8u);
}

TEST(FarMachine, AnyTwoPacketsMayBeLost) {
  for (size_t first = 0; first < 16; ++first) {
    for (size_t second = first + 1; second < 24; ++second) {
      SCOPED_TRACE(std::to_string(first) + " and " + std::to_string(second));
      Link link(far_options(), far_options());
      post_exchange(link);
      size_t at = 0;
      link.run([&](const Side&, Bytes&) {
        ++at;
        return at - 1 != first && at - 1 != second;
      });
      expect_exchanged(link);
    }
  }
}

TEST(FarMachine, EveryPacketTwiceAndBackToFront) {
  Link link(far_options(), far_options());
  post_exchange(link);
  for (int i = 0; i < 400 && link.a.qp->qp().send_queue.head() < 5; ++i) {
    for (Side* from : {&link.a, &link.b}) {
      Side& to = from == &link.a ? link.b : link.a;
      std::vector<Bytes> packets = from->poll();
      link.advance(Duration::microseconds(10));
      std::reverse(packets.begin(), packets.end());
      for (int twice = 0; twice < 2; ++twice) {
        for (const Bytes& packet : packets) to.arrive(packet, from->flow, from->number);
      }
    }
    const Time at = std::min(link.a.qp->next_timer(), link.b.qp->next_timer());
    if (!at.is_never() && at > link.a.now) link.advance(at - link.a.now);
    for (Side* side : {&link.a, &link.b}) {
      if (side->qp->next_timer() <= side->now) side->fire_timer();
    }
  }
  expect_exchanged(link);
  EXPECT_GT(link.b.counters().duplicates_received, 0u);
}

TEST(FarMachine, WhatIsSentAgainMayBeLostAgain) {
  Link link(far_options(), far_options());
  link.step = Duration::milliseconds(5);
  link.a.fill(kSource, 200'000, 3);
  link.a.write(kSource, 200'000, link.b, kTarget);
  // Bytes 24,240 to 25,452 are lost five times.
  int times = 0;
  link.run([&](const Side& from, Bytes& packet) {
    if (from.number != 1 || (*wire::parse(packet)).opcode() != Opcode::far_write) return true;
    return (*wire::parse(packet)).far_place().offset != 24'240 || ++times > 5;
  });
  EXPECT_EQ(times, 6);
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success");
  EXPECT_EQ(std::memcmp(link.a.bytes(kSource), link.b.bytes(kTarget), 200'000), 0);
  expect_silent(link.a);
}

TEST(FarMachine, TheResponderRepairsReadResponses) {
  Link link(far_options(), far_options());
  link.b.fill(0, 100'000, 4);
  link.a.read(kTarget, 100'000, link.b, 0);
  size_t at = 0;
  size_t requests = 0;
  link.run([&](const Side&, Bytes& packet) {
    const FarSeen s = seen(packet);
    requests += s.opcode == Opcode::far_read_request;
    return s.opcode != Opcode::far_read_response || at++ % 10 != 3;
  });
  EXPECT_EQ(requests, 1u);
  EXPECT_GE(link.b.counters().retransmitted_packets, 8u);
  EXPECT_LE(link.b.counters().retransmitted_packets, 10u);
  EXPECT_EQ(link.a.counters().retransmitted_packets, 0u);
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success");
  EXPECT_EQ(std::memcmp(link.b.bytes(0), link.a.bytes(kTarget), 100'000), 0);
  expect_silent(link.b);
}

TEST(FarMachine, AReplyAndTheAcknowledgementOfWhatItAnswersShareADatagram) {
  for (const uint32_t length : {64u, 1'150u}) {
    Link link(far_options(), far_options());
    link.b.receive(kTarget, 64);
    link.a.receive(kTarget, length);
    link.a.send(0, 64);
    for (const Bytes& packet : link.a.poll()) link.b.arrive(packet, link.a.flow, 1);
    link.b.defer_acks = link.b.join_acks = true;
    link.b.datagram_bytes = 1'200;
    EXPECT_TRUE(link.b.poll().empty());
    link.b.send(0, length);
    const std::vector<Bytes> packets = link.b.poll();
    ASSERT_EQ(packets.size(), 2u);
    const bool room = length < 1'100;
    EXPECT_EQ(link.b.datagrams, room ? 1u : 2u);
    EXPECT_EQ(seen(packets[room ? 0 : 1]).opcode, Opcode::far_ack);
    EXPECT_EQ(seen(packets[room ? 1 : 0]).opcode, Opcode::far_send);
    for (const Bytes& packet : packets) link.a.arrive(packet, link.b.flow, 2);
    EXPECT_EQ(Side::summary(link.a.sends()), "1 success");
    EXPECT_EQ(link.a.receives().size(), 1u);
    EXPECT_EQ(std::memcmp(link.a.bytes(kTarget), link.b.bytes(0), length), 0);
  }
}

// What thousands of connections cost that have nothing to say.
TEST(FarMachine, IsSmallOnceItIsQuiet) {
  constexpr size_t kMost = 1'760;
  Link link(far_options(), far_options());
  const auto bytes = [](const Side& side) {
    const QueuePair::Footprint footprint = side.qp->footprint();
    return footprint.total_bytes - footprint.ring_bytes;
  };
  for (int i = 0; i < 3; ++i) {
    post_exchange(link);
    link.run();
    link.a.sends();
    link.b.receives();
    for (Side* side : {&link.a, &link.b}) {
      EXPECT_GT(bytes(*side), kMost);
      EXPECT_TRUE(side->qp->trim(side->now));
      EXPECT_GT(bytes(*side), kMost);
      EXPECT_FALSE(side->qp->trim(side->now + kQuiet));
      EXPECT_LE(bytes(*side), kMost);
    }
  }
  // What is on its way is not forgotten.
  link.a.write(0, 1'000, link.b, kTarget);
  EXPECT_EQ(link.a.poll().size(), 1u);
  EXPECT_TRUE(link.a.qp->trim(link.a.now + kQuiet));
  link.run();
  EXPECT_EQ(link.a.sends().size(), 1u);
}

TEST(FarMachine, TailLossIsRepairedByTheProbeTimeout) {
  Link link(far_options(), far_options());
  link.a.write(0, 100, link.b, kTarget);
  link.run();  // a round trip is known
  link.a.write(0, 100, link.b, kTarget);
  const Time begin = link.a.now;
  bool lost = false;
  link.run([&](const Side&, Bytes&) { return std::exchange(lost, true); });
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success, 2 success");
  EXPECT_EQ(link.a.counters().timeouts, 1u);
  EXPECT_LT(link.a.now - begin, Duration::milliseconds(10));
}

// --- Receives ---

TEST(FarMachine, AReceiveThatComesLateIsWaitedFor) {
  Link link(far_options(), far_options());
  link.a.fill(0, 2'000, 5);
  link.a.send(0, 2'000);
  link.settle();
  EXPECT_EQ(link.a.counters().rnr_naks_received, 1u);
  EXPECT_TRUE(link.a.sends().empty());
  link.b.receive(kTarget, 2'000);
  link.run();
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success");
  EXPECT_EQ(std::memcmp(link.a.bytes(0), link.b.bytes(kTarget), 2'000), 0);
  expect_silent(link.a);
  expect_silent(link.b);
}

TEST(FarMachine, CountsRnrRetries) {
  Options options = far_options();
  options.rnr_retry = 3;
  Link link(options, options);
  link.a.send(0, 100);
  link.run();
  EXPECT_EQ(Side::summary(link.a.sends()), "1 receiver-not-ready retries exceeded");
  EXPECT_EQ(link.a.counters().rnr_naks_received, 4u);
  EXPECT_EQ(link.a.state(), QpState::kErr);
  EXPECT_EQ(link.a.inflight, 0u);
}

// Acknowledgements of other packets repeat the status until what is sent again can have arrived;
// they are no retries.
TEST(FarMachine, ANotReadyPeerIsCountedOncePerRoundTrip) {
  constexpr PacketNumber kFirst = FarScripted::kFirst;
  Options options = far_options();
  options.rnr_retry = 1;
  FarScripted far(options);
  far.a.write(0, 100, far.ghost, kTarget);
  ASSERT_EQ(far.poll().size(), 1u);
  far.pass(Duration::milliseconds(40));
  far.answer({kFirst, 1, 1});
  EXPECT_EQ(Side::summary(far.a.sends()), "1 success");
  far.a.send(0, 100);
  far.a.write(0, 100, far.ghost, kTarget);
  far.a.write(0, 100, far.ghost, kTarget);
  ASSERT_EQ(far.poll().size(), 3u);
  FarAnswer not_ready{kFirst + 2, 1, 1, wire::FarStatus::not_ready, 1};
  not_ready.ranges = {{1, 1}};
  far.pass(Duration::milliseconds(40));
  far.answer(not_ready);
  EXPECT_EQ(far.a.counters().rnr_naks_received, 1u);
  far.pass(Duration::microseconds(20));
  far.a.fire_timer();
  ASSERT_EQ(far.poll().size(), 1u);  // the SEND again
  not_ready.greatest = kFirst + 3;
  not_ready.first = 2;
  far.pass(Duration::milliseconds(10));
  far.answer(not_ready);
  EXPECT_EQ(far.a.counters().rnr_naks_received, 1u);
  EXPECT_EQ(far.a.state(), QpState::kRts);
  far.pass(Duration::milliseconds(35));
  far.answer(not_ready);
  EXPECT_EQ(far.a.state(), QpState::kErr);
  EXPECT_EQ(
      Side::summary(far.a.sends()),
      "2 receiver-not-ready retries exceeded, 3 work request flushed, 4 work request flushed");
}

// --- Errors ---

struct Refusal {
  const char* name;
  CompletionStatus status;
  std::function<void(Link&)> post;
};

TEST(FarMachine, RefusedRequestsAreToldInOrder) {
  const Refusal refusals[] = {
      {"key", CompletionStatus::kRemoteAccessError,
       [](Link& l) {
         l.a.one_sided(SendOpcode::kWrite, 0, 3'000, l.b.address(kTarget), MemoryKey(0x123456));
       }},
      {"range", CompletionStatus::kRemoteAccessError,
       [](Link& l) {
         l.a.one_sided(SendOpcode::kWrite, 0, 3'000, l.b.address((1 << 20) - 100), l.b.key());
       }},
      {"read key", CompletionStatus::kRemoteAccessError,
       [](Link& l) {
         l.a.one_sided(SendOpcode::kRead, 0, 3'000, l.b.address(kTarget), MemoryKey(0x123456));
       }},
      {"atomic address", CompletionStatus::kRemoteInvalidRequest,
       [](Link& l) { l.a.fetch_add(0, 1, l.b, 4'001); }},
      {"length", CompletionStatus::kRemoteInvalidRequest, [](Link& l) { l.a.send(0, 4'000); }},
  };
  for (const Refusal& refusal : refusals) {
    for (const bool answer_lost : {false, true}) {
      SCOPED_TRACE(std::string(refusal.name) + (answer_lost ? ", first answer lost" : ""));
      Link link(far_options(), far_options());
      link.b.receive(kTarget + 10'000, 1'000);
      link.a.fill(0, 5'000, 6);
      link.a.write(0, 5'000, link.b, kTarget);
      refusal.post(link);
      link.a.write(0, 100, link.b, kTarget + 50'000);
      int answers = answer_lost ? 0 : 9;
      link.run([&](const Side& from, Bytes& packet) {
        if (from.number != 2 || seen(packet).opcode != Opcode::far_ack) return true;
        const bool refused = (*wire::parse(packet)).far_ack().status == 2;
        return !refused || answers++ > 0;
      });
      const auto done = link.a.sends();
      ASSERT_EQ(done.size(), 3u);
      EXPECT_EQ(done[0].status, CompletionStatus::kSuccess);
      EXPECT_EQ(done[1].status, refusal.status) << model::to_string(done[1].status);
      EXPECT_EQ(done[2].status, CompletionStatus::kWorkRequestFlushed);
      EXPECT_EQ(link.a.state(), QpState::kErr);
      EXPECT_EQ(link.b.state(), QpState::kErr);
      EXPECT_EQ(std::memcmp(link.a.bytes(0), link.b.bytes(kTarget), 5'000), 0);
      expect_silent(link.a);
      expect_silent(link.b);
    }
  }
}

TEST(FarMachine, RightsOfTheQpCount) {
  Options closed = far_options();
  closed.access = model::kLocalWrite | model::kRemoteRead;
  Link link(far_options(), closed);
  link.a.write(0, 100, link.b, kTarget);
  link.run();
  EXPECT_EQ(Side::summary(link.a.sends()), "1 remote invalid request");
}

// A request whose own memory is gone fails when those before it are done, and keeps nobody busy.
TEST(FarMachine, ALocalErrorWaitsForEarlierRequests) {
  Link link(far_options(), far_options());
  link.a.write(0, 100, link.b, kTarget);
  auto bad = link.a.request(SendOpcode::kWrite, 0, 3'000);
  link.a.one.lkey = MemoryKey(0x777);
  bad.remote_address = link.b.address(kTarget);
  bad.remote_key = link.b.key();
  link.a.post(bad);
  link.a.write(0, 100, link.b, kTarget);
  const std::vector<Bytes> first = link.a.poll();
  EXPECT_EQ(first.size(), 1u);
  EXPECT_FALSE(link.a.qp->wants_transmit());
  for (const Bytes& packet : first) link.b.arrive(packet, link.a.flow, 1);
  link.run();
  EXPECT_EQ(Side::summary(link.a.sends()),
            "1 success, 2 local protection error, 3 work request flushed");
  expect_silent(link.a);
}

// --- Order of requests ---

TEST(FarMachine, AFenceWaitsForReads) {
  Link link(far_options(), far_options());
  link.a.read(0, 100, link.b, kTarget);
  link.a.write(0, 100, link.b, kTarget + 1'000, model::kFence);
  EXPECT_EQ(link.a.poll().size(), 1u);
  Link other(far_options(), far_options());
  other.b.fill(kTarget, 100, 7);
  other.a.read(0, 100, other.b, kTarget);
  other.a.write(0, 100, other.b, kTarget + 1'000, model::kFence);
  other.run();
  EXPECT_EQ(Side::summary(other.a.sends()), "1 success, 2 success");
  EXPECT_EQ(std::memcmp(other.b.bytes(kTarget), other.b.bytes(kTarget + 1'000), 100), 0);
}

TEST(FarMachine, ALocalInvalidateWaitsForWhatCameBefore) {
  Link link(far_options(), far_options());
  auto region = link.a.table.register_region(1, link.a.bytes(500'000), 4'096,
                                             link.a.address(500'000), kAllAccess);
  ASSERT_TRUE(region.ok());
  link.a.write(0, 5'000, link.b, kTarget);
  auto invalidate = link.a.request(SendOpcode::kLocalInvalidate, 0, 0);
  invalidate.sges = {};
  invalidate.invalidate_key = MemoryKey(0x1234);  // no such key: fails, but in order
  link.a.post(invalidate);
  link.run();
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success, 2 local protection error");
}

TEST(FarMachine, SqdDrains) {
  Link link(far_options(), far_options());
  link.a.write(0, 5'000, link.b, kTarget);
  const auto packets = link.a.poll();
  auto attributes = link.a.qp->qp().attributes;
  attributes.state = QpState::kSqd;
  attributes.enable_sqd_notify = true;
  link.a.modify(attributes, model::kAttrEnableSqdNotify);
  link.a.write(0, 100, link.b, kTarget);
  EXPECT_EQ(link.a.events.count(model::AsyncEventType::kSqDrained), 0u);
  for (const Bytes& packet : packets) link.b.arrive(packet, link.a.flow, 1);
  link.run();
  EXPECT_EQ(link.a.events.count(model::AsyncEventType::kSqDrained), 1u);
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success");
  link.a.to_state(QpState::kRts);
  link.a.qp->on_work(link.a.now);
  link.run();
  EXPECT_EQ(Side::summary(link.a.sends()), "2 success");
}

TEST(FarMachine, ResetAndErrorReturnTheFlight) {
  for (const QpState to : {QpState::kReset, QpState::kErr}) {
    Link link(far_options(), far_options());
    link.a.write(0, 50'000, link.b, kTarget);
    link.a.read(100'000, 50'000, link.b, kTarget);
    link.cross(link.a, link.b);
    link.b.poll();  // READ responses leave, and are lost
    EXPECT_GT(link.a.inflight, 50'000u);
    EXPECT_GT(link.b.inflight, 50'000u);
    for (Side* side : {&link.a, &link.b}) {
      side->to_state(to);
      side->collect();
      EXPECT_GT(side->lost_bytes, 50'000u);
      expect_silent(*side);
    }
  }
}

TEST(FarMachine, BeginsAgainAfterReset) {
  Link link(far_options(), far_options());
  post_exchange(link);
  link.run();
  expect_exchanged(link);
  for (Side* side : {&link.a, &link.b}) side->to_state(QpState::kReset);
  link.a.posted = 0;
  link.a.connect(link.b);
  link.b.connect(link.a);
  post_exchange(link);
  link.run();
  expect_exchanged(link);
}

// --- Silence ---

TEST(FarMachine, GivesUpAfterLongSilence) {
  Link link(far_options(), far_options());
  link.step = Duration::milliseconds(20);
  link.a.write(0, 100, link.b, kTarget);
  link.run();
  link.advance(Duration::seconds(1'000));  // an idle hour is no silence
  link.a.write(0, 5'000, link.b, kTarget);
  const Time begin = link.a.now;
  link.run([](const Side&, Bytes&) { return false; });
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success, 2 transport retries exceeded");
  EXPECT_GE(link.a.now - begin, Duration::seconds(45));
  EXPECT_LE(link.a.now - begin, Duration::seconds(48));
  expect_silent(link.a);
}

TEST(FarMachine, NextDoorTheQpsTimeoutCounts) {
  Options options = far_options();
  options.timeout = 8;  // 1 ms
  Link link(options, options);
  link.a.write(0, 100, link.b, kTarget);
  link.run();
  link.a.write(0, 100, link.b, kTarget);
  const Time begin = link.a.now;
  link.run([](const Side&, Bytes&) { return false; });
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success, 2 transport retries exceeded");
  EXPECT_GE(link.a.now - begin, Duration::seconds(1));
  EXPECT_LE(link.a.now - begin, Duration::seconds(3));
}

TEST(FarMachine, OnTheSameHostTheQpsTimeoutCountsHoweverSlowItIs) {
  Options options = far_options();
  options.timeout = 8;  // 1 ms
  Link link(options, options);
  link.step = Duration::milliseconds(20);  // a busy processor, not a long line
  link.a.qp->qp().attributes.address_vector.destination_gid =
      IpAddress::parse("127.0.0.1")->to_gid();
  link.a.write(0, 100, link.b, kTarget);
  link.run();
  link.a.write(0, 100, link.b, kTarget);
  const Time begin = link.a.now;
  link.run([](const Side&, Bytes&) { return false; });
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success, 2 transport retries exceeded");
  EXPECT_LE(link.a.now - begin, Duration::seconds(5));
}

TEST(FarMachine, SurvivesThirtySecondsOfDarkness) {
  Link link(far_options(), far_options());
  link.step = Duration::milliseconds(20);
  post_exchange(link);
  link.run([begin = link.a.now](const Side& from, Bytes&) {
    const Duration since = from.now - begin;
    return since < Duration::milliseconds(30) || since > Duration::seconds(30);
  });
  expect_exchanged(link);
  EXPECT_LT(link.a.now - Time::from_ns(1'000'000'000), Duration::seconds(34));
  expect_silent(link.a);
  expect_silent(link.b);
}

// The requester's acknowledgements get lost for longer than the responder is patient.
// docs/far-transport.md section 6: a line that was dark for seconds is tried four times a second.
TEST(FarMachine, ALineThatWasDarkIsSoonFoundToBeBack) {
  Link link(far_options(), far_options());
  link.step = Duration::milliseconds(20);
  link.a.write(0, 8, link.b, kTarget);
  link.run();
  link.a.write(0, 8, link.b, kTarget);
  const Time begin = link.a.now;
  Time back;
  link.run(
      [&](const Side& from, Bytes&) {
        const bool light = from.now - begin > Duration::seconds(5);
        if (light && back == Time()) back = from.now;
        return light;
      },
      1'000);
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success, 2 success");
  EXPECT_GT(back - begin, Duration::seconds(5));
  EXPECT_LE(back - begin, Duration::milliseconds(5'300));
}

TEST(FarMachine, AResponderThatGaveUpGoesOnWhenItHearsFromItsPeer) {
  Link link(far_options(), far_options());
  link.step = Duration::milliseconds(20);
  link.b.fill(0, 5'000, 8);
  link.a.write(0, 8, link.b, 900'000);
  link.b.write(0, 8, link.a, 900'000);
  link.run();
  link.a.read(kTarget, 5'000, link.b, 0);
  const Time begin = link.a.now;
  const auto dark = [&](const Side& from, Bytes&) {
    return from.number != 2 || from.now - begin > Duration::seconds(60);
  };
  // Only the way from the responder is dark.
  link.a.qp->qp().attributes.timeout = 31;  // the requester is patient
  link.run(dark, 1'000);
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success, 2 success");
  EXPECT_EQ(std::memcmp(link.a.bytes(kTarget), link.b.bytes(0), 5'000), 0);
  // And its own requests have their full patience again.
  link.b.write(0, 8, link.a, 900'000);
  link.run();
  EXPECT_EQ(Side::summary(link.b.sends()), "1 success, 2 success");
}

// --- Path MTU ---

TEST(FarMachine, ALostMtuProbeIsNoLoss) {
  Link link(far_options(), far_options());
  link.a.probe_bytes = 1'472;
  link.a.write(0, 10'000, link.b, kTarget);
  link.run([](const Side&, Bytes& packet) { return packet.size() <= 1'252; });
  EXPECT_EQ(link.a.probes_lost, 1);
  EXPECT_EQ(link.a.lost_bytes, 0u);
  EXPECT_EQ(link.a.counters().retransmitted_packets, 0u);
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success");
  expect_silent(link.a);
}

// At the longest wait one timeout must not follow the other at once.
TEST(FarMachine, AProbeTimeoutIsOne) {
  Link link(far_options(), far_options());
  link.a.write(0, 100'000, link.b, kTarget);
  link.a.poll();
  for (uint64_t n = 1; n <= 12; ++n) {
    const Time at = link.a.now;
    ASSERT_TRUE(link.a.fire_timer());
    EXPECT_EQ(link.a.counters().timeouts, n);
    EXPECT_GT(link.a.now, at);
    EXPECT_GT(link.a.qp->next_timer(), link.a.now);
    link.a.poll();
  }
  EXPECT_GE(link.a.inflight, 70 * 1'252u) << "what may have arrived is not given up";
}

TEST(FarMachine, PacketsThatBecameTooLongAreCutAnew) {
  Link link(far_options(), far_options());
  link.a.datagram_bytes = 1'472;
  link.a.fill(0, 20'000, 9);
  link.a.write(0, 20'000, link.b, kTarget);
  link.run([&](const Side& from, Bytes& packet) {
    if (from.black_holes > 0) link.a.datagram_bytes = 1'252;
    return packet.size() <= 1'252;
  });
  EXPECT_EQ(link.a.black_holes, 1);
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success");
  EXPECT_EQ(std::memcmp(link.a.bytes(0), link.b.bytes(kTarget), 20'000), 0);
  expect_silent(link.a);
}

TEST(FarMachine, TellsOfCongestionMarks) {
  Link link(far_options(), far_options());
  link.a.write(0, 5'000, link.b, kTarget);
  for (const Bytes& bytes : link.a.poll()) {
    const auto parsed = wire::parse(bytes);
    PacketContext context;
    context.source = endpoint(1);
    context.traffic_class = 3;
    context.unchecked = &link.a.flow;
    link.b.qp->on_packet(link.b.now, *parsed, context);
  }
  link.run();
  EXPECT_EQ(link.a.marks, 5u);
}

}  // namespace
}  // namespace farverbs::proto
