// The fuzzed endpoint on random bytes, so that every test run has some of it.
#include "farverbs/proto/proto_fuzz.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "farverbs/base/prng.h"

namespace farverbs::proto {
namespace {

TEST(ProtoFuzz, RandomBytes) {
  uint64_t rounds = 400;
  const char* effort = std::getenv("FARVERBS_TEST_EFFORT");
  if (effort != nullptr) rounds *= std::strtoull(effort, nullptr, 10);
  for (uint64_t seed = 1; seed <= rounds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng prng(seed);
    std::vector<uint8_t> bytes(200 + prng.below(4000));
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(prng.next());
    FuzzedPair(bytes).run();
  }
}

}  // namespace
}  // namespace farverbs::proto
