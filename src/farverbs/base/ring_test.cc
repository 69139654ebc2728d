#include "farverbs/base/ring.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>

#include "farverbs/base/prng.h"

namespace farverbs {
namespace {

TEST(Ring, TakesNothingUntilItIsUsedAndNothingAfterwards) {
  Ring<uint64_t> ring;
  EXPECT_EQ(ring.memory_bytes(), 0u);
  ring.push_back(1);
  EXPECT_EQ(ring.memory_bytes(), 4 * sizeof(uint64_t));
  ring.clear();
  EXPECT_EQ(ring.memory_bytes(), 4 * sizeof(uint64_t));
  ring.release();
  EXPECT_EQ(ring.memory_bytes(), 0u);
  EXPECT_EQ(ring.partition_point([](uint64_t) { return true; }), 0u);
}

TEST(Ring, DoesAsADequeDoes) {
  Prng chance(7);
  Ring<int, 1> ring;
  std::deque<int> model;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t what = chance.next() % 16;
    const size_t at = model.empty() ? 0 : chance.next() % model.size();
    if (what < 6) {
      ring.push_back(i);
      model.push_back(i);
    } else if (what < 8) {
      ring.insert(at, i);
      model.insert(model.begin() + static_cast<std::ptrdiff_t>(at), i);
    } else if (what == 15 && i % 64 == 0) {
      const auto odd = [](int value) { return value % 2 != 0; };
      ring.erase_if(odd);
      std::erase_if(model, odd);
    } else if (!model.empty() && what < 10) {
      ring.erase(at);
      model.erase(model.begin() + static_cast<std::ptrdiff_t>(at));
    } else if (!model.empty()) {
      ring.pop_front();
      model.pop_front();
    }
    ASSERT_EQ(ring.size(), model.size());
    if (model.empty()) continue;
    ASSERT_EQ(ring.front(), model.front());
    ASSERT_EQ(ring.back(), model.back());
    ASSERT_EQ(ring[at % model.size()], model[at % model.size()]);
  }
  size_t i = 0;
  for (const int value : ring) ASSERT_EQ(value, model[i++]);
  EXPECT_EQ(i, model.size());
}

TEST(Ring, WhatAnElementOwnsGoesWithIt) {
  const auto counted = std::make_shared<int>();
  Ring<std::shared_ptr<int>> ring;
  for (int i = 0; i < 9; ++i) ring.push_back(counted);
  ring.pop_front();
  ring.erase(3);
  EXPECT_EQ(counted.use_count(), 8);
  ring.clear();
  EXPECT_EQ(counted.use_count(), 1);
}

TEST(Ring, FindsWhereAConditionEnds) {
  Ring<int> ring;
  for (int i = 0; i < 3; ++i) ring.push_back(-1);
  for (int i = 0; i < 3; ++i) ring.pop_front();
  for (int i = 0; i < 4; ++i) ring.push_back(10 * i);  // around the end of the block
  EXPECT_EQ(ring.partition_point([](int value) { return value <= 15; }), 2u);
  EXPECT_EQ(ring.partition_point([](int value) { return value < 0; }), 0u);
}

}  // namespace
}  // namespace farverbs
