#include "tools/cp/plan.h"

#include <gtest/gtest.h>

#include "farverbs/base/prng.h"

namespace farverbs::tools::copy {
namespace {

PiecePlan plan_of(uint64_t size, const std::vector<Extent>& extents) {
  Result<PiecePlan> plan = PiecePlan::create(size, extents);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  return plan.ok() ? *plan : PiecePlan();
}

TEST(PiecePlan, CutsAtBlocksAndExtents) {
  EXPECT_EQ(plan_of(0, {}).count(), 0u);
  const PiecePlan whole = plan_of(2 * kPieceBytes + 5, {{0, 2 * kPieceBytes + 5}});
  ASSERT_EQ(whole.count(), 3u);
  EXPECT_EQ(whole.at(0), (Piece{0, kPieceBytes}));
  EXPECT_EQ(whole.at(2), (Piece{2 * kPieceBytes, 5}));
  // Data from the middle of a block to the middle of the next, and a byte behind a hole.
  const PiecePlan sparse = plan_of(4 * kPieceBytes, {{100, kPieceBytes}, {kPieceBytes + 200, 1}});
  ASSERT_EQ(sparse.count(), 3u);
  EXPECT_EQ(sparse.at(0), (Piece{100, kPieceBytes - 100}));
  EXPECT_EQ(sparse.at(1), (Piece{kPieceBytes, 100}));
  EXPECT_EQ(sparse.at(2), (Piece{kPieceBytes + 200, 1}));
  EXPECT_EQ(sparse.data_bytes(), kPieceBytes + 1);
}

TEST(PiecePlan, WindowsHoldTheirPieces) {
  const uint64_t size = 3 * kWindowBytes + 7;
  const PiecePlan whole = plan_of(size, {{0, size}});
  const uint64_t per_window = kWindowBytes / kPieceBytes;
  EXPECT_EQ(whole.window_pieces(0), std::make_pair(UINT64_C(0), per_window));
  EXPECT_EQ(whole.window_pieces(per_window), std::make_pair(per_window, 2 * per_window));
  EXPECT_EQ(whole.window_of(3 * per_window), (Extent{3 * kWindowBytes, 7}));
  EXPECT_EQ(whole.window_pieces(3 * per_window),
            std::make_pair(3 * per_window, 3 * per_window + 1));
}

TEST(PiecePlan, RandomExtentsAreCoveredOnceAndInOrder) {
  Prng prng(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<Extent> extents;
    uint64_t at = prng.below(3 * kPieceBytes);
    for (uint64_t i = prng.between(1, 20); i > 0; --i) {
      const uint64_t length =
          prng.between(1, prng.chance(0.2) ? 2 * kWindowBytes : kPieceBytes * 2);
      extents.push_back({at, length});
      at += length + prng.between(1, kPieceBytes * 2);
    }
    const PiecePlan plan = plan_of(at, extents);
    size_t extent = 0;
    uint64_t expected = extents[0].offset;
    uint64_t window_end = 0;
    for (uint64_t i = 0; i < plan.count(); ++i) {
      const Piece piece = plan.at(i);
      ASSERT_EQ(piece.offset, expected);
      ASSERT_GT(piece.length, 0u);
      ASSERT_EQ(piece.offset / kPieceBytes, (piece.offset + piece.length - 1) / kPieceBytes);
      expected += piece.length;
      if (expected == extents[extent].offset + extents[extent].length &&
          ++extent < extents.size()) {
        expected = extents[extent].offset;
      }
      const auto [first, last] = plan.window_pieces(i);
      ASSERT_LE(first, i);
      ASSERT_LT(i, last);
      if (i == first) {
        ASSERT_EQ(i, window_end) << "windows leave no gap";
        window_end = last;
      }
    }
    ASSERT_EQ(extent, extents.size());
    ASSERT_EQ(window_end, plan.count());
  }
}

TEST(PiecePlan, ImpossibleExtentsAreRefused) {
  const auto refuses = [](uint64_t size, std::vector<Extent> extents) {
    return !PiecePlan::create(size, extents).ok();
  };
  EXPECT_TRUE(refuses(10, {{0, 11}}));
  EXPECT_TRUE(refuses(10, {{11, 1}}));
  EXPECT_TRUE(refuses(10, {{5, UINT64_MAX}}));
  EXPECT_TRUE(refuses(10, {{0, 0}}));
  EXPECT_TRUE(refuses(10, {{0, 5}, {4, 2}}));
  EXPECT_TRUE(refuses(10, {{5, 2}, {0, 2}}));
  EXPECT_TRUE(refuses(kMaxFileBytes + 1, {}));
  EXPECT_TRUE(refuses(kMaxFileBytes, std::vector<Extent>(kMaxExtents + 1, {0, 1})));
}

TEST(LimitExtents, KeepsTheLargestHoles) {
  const std::vector<Extent> extents = {{0, 1}, {10, 1}, {12, 1}, {100, 1}, {105, 1}};
  EXPECT_EQ(limit_extents(extents, 5), extents);
  EXPECT_EQ(limit_extents(extents, 3), (std::vector<Extent>{{0, 1}, {10, 3}, {100, 6}}));
  EXPECT_EQ(limit_extents(extents, 1), (std::vector<Extent>{{0, 106}}));
  std::vector<Extent> even;
  for (uint64_t i = 0; i < 5000; ++i) even.push_back({i * 8192, 4096});
  const std::vector<Extent> limited = limit_extents(even, kMaxExtents);
  EXPECT_EQ(limited.size(), kMaxExtents);
  EXPECT_TRUE(PiecePlan::create(5000 * 8192, limited).ok());
}

}  // namespace
}  // namespace farverbs::tools::copy
