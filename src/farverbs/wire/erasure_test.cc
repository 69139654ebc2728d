#include "farverbs/wire/erasure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "farverbs/base/prng.h"

namespace farverbs::wire {
namespace {

using Symbol = std::vector<std::byte>;

TEST(Erasure, CoefficientsAreThoseOfTheSpecification) {
  // 1 / (128 + symbol xor data) in GF(2^8) with the polynomial 0x11D.
  std::set<uint8_t> row;
  for (size_t data = 0; data < kMostErasureData; ++data) row.insert(erasure_coefficient(0, data));
  EXPECT_EQ(row.size(), kMostErasureData);
  EXPECT_EQ(row.count(0), 0u);
  EXPECT_EQ(erasure_coefficient(0, 0), 0x1B);
}

TEST(Erasure, AnySymbolsRestoreAsManyPackets) {
  Prng prng(7);
  std::vector<uint8_t> scratch;
  for (int round = 0; round < 300; ++round) {
    const size_t count = 1 + prng.below(kMostErasureData);
    const size_t symbols = 1 + prng.below(12);
    const size_t length = 1 + prng.below(200);
    std::vector<Symbol> data(count, Symbol(length));
    std::vector<Symbol> redundant(symbols, Symbol(length));
    std::vector<std::byte*> targets;
    for (Symbol& s : redundant) targets.push_back(s.data());
    for (size_t i = 0; i < count; ++i) {
      for (std::byte& b : data[i]) b = static_cast<std::byte>(prng.next());
      // Shorter packets are filled up with zeros.
      const size_t size = prng.below(length) + 1;
      std::fill(data[i].begin() + static_cast<long>(size), data[i].end(), std::byte{});
      erasure_add(i, std::span(data[i]).first(size), targets);
    }
    const size_t lost = std::min(count, 1 + prng.below(symbols));
    std::vector<size_t> order(count);
    for (size_t i = 0; i < count; ++i) order[i] = i;
    for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[prng.below(i)]);
    std::vector<size_t> which(symbols);
    for (size_t i = 0; i < symbols; ++i) which[i] = i;
    for (size_t i = symbols; i > 1; --i) std::swap(which[i - 1], which[prng.below(i)]);
    std::vector<Symbol> restored(lost, Symbol(length));
    std::vector<ErasurePiece> known, used, missing;
    for (size_t i = 0; i < count; ++i) {
      if (i < lost) {
        missing.push_back({order[i], restored[i].data()});
        used.push_back({which[i], redundant[which[i]].data()});
      } else {
        known.push_back({order[i], data[order[i]].data()});
      }
    }
    ASSERT_TRUE(erasure_restore(length, known, used, missing, scratch));
    for (size_t i = 0; i < lost; ++i) ASSERT_EQ(restored[i], data[order[i]]) << round;
  }
}

TEST(Erasure, CountsThatDoNotFitRestoreNothing) {
  std::vector<uint8_t> scratch;
  Symbol bytes(8);
  const ErasurePiece piece{0, bytes.data()};
  EXPECT_FALSE(erasure_restore(8, {}, {}, {}, scratch));
  EXPECT_FALSE(erasure_restore(8, {}, {}, {&piece, 1}, scratch));
}

}  // namespace
}  // namespace farverbs::wire
