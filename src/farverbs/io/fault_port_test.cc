#include "farverbs/io/fault_port.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <map>
#include <set>

#include "farverbs/base/byte_order.h"
#include "farverbs/io/test_support.h"

namespace farverbs::io {
namespace {

constexpr size_t kSize = 32;

// Gives bursts of numbered datagrams, as many as it was told.
class NumberedPort final : public Port {
 public:
  void arrive(size_t datagrams) {
    std::vector<std::byte> bytes(datagrams * kSize);
    for (size_t i = 0; i < datagrams; ++i) store_be(bytes.data() + i * kSize, next_++);
    waiting_.push_back(std::move(bytes));
  }
  Endpoint local() const override { return {}; }
  const PortLimits& limits() const override { return limits_; }
  const PortCounters& counters() const override { return counters_; }
  SendStatus send(const TxFlow&, const wire::TxBurst&) override { return SendStatus::kSent; }
  size_t receive(std::span<RxBurst> bursts) override {
    size_t count = 0;
    taken_.clear();
    while (count < bursts.size() && !waiting_.empty()) {
      taken_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
      bursts[count].bytes = taken_.back();
      bursts[count++].segment_size = kSize;
    }
    return count;
  }
  int wait_fd() const override { return -1; }

 private:
  PortLimits limits_;
  PortCounters counters_;
  std::deque<std::vector<std::byte>> waiting_;
  std::vector<std::vector<std::byte>> taken_;
  uint32_t next_ = 0;
};

// The numbers of what comes out, in order, of bursts of 1 to 40 datagrams; `room` bursts a call.
std::vector<std::vector<std::byte>> run(const FaultRates& rates, uint64_t seed, size_t room,
                                        size_t datagrams, FaultCounters* faults = nullptr) {
  auto inner = std::make_unique<NumberedPort>();
  Prng sizes(seed + 1);
  for (size_t left = datagrams; left > 0;) {
    const size_t size = std::min<size_t>(sizes.between(1, 40), left);
    inner->arrive(size);
    left -= size;
  }
  FaultPort port(std::move(inner), rates, seed);
  std::vector<RxBurst> bursts(room);
  std::vector<Received> received;
  for (int idle = 0; idle < 3;) {
    const size_t n = port.receive(bursts);
    idle = n == 0 ? idle + 1 : 0;
    for (const RxBurst& b : std::span(bursts).first(n)) {
      received.push_back({{b.bytes.begin(), b.bytes.end()}, b.segment_size, {}, {}, 0});
    }
  }
  if (faults != nullptr) *faults = port.faults();
  return split(received);
}

uint32_t number(const std::vector<std::byte>& datagram) {
  return load_be<uint32_t>(datagram.data());
}

class Rooms : public ::testing::TestWithParam<size_t> {};

TEST_P(Rooms, NoFaultsChangeNothing) {
  const auto out = run({}, 1, GetParam(), 500);
  ASSERT_EQ(out.size(), 500u);
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(number(out[i]), i);
}

TEST_P(Rooms, LossLosesItsPart) {
  FaultCounters faults;
  FaultRates rates;
  rates.loss = 0.1;
  const auto out = run(rates, 2, GetParam(), 5000, &faults);
  EXPECT_EQ(out.size(), 5000 - faults.lost);
  EXPECT_NEAR(static_cast<double>(faults.lost), 500, 100);
  for (size_t i = 1; i < out.size(); ++i) EXPECT_LT(number(out[i - 1]), number(out[i]));
  rates.loss = 1;
  EXPECT_TRUE(run(rates, 2, GetParam(), 5000).empty());
}

TEST_P(Rooms, DuplicatesComeRightAfter) {
  FaultCounters faults;
  FaultRates rates;
  rates.duplication = 0.1;
  const auto out = run(rates, 3, GetParam(), 5000, &faults);
  EXPECT_EQ(out.size(), 5000 + faults.duplicated);
  EXPECT_NEAR(static_cast<double>(faults.duplicated), 500, 100);
  std::map<uint32_t, int> times;
  for (const auto& d : out) ++times[number(d)];
  EXPECT_EQ(times.size(), 5000u);
}

TEST_P(Rooms, CorruptionFlipsFewBits) {
  FaultCounters faults;
  FaultRates rates;
  rates.corruption = 0.1;
  const auto clean = run({}, 4, GetParam(), 5000);
  const auto out = run(rates, 4, GetParam(), 5000, &faults);
  ASSERT_EQ(out.size(), clean.size());
  size_t changed = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    int bits = 0;
    for (size_t k = 0; k < kSize; ++k) {
      bits += __builtin_popcount(std::to_integer<unsigned>(out[i][k] ^ clean[i][k]));
    }
    EXPECT_LE(bits, 3);
    changed += bits > 0 ? 1 : 0;
  }
  // Two flips of one bit cancel out, very rarely.
  EXPECT_LE(changed, faults.corrupted);
  EXPECT_GE(changed, faults.corrupted * 9 / 10);
  EXPECT_NEAR(static_cast<double>(faults.corrupted), 500, 100);
}

TEST_P(Rooms, ReorderedDatagramsComeLateButCome) {
  FaultCounters faults;
  FaultRates rates;
  rates.reordering = 0.05;
  rates.reorder_distance = 5;
  const auto out = run(rates, 5, GetParam(), 5000, &faults);
  ASSERT_EQ(out.size(), 5000u);
  std::set<uint32_t> seen;
  size_t late = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const uint32_t n = number(out[i]);
    EXPECT_TRUE(seen.insert(n).second);
    if (!seen.empty() && n < *seen.rbegin()) ++late;
    EXPECT_LE(i > n ? i - n : 0, 2u * 5) << "datagram " << n;
  }
  EXPECT_GT(late, faults.reordered / 2);
  EXPECT_GT(faults.reordered, 150u);
}

TEST_P(Rooms, AllTogetherIsReplayedByTheSeed) {
  const FaultRates rates{0.05, 0.05, 0.05, 0.05, 8};
  const auto a = run(rates, 6, GetParam(), 3000);
  EXPECT_EQ(a, run(rates, 6, GetParam(), 3000));
  EXPECT_NE(a, run(rates, 7, GetParam(), 3000));
}

INSTANTIATE_TEST_SUITE_P(FaultPort, Rooms, ::testing::Values(1, 2, 32));

}  // namespace
}  // namespace farverbs::io
