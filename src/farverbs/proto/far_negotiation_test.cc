// Ends that find out by their packets that both speak the far transport: docs/far-transport.md
// section 10, way 2.
#include "farverbs/proto/far_pair_testing.h"

namespace farverbs::proto {
namespace {

using namespace testing;

constexpr size_t kTarget = 100'000;

Options negotiating() {
  Options options;
  options.config.far_use = FarUse::kNegotiate;
  return options;
}
bool is_far(const Bytes& packet) { return (*wire::parse(packet)).has(wire::Extension::far_base); }
uint8_t reserved(const Bytes& packet) { return (*wire::parse(packet)).bth.reserved6; }

TEST(FarNegotiation, TheHelloIsEnough) {
  Link link(negotiating(), negotiating());
  EXPECT_FALSE(link.a.qp->far());
  const std::vector<Bytes> hello = link.a.poll();
  ASSERT_EQ(hello.size(), 1u);
  EXPECT_EQ(describe(hello[0]), "ACK 99 msn 0");
  EXPECT_EQ(reserved(hello[0]), 0x2D);
  link.b.arrive(hello[0], link.a.flow, 1);
  link.run();
  EXPECT_TRUE(link.a.qp->far());
  EXPECT_TRUE(link.b.qp->far());
  EXPECT_FALSE(link.a.qp->may_write_standard());
  link.a.fill(0, 5'000, 1);
  link.b.receive(kTarget + 10'000, 2'000);
  link.a.write(0, 5'000, link.b, kTarget);
  link.a.send(0, 2'000);
  link.a.read(200'000, 5'000, link.b, kTarget);
  size_t standard = 0;
  link.run([&](const Side&, Bytes& packet) {
    standard += !is_far(packet);
    return true;
  });
  EXPECT_EQ(standard, 0u);
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success, 2 success, 3 success");
  EXPECT_EQ(std::memcmp(link.a.bytes(0), link.a.bytes(200'000), 5'000), 0);
  EXPECT_EQ(link.a.inflight + link.b.inflight, 0u);
  EXPECT_EQ(link.a.lost_bytes, 0u);
}

TEST(FarNegotiation, APeerThatDoesNotStaysStandard) {
  for (const bool first : {false, true}) {
    Link link(first ? Options{} : negotiating(), first ? negotiating() : Options{});
    link.b.receive(kTarget, 2'000);
    link.a.write(0, 5'000, link.b, kTarget);
    link.a.send(0, 2'000);
    link.a.read(200'000, 5'000, link.b, kTarget);
    size_t far = 0;
    link.run([&](const Side&, Bytes& packet) {
      far += is_far(packet);
      return true;
    });
    EXPECT_EQ(far, 0u);
    EXPECT_FALSE(link.a.qp->far());
    EXPECT_FALSE(link.b.qp->far());
    EXPECT_EQ(Side::summary(link.a.sends()), "1 success, 2 success, 3 success");
    EXPECT_EQ(link.a.counters().retransmitted_packets, 0u);
  }
}

TEST(FarNegotiation, StandardByWishStaysStandard) {
  Side a(1, negotiating());
  EXPECT_FALSE(a.qp->use_standard().ok());  // not in INIT
  Options off;
  Link link(off, negotiating());
  // A packet of the far transport comes all the same.
  link.a.arrive(numbered(far_packet(Opcode::far_write, 0, true, Bytes(8, std::byte{1}),
                                    wire::FarPlace{link.a.address(0), link.a.key(), 0}),
                         FarScripted::kFirst),
                link.b.flow, 2);
  EXPECT_EQ(link.a.counters().dropped_packets, 1u);
  EXPECT_EQ(*link.a.bytes(0), std::byte{0});
}

// Hellos that get lost change nothing: the first requests are standard, the next ones far.
TEST(FarNegotiation, ALostHello) {
  Link link(negotiating(), negotiating());
  link.a.poll();
  link.b.poll();
  link.b.receive(kTarget + 10'000, 2'000);
  link.b.receive(kTarget + 20'000, 2'000);
  link.a.fill(0, 2'000, 3);
  link.a.send(0, 2'000);
  std::vector<Bytes> first = link.a.poll();
  EXPECT_FALSE(is_far(first[0]));
  for (const Bytes& packet : first) {
    EXPECT_EQ(reserved(packet), 0x2D);
    link.b.arrive(packet, link.a.flow, 1);
  }
  link.run();
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success");
  EXPECT_TRUE(link.a.qp->far());
  EXPECT_TRUE(link.b.qp->far());
  link.a.send(0, 1'000);
  link.run();
  EXPECT_EQ(Side::summary(link.a.sends()), "2 success");
  const auto received = link.b.receives();
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].byte_length, 2'000u);
  EXPECT_EQ(received[1].byte_length, 1'000u);
  EXPECT_EQ(std::memcmp(link.a.bytes(0), link.b.bytes(kTarget + 20'000), 1'000), 0);
}

// Servers of one-sided operations often stay in RTR: they answer, but have no number to begin with.
TEST(FarNegotiation, AnEndInRtrStaysStandardUntilItIsRts) {
  Link link(negotiating(), negotiating());
  for (Side* side : {&link.a, &link.b}) side->to_state(QpState::kReset);
  link.b.to_rtr(link.a);
  link.a.connect(link.b);
  link.a.read(200'000, 20'000, link.b, kTarget);
  link.a.write(0, 5'000, link.b, kTarget);
  size_t far = 0;
  link.run([&](const Side&, Bytes& packet) {
    far += is_far(packet);
    return true;
  });
  EXPECT_EQ(far, 0u);
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success, 2 success");
  link.b.to_rts();
  link.run();
  link.a.read(200'000, 20'000, link.b, kTarget);
  link.run([&](const Side&, Bytes& packet) {
    far += is_far(packet);
    return true;
  });
  EXPECT_GT(far, 0u);
  EXPECT_EQ(Side::summary(link.a.sends()), "3 success");
  EXPECT_EQ(std::memcmp(link.b.bytes(kTarget), link.a.bytes(200'000), 20'000), 0);
}

// Requests of every kind from both sides while packets get lost: each is done once, in order, and
// no byte stays in flight.
TEST(FarNegotiation, ChangesOverInTheMidstOfTraffic) {
  uint64_t far_begun_at = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Prng prng(seed);
    Options options = negotiating();
    options.config.ack_request_every_packets = 8;
    options.config.ack_every_packets = 8;
    Link link(options, options);
    if (seed % 2 == 0) {
      link.a.poll();
      link.b.poll();
    }
    std::array<uint64_t, 2> counted{};
    std::array<uint64_t, 2> requests{};
    for (int round = 0; round < 6; ++round) {
      for (Side* side : {&link.a, &link.b}) {
        Side& peer = side == &link.a ? link.b : link.a;
        const size_t me = side->number - 1;
        for (int i = 0; i < 4; ++i) {
          side->request_allowance = 2'000 + prng.below(20'000);
          const size_t base = 10'000 * (side->number - 1);
          switch (prng.below(4)) {
            case 0:
              side->write(base, 3'000, peer, kTarget + base);
              break;
            case 1:
              peer.receive(300'000 + base, 3'000);
              side->send(base, 1'500);
              break;
            case 2:
              side->read(400'000 + base, 3'000, peer, kTarget + base);
              break;
            default:
              side->fetch_add(500'000 + base, 1, peer, 600'000 + base);
              ++counted[me];
          }
          ++requests[me];
        }
      }
      for (int step = 0; step < 3; ++step) {
        link.cross(link.a, link.b, [&](const Side&, Bytes&) { return !prng.chance(0.1); });
        link.cross(link.b, link.a, [&](const Side&, Bytes&) { return !prng.chance(0.1); });
      }
    }
    link.a.request_allowance = link.b.request_allowance = uint64_t{1} << 40;
    link.run([&](const Side&, Bytes&) { return !prng.chance(0.1); }, 2'000);
    for (Side* side : {&link.a, &link.b}) {
      Side& peer = side == &link.a ? link.b : link.a;
      const size_t me = side->number - 1;
      const auto done = side->sends();
      ASSERT_EQ(done.size(), requests[me]);
      for (size_t i = 0; i < done.size(); ++i) {
        ASSERT_EQ(done[i].wr_id, i + 1);
        ASSERT_EQ(done[i].status, CompletionStatus::kSuccess);
      }
      EXPECT_EQ(peer.word(600'000 + 10'000 * me), counted[me]);
      EXPECT_TRUE(side->qp->far());
      EXPECT_EQ(side->inflight, 0u);
      EXPECT_EQ(side->read_inflight, 0u);
      far_begun_at += side->qp->far();
    }
  }
  EXPECT_EQ(far_begun_at, 120u);
}

// The network repeats late what was standard: its answer has arrived, or the requester would not
// have changed over.
TEST(FarNegotiation, StandardRequestsEndWithTheFirstFarOne) {
  Link link(negotiating(), negotiating());
  link.a.poll();
  link.b.poll();
  link.b.word(8'000) = 5;
  link.a.fetch_add(0, 1, link.b, 8'000);
  const std::vector<Bytes> request = link.a.poll();
  link.b.arrive(request[0], link.a.flow, 1);
  link.run();
  const size_t before = link.b.qp->footprint().total_bytes;
  link.a.write(0, 100, link.b, kTarget);
  link.run();
  EXPECT_TRUE(link.a.qp->far());
  EXPECT_LT(link.b.qp->footprint().total_bytes, before);  // what carried them out has gone
  link.b.arrive(request[0], link.a.flow, 1);
  link.b.arrive(packet(link.b, Opcode::rc_fetch_add, 101, {},
                       wire::AtomicEth{link.b.address(8'000), link.b.key(), 1, 0}),
                link.a.flow, 1);
  EXPECT_EQ(link.b.counters().duplicates_received, 2u);
  link.settle([&](const Side&, Bytes& packet) {
    EXPECT_TRUE(is_far(packet));
    return true;
  });
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success, 2 success");
  EXPECT_EQ(link.b.word(8'000), 6u);
}

// Offers that do not fit the connection are none: damaged, or with a number out of the blue.
TEST(FarNegotiation, ForgedOffers) {
  Link link(negotiating(), Options{});
  link.a.poll();
  const auto offer = [&](uint32_t psn) {
    Bytes bytes = answer(link.a, wire::Syndrome::ack(), psn);
    bytes[4] |= std::byte{0x2D};
    return bytes;
  };
  link.a.arrive(offer(200), link.b.flow, 2);
  link.a.arrive(offer(98), link.b.flow, 2);
  Bytes damaged = offer(99);
  damaged[14] ^= std::byte{1};
  link.a.arrive(damaged, link.b.flow, 2);
  EXPECT_FALSE(link.a.qp->far());
  link.a.arrive(offer(99), link.b.flow, 2);
  EXPECT_TRUE(link.a.qp->far());
}

TEST(FarNegotiation, BeginsAnewAfterReset) {
  Link link(negotiating(), negotiating());
  link.run();
  EXPECT_TRUE(link.a.qp->far());
  for (Side* side : {&link.a, &link.b}) {
    side->to_state(QpState::kReset);
    side->collect();
  }
  link.a.connect(link.b);
  link.b.connect(link.a);
  EXPECT_FALSE(link.a.qp->far());
  link.a.write(0, 5'000, link.b, kTarget);
  link.run();
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success");
  EXPECT_TRUE(link.b.qp->far());
}

}  // namespace
}  // namespace farverbs::proto
