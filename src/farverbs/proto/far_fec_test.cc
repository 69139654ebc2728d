// Forward error correction of the far transport: docs/far-transport.md section 8.
#include <map>
#include <set>

#include "farverbs/proto/far_pair_testing.h"
#include "farverbs/proto/far_protector.h"
#include "farverbs/proto/far_restorer.h"

namespace farverbs::proto {
namespace {

using namespace testing;

constexpr PacketNumber kFirst = (PacketNumber{1} << 32) + 5;
constexpr size_t kTarget = 100'000;

TEST(FarRepairs, AreAsManyAsTheLossAsksFor) {
  EXPECT_EQ(repairs_for(44, 0), 0u);
  EXPECT_EQ(repairs_for(0, 0.1), 0u);
  EXPECT_EQ(repairs_for(44, 0.01), 5u);
  EXPECT_GT(repairs_for(44, 0.05), 8u);
  EXPECT_LT(repairs_for(44, 0.05), 15u);
  EXPECT_EQ(repairs_for(1, 0.001), 1u);
  for (size_t n = 1; n < 64; ++n) EXPECT_LE(repairs_for(n, 0.02), repairs_for(n + 1, 0.02));
}

Bytes protected_packet(PacketNumber number, size_t payload) {
  const Bytes content = random_bytes(payload, number);
  Bytes packet =
      numbered(far_packet(Opcode::far_write, 7, false, content, wire::FarPlace{}), number);
  return changed(std::move(packet), [](Bytes& b) { b[14] |= std::byte{0x40}; });
}

struct Coding : ::testing::Test {
  Coding() { protector.count(99'000, 1'000); }
  // A block of `count` packets and its repairs.
  void make(size_t count) {
    packets.clear();
    for (size_t i = 0; i < count; ++i) {
      packets.push_back(protected_packet(kFirst + i, 1 + (i * 397) % 1'400));
      protector.add(kFirst + i, packets.back());
    }
    protector.close();
  }
  std::map<PacketNumber, Bytes> restore() {
    std::map<PacketNumber, Bytes> all;
    restorer.restore([&](PacketNumber number, std::span<const std::byte> packet) {
      all[number] = Bytes(packet.begin(), packet.end());
    });
    return all;
  }
  static Bytes without_icrc(const Bytes& packet) {
    return Bytes(packet.begin(), packet.end() - static_cast<long>(wire::kIcrcSize));
  }
  FarProtector protector;
  FarRestorer restorer;
  std::vector<Bytes> packets;
};

TEST_F(Coding, WhatIsMissingIsRestored) {
  Prng prng(3);
  PacketNumber repair_number = kFirst + 1'000;
  for (size_t count : {1u, 2u, 13u, 44u, 64u}) {
    restorer = FarRestorer{};
    make(count);
    std::vector<FarProtector::Repair> repairs;
    ASSERT_TRUE(protector.pending());
    const size_t many = protector.front().header.repairs;
    std::set<size_t> lost;
    while (lost.size() < std::min(count, many)) lost.insert(prng.below(count));
    repair_number = kFirst + count;
    for (size_t i = 0; i < count; ++i) {
      if (lost.count(i) == 0) restorer.keep(kFirst + i, packets[i]);
    }
    std::map<PacketNumber, Bytes> restored;
    for (; protector.pending(); protector.pop()) {
      EXPECT_TRUE(restored.empty() || lost.size() < many);
      const FarProtector::Repair repair = protector.front();
      ASSERT_TRUE(restorer.on_repair(repair_number++, repair.header, repair.symbol));
      if (restorer.has_work()) restored.merge(restore());
    }
    ASSERT_EQ(restored.size(), lost.size()) << count;
    for (size_t i : lost) {
      EXPECT_EQ(without_icrc(restored[kFirst + i]), without_icrc(packets[i]));
    }
  }
}

TEST_F(Coding, SymbolsMayComeFirst) {
  make(10);
  PacketNumber repair_number = kFirst + 10;
  for (; protector.pending(); protector.pop()) {
    const FarProtector::Repair repair = protector.front();
    restorer.on_repair(repair_number++, repair.header, repair.symbol);
  }
  std::map<PacketNumber, Bytes> restored;
  for (size_t i = 0; i < 9; ++i) {
    restorer.keep(kFirst + i, packets[i]);
    restored.merge(restore());
  }
  EXPECT_EQ(without_icrc(restored[kFirst + 9]), without_icrc(packets[9]));
}

TEST_F(Coding, ANumberThatWasSkippedEndsTheBlock) {
  protector.add(kFirst, protected_packet(kFirst, 100));
  protector.add(kFirst + 1, protected_packet(kFirst + 1, 100));
  protector.add(kFirst + 3, protected_packet(kFirst + 3, 100));
  ASSERT_TRUE(protector.pending());
  EXPECT_EQ(protector.front().header.count, 2);
  EXPECT_TRUE(protector.open());
  protector.close();
  std::vector<int> counts;
  for (; protector.pending(); protector.pop()) {
    if (protector.front().header.index == 0) counts.push_back(protector.front().header.count);
  }
  EXPECT_EQ(counts, (std::vector<int>{2, 1}));
}

TEST_F(Coding, TheOldestOfManyBlocksIsGivenUp) {
  for (size_t i = 0; i < 5; ++i) {
    protector.add(kFirst + i, protected_packet(kFirst + i, 100));
    protector.close();
  }
  EXPECT_EQ(protector.front().header.first_low, static_cast<uint32_t>(kFirst + 2));
}

TEST_F(Coding, NothingIsMadeWithoutLoss) {
  FarProtector calm;
  EXPECT_FALSE(calm.active());
  calm.count(10'000, 0);
  EXPECT_FALSE(calm.active());
  EXPECT_LT(calm.memory_bytes(), 1'000u);
  protector.count(2'000'000, 0);
  for (int i = 0; i < 20; ++i) protector.count(4'096, 0);
  EXPECT_FALSE(protector.active());
}

TEST_F(Coding, RepairsThatMakeNoSenseAreRefused) {
  Bytes symbol(1'000);
  wire::FarRepair header;
  header.first_low = static_cast<uint32_t>(kFirst);
  header.count = 10;
  header.repairs = 2;
  constexpr PacketNumber kNumber = kFirst + 100;
  EXPECT_TRUE(restorer.on_repair(kNumber, header, symbol));
  const auto refused = [&](auto&& change, size_t bytes = 1'000) {
    wire::FarRepair bad = header;
    change(bad);
    return !restorer.on_repair(kNumber, bad, Bytes(bytes));
  };
  EXPECT_TRUE(refused([](auto& h) { h.count = 0; }));
  EXPECT_TRUE(refused([](auto& h) { h.count = 129; }));
  EXPECT_TRUE(refused([](auto& h) { h.index = 2; }));
  EXPECT_TRUE(refused([](auto& h) { h.repairs = 200; }));
  EXPECT_TRUE(refused([](auto& h) { h.first_low += 95; }));       // ends behind the repair
  EXPECT_TRUE(refused([](auto& h) { h.first_low -= 100'000; }));  // long ago
  EXPECT_TRUE(refused([](auto&) {}, 10));
  EXPECT_TRUE(refused([](auto&) {}, 3'000));
  EXPECT_TRUE(refused([](auto&) {}, 1'001));  // another size than the first symbol's
}

TEST_F(Coding, MemoryIsBoundedWhateverComes) {
  Prng prng(11);
  size_t restored = 0;
  for (int i = 0; i < 20'000; ++i) {
    const PacketNumber number = kFirst + prng.below(5'000);
    if (prng.chance(0.5)) {
      restorer.keep(number, protected_packet(number, prng.below(1'400)));
    } else {
      wire::FarRepair header;
      header.first_low = static_cast<uint32_t>(number - prng.below(300));
      header.count = static_cast<uint8_t>(prng.next());
      header.index = static_cast<uint8_t>(prng.below(32));
      header.repairs = 32;
      restorer.on_repair(number, header, random_bytes(30 + prng.below(2'000), prng.next()));
    }
    restored += restore().size();
  }
  EXPECT_LE(restorer.memory_bytes(), size_t{1} << 20);
}

// --- Whole machines

Options repairing() {
  Options options = far_options();
  options.config.far_repairs = FarRepairs::kAll;
  return options;
}

// Both ends know of loss from here on.
void lose_some(Link& link) {
  int n = 0;
  for (int i = 0; i < 4; ++i) {
    link.a.write(0, 60'000, link.b, kTarget);
    link.run([&](const Side& from, Bytes&) { return from.number != 1 || ++n % 40 != 0; });
  }
  EXPECT_EQ(link.a.sends().size(), 4u);
}

TEST(FarRepairing, ALostPacketIsNotSentAgain) {
  Link link(repairing(), repairing());
  lose_some(link);
  link.a.fill(0, 60'000, 5);
  const uint64_t again = link.a.counters().retransmitted_packets;
  const uint64_t lost = link.a.lost_bytes;
  const uint64_t restored = link.b.counters().restored_packets;
  const uint64_t told = link.a.restored_packets;
  int n = 0;
  link.a.write(0, 60'000, link.b, kTarget);
  link.settle([&](const Side& from, Bytes& packet) {
    const bool data = seen(packet).opcode == Opcode::far_write;
    return from.number != 1 || !data || (++n != 7 && n != 20);
  });
  EXPECT_EQ(link.b.counters().restored_packets, restored + 2);
  EXPECT_EQ(Side::summary(link.a.sends()), "5 success");
  EXPECT_EQ(link.a.counters().retransmitted_packets, again);
  EXPECT_EQ(link.a.lost_bytes, lost);
  EXPECT_EQ(link.a.restored_packets, told + 2);  // the controller hears of them
  EXPECT_EQ(std::memcmp(link.a.bytes(0), link.b.bytes(kTarget), 60'000), 0);
  EXPECT_FALSE(link.a.qp->wants_transmit());
}

TEST(FarRepairing, EveryKindOfPacketIsRestored) {
  Link link(repairing(), repairing());
  lose_some(link);
  link.a.fill(0, 30'000, 6);
  link.b.fill(300'000, 30'000, 7);
  link.b.receive(200'000, 20'000);
  const uint64_t before = link.b.counters().restored_packets;
  link.a.send(0, 20'000);
  link.a.read(400'000, 30'000, link.b, 300'000);
  link.a.fetch_add(50'000, 5, link.b, 600'000);
  std::map<Opcode, int> counts;
  link.run([&](const Side& from, Bytes& packet) {
    const Opcode opcode = seen(packet).opcode;
    const bool data = opcode != Opcode::far_ack && opcode != Opcode::far_repair;
    return from.number != 1 || !data || ++counts[opcode] != 1;
  });
  EXPECT_EQ(link.b.counters().restored_packets, before + 3);
  EXPECT_EQ(Side::summary(link.a.sends()), "5 success, 6 success, 7 success");
  EXPECT_EQ(std::memcmp(link.a.bytes(0), link.b.bytes(200'000), 20'000), 0);
  EXPECT_EQ(std::memcmp(link.a.bytes(400'000), link.b.bytes(300'000), 30'000), 0);
  EXPECT_EQ(link.b.word(600'000), 5u);
}

TEST(FarRepairing, NobodyRepairsForWhoDoesNotRestore) {
  Options off = far_options();
  off.config.far_repairs = FarRepairs::kOff;
  Link link(repairing(), off);
  lose_some(link);
  link.a.write(0, 60'000, link.b, kTarget);
  size_t repairs = 0;
  link.run([&](const Side&, Bytes& packet) {
    repairs += seen(packet).opcode == Opcode::far_repair;
    return true;
  });
  EXPECT_EQ(repairs, 0u);
}

TEST(FarRepairing, RandomRepairsHarmNobody) {
  FarScripted far(repairing());
  Prng prng(5);
  for (int i = 0; i < 3'000; ++i) {
    wire::FarRepair header;
    const PacketNumber number = kFirst + 95 + prng.below(400);
    header.first_low = static_cast<uint32_t>(number - prng.below(130));
    header.count = static_cast<uint8_t>(1 + prng.below(4));
    header.index = static_cast<uint8_t>(prng.below(6));
    header.repairs = 6;
    far.say(numbered(far_packet(Opcode::far_repair, 0, false,
                                random_bytes(30 + prng.below(400), prng.next()), header),
                     number));
  }
  far.poll();
  EXPECT_EQ(far.a.state(), QpState::kRts);
  EXPECT_EQ(far.a.counters().restored_packets, 0u);
}

TEST(FarRepairing, AClaimToHaveRestoredEverythingOnlySlowsItsTeller) {
  FarScripted far(repairing());
  far.a.write(0, 10'000, far.ghost, kTarget);
  const size_t sent = far.poll().size();
  FarAnswer answer{FarScripted::kFirst + 1, 2, 0};
  answer.restores = true;
  answer.restored = 31;
  far.answer(answer);
  EXPECT_LE(far.a.restored_packets, 2u);
  answer.greatest = FarScripted::kFirst + sent - 1;
  answer.first = static_cast<uint32_t>(sent);
  answer.restored = 10;  // less than before: an old one
  far.answer(answer);
  EXPECT_LE(far.a.restored_packets, 2u);
}

}  // namespace
}  // namespace farverbs::proto
