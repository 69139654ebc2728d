// Windows, allowances, AckReq, what feedback tells, and PSNs that wrap.
#include "farverbs/proto/proto_testing.h"
#include "farverbs/proto/request_packet.h"
#include "farverbs/proto/round_trips.h"

namespace farverbs::proto {
namespace {

using namespace testing;

constexpr size_t kPacket = 256 + 16;  // a full MIDDLE at this MTU

TEST(RcWindow, HoldsThousandsOfPackets) {
  Options options;
  options.memory_bytes = 4 << 20;
  options.config.ack_request_every_packets = 64;
  Scripted s(options);
  s.a.write(0, 2 << 20, s.ghost, 0);
  EXPECT_EQ(s.a.poll().size(), 8192u);
  EXPECT_EQ(s.a.sends().size(), 0u);
  s.ack(100 + 8191);
  EXPECT_EQ(s.a.sends().size(), 1u);
  EXPECT_EQ(s.a.inflight, 0u);
}

TEST(RcWindow, EndsAtTheConfiguredPacketsAndAsksThere) {
  Options options;
  options.config.max_window_packets = 4096;
  options.config.ack_request_every_packets = 1u << 20;
  options.memory_bytes = 4 << 20;
  Scripted s(options);
  s.a.write(0, 2 << 20, s.ghost, 0);
  const auto packets = s.a.poll();
  ASSERT_EQ(packets.size(), 4096u);
  EXPECT_EQ(describe(packets.back()), "WRITE_MIDDLE 4195 A");
  EXPECT_FALSE(s.a.qp->wants_transmit());
  s.ack(100);
  EXPECT_EQ(s.a.trace(), Lines{"WRITE_MIDDLE 4196 A"});
}

TEST(RcWindow, AnAckIsAskedForEverySoManyPackets) {
  Options options;
  options.config.ack_request_every_packets = 4;
  Scripted s(options);
  s.a.write(0, 256 * 10, s.ghost, 0);
  int asked = 0;
  for (const auto& line : s.a.trace()) asked += line.back() == 'A' ? 1 : 0;
  EXPECT_EQ(asked, 3);  // 4th, 8th, last
}

TEST(RcWindow, TheRequestAllowanceIsObeyedAndItsEndAsksForAnAck) {
  Scripted s;
  s.a.write(0, 256 * 10, s.ghost, 0);
  s.a.request_allowance = 2 * kPacket + 16 + 1;  // a packet may exceed what is left
  EXPECT_EQ(s.a.trace(),
            (Lines{"WRITE_FIRST 100 len 2560", "WRITE_MIDDLE 101", "WRITE_MIDDLE 102 A"}));
  EXPECT_EQ(s.a.last.status, TransmitStatus::kWindow);
  EXPECT_TRUE(s.a.qp->wants_transmit());
  EXPECT_EQ(s.a.inflight, 3 * kPacket + 16);
  s.a.request_allowance = 0;
  EXPECT_EQ(s.a.poll().size(), 0u);
  EXPECT_EQ(s.a.last.status, TransmitStatus::kWindow);
}

TEST(RcWindow, APacketMayExceedWhatIsLeft) {
  Scripted s;
  s.a.write(0, 256, s.ghost, 0);
  s.a.request_allowance = 1;
  EXPECT_EQ(s.a.poll().size(), 1u);
}

TEST(RcWindow, TheReadAllowanceShortensRequests) {
  Scripted s;
  s.a.read(0, 256 * 100, s.ghost, 0);
  s.a.read_allowance = 30 * kPacket + 5;
  EXPECT_EQ(s.a.trace(), Lines{"READ_REQUEST 100 len 7680 A"});
  EXPECT_EQ(s.a.last.status, TransmitStatus::kWindow);
  EXPECT_EQ(s.a.read_inflight, 30 * kPacket);
  s.a.read_allowance = 5 * kPacket;  // crumbs are not asked for while more is on its way
  EXPECT_EQ(s.a.poll().size(), 0u);
  EXPECT_EQ(s.a.last.status, TransmitStatus::kWindow);
  s.a.read_allowance = 20 * kPacket;
  EXPECT_EQ(s.a.trace(), Lines{"READ_REQUEST 130 len 5120 A"});
}

TEST(RcWindow, ReadsAreCutIntoWireRequests) {
  Options options;
  options.config.read_chunk_bytes = 4096;
  Scripted s(options);
  s.a.read(0, 10'000, s.ghost, 0);
  EXPECT_EQ(s.a.trace(), (Lines{"READ_REQUEST 100 len 4096 A", "READ_REQUEST 116 len 4096 A",
                                "READ_REQUEST 132 len 1808 A"}));
}

TEST(RcWindow, TheQuantumEndsATurnAndItsLastMessageAsks) {
  Scripted s;
  for (int i = 0; i < 6; ++i) s.a.write(0, 8, s.ghost, 0);
  EXPECT_EQ(describe(s.a.poll(3)),
            (Lines{"WRITE_ONLY 100 len 8", "WRITE_ONLY 101 len 8", "WRITE_ONLY 102 len 8 A"}));
  EXPECT_EQ(s.a.last.status, TransmitStatus::kQuantum);
}

// Every way for a turn to end: the peer answers only what it is asked to answer, there are no
// timers, and yet all must come to an end.
TEST(RcWindow, ProgressNeverWaitsForAnAckThatNobodyAskedFor) {
  Prng prng(7);
  for (int round = 0; round < 300; ++round) {
    Options options;
    options.timeout = 0;
    options.config.ack_request_every_packets = static_cast<uint32_t>(1 + prng.below(100));
    options.config.max_window_packets = static_cast<uint32_t>(1 + prng.below(50));
    options.config.ack_every_packets = 1u << 30;
    options.rd_atomic = options.dest_rd_atomic = static_cast<uint8_t>(1 + prng.below(3));
    Link link(options, options);
    const auto count = 1 + prng.below(30);
    uint64_t receives = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const auto length = static_cast<uint32_t>(prng.below(2000));
      const uint32_t flags = prng.chance(0.2) ? uint32_t{model::kFence} : 0u;
      switch (prng.below(4)) {
        case 0:
          link.a.write(0, length, link.b, 0, flags);
          break;
        case 1:
          link.a.read(8192, length, link.b, 8192, flags);
          break;
        case 2:
          link.a.fetch_add(16'384, 1, link.b, 16'384);
          break;
        default:
          link.a.send(0, length, flags);
          ++receives;
      }
    }
    uint64_t sends_done = 0;
    for (int i = 0; i < 5000 && sends_done < count; ++i) {
      // Receives are never missing, but credits run low all the time.
      if (receives > 0 && link.b.qp->qp().receive_queue.count() == 0) {
        link.b.receive(32'768, 2048);
        --receives;
      }
      link.a.request_allowance = prng.below(4) == 0 ? 1 << 20 : 1 + prng.below(2500);
      link.a.read_allowance = prng.below(4) == 0 ? 1 << 20 : 1 + prng.below(2500);
      auto packets = link.a.poll(static_cast<uint32_t>(1 + prng.below(10)));
      for (const Bytes& packet : packets) {
        link.b.arrive(packet, link.a.flow, 1);
        if (receives > 0 && link.b.qp->qp().receive_queue.count() == 0) {
          link.b.receive(32'768, 2048);
          --receives;
        }
      }
      link.cross(link.b, link.a);
      sends_done += link.a.sends().size();
    }
    ASSERT_EQ(sends_done, count) << "round " << round;
  }
}

TEST(RcWindow, RequesterPsnsWrap) {
  Options options;
  options.send_psn = 0xFFFFFE;
  options.receive_psn = 0xFFFFFE;
  Link link(options, options);
  link.a.fill(0, 2000, 4);
  link.a.write(0, 2000, link.b, 4096);
  const auto lines = describe(link.a.poll());
  EXPECT_EQ(lines[0], "WRITE_FIRST 16777214 len 2000");
  EXPECT_EQ(lines[2], "WRITE_MIDDLE 0");
  link.advance(Duration::seconds(1));
  link.a.fire_timer();
  link.settle();
  link.a.read(8192, 2000, link.b, 4096);
  link.settle();
  EXPECT_EQ(std::memcmp(link.a.bytes(0), link.a.bytes(8192), 2000), 0);
  EXPECT_EQ(link.a.sends().size(), 2u);
}

// More PSNs than there are numbers: the wrap happens several times in one stream.
TEST(RcWindow, ALongStreamWrapsAndKeepsItsOrder) {
  Options options;
  options.send_psn = options.receive_psn = 0xFFF000;
  options.memory_bytes = 4 << 20;
  Link link(options, options);
  for (int i = 0; i < 3; ++i) {
    link.a.write(0, 2 << 20, link.b, 0);
    link.settle(drop(1, 0x000100));
    link.run();
  }
  EXPECT_EQ(link.a.sends().size(), 3u);
  EXPECT_GT(link.a.counters().retransmitted_packets, 0u);
  EXPECT_EQ(link.a.inflight, 0u);
}

TEST(RcWindow, FeedbackTellsRoundTripsOfRequestsSentOnce) {
  Link link;
  link.step = Duration::microseconds(150);
  link.a.write(0, 8, link.b, 0);
  link.settle();
  ASSERT_EQ(link.a.rtts.size(), 1u);
  EXPECT_EQ(link.a.rtts[0].ns(), 300'000);
  // Sent twice: its acknowledgement says nothing.
  link.a.write(0, 8, link.b, 0);
  link.a.poll();
  link.a.fire_timer();
  link.b.now = link.a.now;
  link.settle();
  EXPECT_EQ(link.a.sends().size(), 2u);
  EXPECT_EQ(link.a.rtts.size(), 1u);
}

TEST(RcWindow, FeedbackAccountsForEveryByte) {
  Link link;
  link.b.receive(0, 4096);
  link.a.write(0, 3000, link.b, 0);
  link.a.send(0, 1000);
  link.a.fetch_add(4096, 1, link.b, 4096);
  link.a.read(8192, 3000, link.b, 0);
  link.run(drop(1, 105));
  EXPECT_EQ(link.a.inflight, 0u);
  EXPECT_EQ(link.a.read_inflight, 0u);
  EXPECT_GT(link.a.lost_bytes, 0u);
  EXPECT_EQ(link.a.sends().size(), 4u);
}

// A message of 2^31 bytes takes exactly half of the PSNs at the smallest MTU.
TEST(RcWindow, TheLongestMessage) {
  constexpr uint32_t kLongest = uint32_t{1} << 31;
  EXPECT_EQ(packets_for(kLongest, 256), uint64_t{1} << 23);
  model::SendWqe wqe{};
  wqe.opcode = SendOpcode::kWriteWithImmediate;
  wqe.length = kLongest;
  wqe.packet_count = 1u << 23;
  const RequestPacket last = plan_packet(wqe, (1u << 23) - 1, 256, wire::Service::rc);
  EXPECT_EQ(last.offset, kLongest - 256);
  EXPECT_EQ(last.length, 256u);
  EXPECT_EQ(last.opcode, Opcode::rc_write_last_imm);
  EXPECT_EQ(request_bytes(wqe, 0, 1u << 23, 256), (uint64_t{1} << 23) * kPacket + 16 + 4);
  EXPECT_EQ(response_bytes(kLongest, 0, 1u << 23, 256), (uint64_t{1} << 23) * kPacket);
}

// What flow control counts for a range of packets is the sum of their sizes.
TEST(RcWindow, BytesOfARangeAreTheSumOfItsPackets) {
  for (const auto opcode : {SendOpcode::kSend, SendOpcode::kSendWithImmediate, SendOpcode::kWrite,
                            SendOpcode::kWriteWithImmediate, SendOpcode::kSendWithInvalidate}) {
    for (const uint32_t length : {0u, 1u, 255u, 256u, 257u, 700u, 1024u}) {
      model::SendWqe wqe{};
      wqe.opcode = opcode;
      wqe.length = length;
      wqe.packet_count = static_cast<uint32_t>(packets_for(length, 256));
      for (uint32_t from = 0; from < wqe.packet_count; ++from) {
        uint64_t sum = 0;
        for (uint32_t to = from; to < wqe.packet_count; ++to) {
          sum += plan_packet(wqe, to, 256, wire::Service::rc).size;
          ASSERT_EQ(request_bytes(wqe, from, to + 1, 256), sum) << length;
        }
      }
    }
  }
}

TEST(RcWindow, HeadersSayMigratedAndTheDefaultPartition) {
  Scripted s;
  s.a.write(0, 8, s.ghost, 0);
  const Bytes bytes = s.a.poll()[0];
  const wire::Bth bth = (*wire::parse(bytes)).bth;
  EXPECT_TRUE(bth.migrated);
  EXPECT_EQ(bth.pkey, 0xFFFF);
  EXPECT_EQ(bth.version, 0);
  EXPECT_EQ(bth.dest_qp, s.ghost.qp->qp().qpn);
}

// However many packets ask for an acknowledgement, probes cover the whole round trip evenly.
TEST(RoundTrips, ProbesAreSpreadOverTheRoundTrip) {
  RoundTrips trips;
  trips.measured(Duration::milliseconds(160));
  RoundTrips::Probe probe{};
  std::vector<int64_t> sent_ms;
  for (int64_t ms = 0; ms < 160; ++ms) {
    trips.add({static_cast<PacketNumber>(ms), Time::from_ns(ms * 1'000'000), 0});
  }
  for (PacketNumber n = 1; n <= 160; ++n) {
    if (trips.take(n, probe)) sent_ms.push_back(probe.sent.ns() / 1'000'000);
  }
  ASSERT_EQ(sent_ms.size(), 16u);
  for (size_t i = 0; i < sent_ms.size(); ++i) EXPECT_EQ(sent_ms[i], static_cast<int64_t>(i) * 10);
}

TEST(RcWindow, ReadProbesTellTheReadFlightsCount) {
  Scripted s;
  s.a.read(0, 8, s.ghost, 0);
  std::vector<std::byte> storage(1000);
  wire::TxBurst burst;
  burst.reset(storage, 4);
  TransmitContext context;
  context.now = s.a.now;
  context.burst = &burst;
  context.icrc = &s.a.flow;
  context.request_allowance = context.read_allowance = 10'000;
  context.delivered_bytes = 5;
  context.read_delivered_bytes = 7;
  context.max_packets = 1;
  s.a.qp->poll_transmit(context);
  s.a.now = s.a.now + Duration::microseconds(30);
  const Bytes payload(8);
  const Bytes response = packet(s.a, Opcode::rc_read_response_only, 100, payload,
                                wire::Aeth{wire::Syndrome::ack().byte(), 1});
  const auto parsed = wire::parse(response);
  s.a.qp->on_packet(s.a.now, *parsed, {});
  Feedback told;
  EXPECT_TRUE(s.a.qp->take_feedback(told));
  EXPECT_TRUE(told.has_read_rtt);
  EXPECT_EQ(told.read_rtt.ns(), 30'000);
  EXPECT_EQ(told.read_probe_delivered, 7u);
}

TEST(RcWindow, WithoutEndToEndCreditsNoneAreGivenOrTaken) {
  Options options;
  options.config.end_to_end_credits = false;
  Scripted s(options);
  const Bytes payload(8);
  s.say(packet(s.a, Opcode::rc_write_only, 100, payload, wire::Reth{s.a.address(0), s.a.key(), 8}));
  const Bytes ack = s.a.poll()[0];
  EXPECT_EQ(wire::Syndrome((*wire::parse(ack)).aeth().syndrome).value(), wire::kNoCredit);
  s.a.write(0, 8, s.ghost, 0);
  s.a.poll();
  s.say(answer(s.a, wire::Syndrome::ack(wire::credit_code_for(0)), 100, 1));
  for (int i = 0; i < 5; ++i) s.a.send(0, 8);
  EXPECT_EQ(s.a.poll().size(), 5u);
}

TEST(RcWindow, IdleQpIsSmall) {
  Side a(1, {});
  Side b(2, {});
  a.connect(b);
  const auto footprint = a.qp->footprint();
  RecordProperty("bytes", static_cast<int>(footprint.total_bytes - footprint.ring_bytes));
  EXPECT_LE(footprint.total_bytes - footprint.ring_bytes, 1300u);
}

}  // namespace
}  // namespace farverbs::proto
