// The peer's address changes, or somebody pretends that it does. docs/far-transport.md section 7.
#include "farverbs/proto/far_move.h"

#include "farverbs/proto/far_pair_testing.h"

namespace farverbs::proto {
namespace {

using namespace testing;

constexpr size_t kTarget = 100'000;
constexpr uint32_t kElsewhere = 9;

struct Moving : ::testing::Test {
  // What `from` has to say reaches `to` from another address.
  static size_t cross_from(uint32_t source, Side& from, Side& to) {
    const std::vector<Bytes> packets = from.poll();
    for (const Bytes& packet : packets) to.arrive(packet, from.flow, source);
    return packets.size();
  }
  // The challenges of `from` to endpoint(`asked`) reach `to`; how many.
  static size_t ask(Side& from, uint32_t asked, Side& to) {
    size_t delivered = 0;
    for (const auto& [where, packet] : from.asides) {
      if (where != endpoint(asked)) continue;
      to.arrive(packet, from.flow, from.number);
      ++delivered;
    }
    return delivered;
  }
  static size_t answer_from(uint32_t source, Side& from, Side& to) {
    const auto answers = std::exchange(from.asides, {});
    for (const auto& [where, packet] : answers) {
      EXPECT_EQ(where, endpoint(to.number));
      to.arrive(packet, from.flow, source);
    }
    return answers.size();
  }
  Endpoint home_of(const Side& side) const {
    const model::AddressVector& av = side.qp->qp().attributes.address_vector;
    return {IpAddress::from_gid(av.destination_gid), av.udp_port};
  }

  Link link{far_options(), far_options()};
  Side& a = link.a;
  Side& b = link.b;
};

// What says that it comes from a port that nobody is to answer to asks for nothing: data in runs
// and alone, and acknowledgements.
TEST_F(Moving, ASidePortIsNoMove) {
  a.write(0, 20'000, b, kTarget);
  link.settle();
  b.side_port = true;
  b.write(0, 20'000, a, kTarget);
  a.write(0, 20'000, b, kTarget);
  for (const Bytes& packet : a.poll()) b.arrive(packet, a.flow, a.number);
  ASSERT_GT(cross_from(kElsewhere, b, a), 16u);
  EXPECT_TRUE(a.asides.empty());
  link.settle();
  EXPECT_EQ(home_of(a), endpoint(b.number));
  EXPECT_EQ(std::memcmp(b.bytes(0), a.bytes(kTarget), 20'000), 0);
  b.side_port = false;
  b.write(0, 8, a, kTarget);
  cross_from(kElsewhere, b, a);
  EXPECT_FALSE(a.asides.empty());
}

TEST_F(Moving, WhoAnswersThereHasMovedThere) {
  a.write(0, 20'000, b, kTarget);
  link.settle();  // the round trip is known
  a.write(0, 20'000, b, kTarget);
  a.poll();  // on its way to the old address
  b.write(0, 5'000, a, kTarget);
  cross_from(kElsewhere, b, a);
  ASSERT_EQ(a.asides.size(), 2u);
  EXPECT_NE(a.asides[0].second, a.asides[1].second);
  ASSERT_EQ(ask(a, kElsewhere, b), 1u);
  ASSERT_EQ(answer_from(kElsewhere, b, a), 1u);
  // The old address has time to answer.
  EXPECT_EQ(home_of(a), endpoint(2));
  while (a.moves == 0) ASSERT_TRUE(a.fire_timer());
  EXPECT_EQ(home_of(a), endpoint(kElsewhere));
  EXPECT_EQ(a.inflight, 0u);
  EXPECT_EQ(a.lost_bytes, 0u);  // of the path nothing was learned
  link.advance(Duration::milliseconds(1));
  link.run([&](const Side& from, Bytes&) { return from.number != 0; });
  EXPECT_EQ(Side::summary(a.sends()), "1 success, 2 success");
  EXPECT_EQ(Side::summary(b.sends()), "1 success");
  EXPECT_EQ(a.moves, 1);
}

TEST_F(Moving, NobodyWaitsForAnAddressThatIsDarkAlready) {
  a.write(0, 20'000, b, kTarget);
  a.poll();
  while (a.counters().timeouts == 0) ASSERT_TRUE(a.fire_timer());
  a.poll();
  b.now = a.now;
  b.write(0, 5'000, a, kTarget);
  cross_from(kElsewhere, b, a);
  ASSERT_EQ(ask(a, kElsewhere, b), 1u);
  answer_from(kElsewhere, b, a);
  EXPECT_EQ(a.moves, 1);
  link.run();
  EXPECT_EQ(Side::summary(a.sends()), "1 success");
}

// Somebody copies packets and sends them from his own address; he even sees the challenge. But the
// peer answers where it is.
TEST_F(Moving, WhoStillAnswersAtTheOldAddressHasNotMoved) {
  b.write(0, 5'000, a, kTarget);
  cross_from(kElsewhere, b, a);
  const auto challenges = a.asides;
  ASSERT_EQ(ask(a, kElsewhere, b), 1u);
  answer_from(kElsewhere, b, a);
  a.asides = challenges;
  ASSERT_EQ(ask(a, 2, b), 1u);
  answer_from(2, b, a);
  a.asides.clear();
  link.run();
  EXPECT_EQ(a.moves, 0);
  EXPECT_EQ(home_of(a), endpoint(2));
  // He is not asked again soon.
  b.write(0, 5'000, a, kTarget);
  cross_from(kElsewhere, b, a);
  EXPECT_TRUE(a.asides.empty());
}

TEST_F(Moving, AnAddressThatDoesNotAnswerGetsLittleAndChangesNothing) {
  b.write(0, 100, a, kTarget);
  const std::vector<Bytes> packets = b.poll();
  ASSERT_EQ(packets.size(), 1u);
  a.arrive(packets[0], b.flow, kElsewhere);
  for (int i = 0; i < 20 && a.fire_timer(); ++i) a.poll();
  size_t there = 0;
  for (const auto& [where, packet] : a.asides) there += where == endpoint(kElsewhere);
  EXPECT_GE(there, 1u);
  EXPECT_LE(there * a.asides[0].second.size(), 3 * packets[0].size());
  EXPECT_EQ(a.moves, 0);
  EXPECT_EQ(home_of(a), endpoint(2));
  EXPECT_EQ(a.state(), QpState::kRts);
}

TEST_F(Moving, AGuessedTokenIsNoProof) {
  b.write(0, 100, a, kTarget);
  cross_from(kElsewhere, b, a);
  ASSERT_EQ(a.asides.size(), 2u);
  for (uint64_t guess : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
    a.arrive(far_packet(Opcode::far_path_response, 0, false, {}, wire::FarToken{guess}), b.flow,
             kElsewhere);
  }
  for (int i = 0; i < 20 && a.fire_timer(); ++i) a.poll();
  EXPECT_EQ(a.moves, 0);
}

TEST_F(Moving, OnlyPacketsBeyondAllBeforeTellOfAnAddress) {
  b.write(0, 3'000, a, kTarget);
  const std::vector<Bytes> packets = b.poll();
  ASSERT_EQ(packets.size(), 3u);
  a.arrive(packets[0], b.flow, 2);
  a.arrive(packets[2], b.flow, 2);
  a.arrive(packets[0], b.flow, kElsewhere);  // again
  a.arrive(packets[1], b.flow, kElsewhere);  // late
  EXPECT_TRUE(a.asides.empty());
  // Far ahead, damaged, from no address.
  const PacketNumber number = seen(packets[2]).number;
  const auto probe = [&](PacketNumber n) {
    return numbered(far_packet(Opcode::far_probe, 0, false, {}), n);
  };
  a.arrive(probe(number + (PacketNumber{1} << 30)), b.flow, kElsewhere);
  EXPECT_TRUE(a.asides.empty());
  Bytes damaged = probe(number + (PacketNumber{1} << 30) + 1);
  damaged.back() ^= std::byte{1};
  a.arrive(damaged, b.flow, kElsewhere);
  EXPECT_TRUE(a.asides.empty());
}

TEST_F(Moving, AnAcknowledgementOfSomethingNewTellsOfAnAddress) {
  a.write(0, 3'000, b, kTarget);
  link.cross(a, b);
  const std::vector<Bytes> acks = b.poll();
  ASSERT_FALSE(acks.empty());
  for (const Bytes& ack : acks) a.arrive(ack, b.flow, kElsewhere);
  EXPECT_EQ(a.asides.size(), 2u);
  a.asides.clear();
  for (const Bytes& ack : acks) a.arrive(ack, b.flow, 8);
  EXPECT_TRUE(a.asides.empty());
}

TEST_F(Moving, AnAddressThatNobodyCanHaveIsNotAsked) {
  FarMove move(SipKey{1, 2});
  const Duration patience = Duration::milliseconds(50);
  move.on_source(a.now, {IpAddress::v4(0), 4791}, endpoint(2), 1'000, patience);
  move.on_source(a.now, {IpAddress::v4(0xE0000001), 4791}, endpoint(2), 1'000, patience);
  move.on_source(a.now, {IpAddress::v4(0x0A000009), 0}, endpoint(2), 1'000, patience);
  EXPECT_FALSE(move.has_something());
  EXPECT_TRUE(move.next_timer().is_never());
}

TEST_F(Moving, EveryChallengeHasATokenOfItsOwn) {
  FarMove move(SipKey{1, 2});
  Time now = a.now;
  std::vector<uint64_t> tokens;
  for (int i = 0; i < 5; ++i) {
    move.on_source(now, endpoint(kElsewhere), endpoint(2), 1'000, Duration::milliseconds(50));
    while (const auto challenge = move.next_challenge(32)) tokens.push_back(challenge->token);
    move.on_response(now, tokens[tokens.size() - 2]);  // the old one
    now = now + Duration::seconds(6);
  }
  std::sort(tokens.begin(), tokens.end());
  EXPECT_EQ(tokens.size(), 10u);
  EXPECT_EQ(std::unique(tokens.begin(), tokens.end()), tokens.end());
}

// --- Keepalive

size_t probes(Side& side) {
  size_t n = 0;
  for (const Bytes& packet : side.poll()) n += seen(packet).opcode == Opcode::far_probe;
  return n;
}

TEST_F(Moving, AConnectionInUseIsKeptKnownForAMinute) {
  a.write(0, 100, b, kTarget);
  link.settle();
  const Time used = a.now;
  std::vector<int64_t> seconds;
  for (int i = 0; i < 20; ++i) {
    const Time at = std::min(a.qp->next_timer(), b.qp->next_timer());
    if (at.is_never()) break;
    link.advance(at - a.now);
    for (Side* side : {&a, &b}) {
      if (side->qp->next_timer() <= side->now) side->fire_timer();
    }
    const std::vector<Bytes> from_a = a.poll();
    for (const Bytes& packet : from_a) {
      b.arrive(packet, a.flow, 1);
      if (seen(packet).opcode != Opcode::far_probe) continue;
      seconds.push_back((a.now - used + Duration::milliseconds(500)).ns() / 1'000'000'000);
    }
    link.settle();
  }
  EXPECT_EQ(seconds, (std::vector<int64_t>{25, 50}));
  EXPECT_TRUE(a.qp->next_timer().is_never());
  EXPECT_TRUE(b.qp->next_timer().is_never());
}

TEST_F(Moving, AConnectionThatWasNeverUsedSaysNothing) {
  EXPECT_TRUE(a.qp->next_timer().is_never());
  EXPECT_FALSE(a.qp->wants_transmit());
}

// The sender may have lost this side's address.
TEST_F(Moving, WhoHasHalfAMessageAsksForTheRest) {
  a.write(0, 20'000, b, kTarget);
  const std::vector<Bytes> packets = a.poll();
  for (size_t i = 0; i < packets.size() / 2; ++i) b.arrive(packets[i], a.flow, 1);
  b.poll();
  const Time since = b.now;
  while (probes(b) == 0) ASSERT_TRUE(b.fire_timer());
  EXPECT_LE((b.now - since).ns(), Duration::milliseconds(1'100).ns());
  EXPECT_GE((b.now - since).ns(), Duration::milliseconds(900).ns());
}

}  // namespace
}  // namespace farverbs::proto
