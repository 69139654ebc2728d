// Property test: one QP does random operations on another over a wire that loses, repeats, reorders
// and damages packets. Whatever happens: completions in order and exactly once, every receive
// filled in order, memory as if the operations had run one after the other. A failure names its
// seed.
#include <cstdlib>
#include <queue>

#include "farverbs/proto/proto_testing.h"

namespace farverbs::proto {
namespace {

using namespace testing;

struct Faults {
  double loss = 0;
  double repeat = 0;
  double reorder = 0;
  double damage = 0;
};

constexpr size_t kSource = 0;  // of A: what is sent
constexpr size_t kSourceBytes = 256 << 10;
constexpr size_t kTarget = kSourceBytes;  // of A: READs and atomic results
constexpr size_t kWritten = 0;            // of B: WRITEs, each to a place of its own
constexpr size_t kReadable = 512 << 10;   // of B: constant
constexpr size_t kReadableBytes = 64 << 10;
constexpr size_t kReceives = 640 << 10;   // of B
constexpr size_t kCounters = 1000 << 10;  // of B

struct Operation {
  SendOpcode opcode;
  size_t local;
  uint32_t length;
  size_t remote;
  uint64_t expected = 0;  // atomics
};

class World {
 public:
  World(uint64_t seed, const Faults& faults)
      : prng_(seed), faults_(faults), link_(options(seed), options(seed)) {
    link_.a.fill(kSource, kSourceBytes, seed);
    link_.b.fill(kReadable, kReadableBytes, seed + 1);
    shadow_.assign(link_.b.bytes(), link_.b.bytes() + kReadable);
  }

  void run(int operations) {
    while (done_ < operations || received_ < expected_receives_.size()) {
      if (::testing::Test::HasFailure() || ++steps_ > 400'000) break;
      while (posted_.size() < static_cast<size_t>(operations) && posted_.size() - done_ < 40 &&
             prng_.chance(0.7)) {
        post();
      }
      while (receives_posted_ < expected_receives_.size() + 2 && prng_.chance(0.5)) {
        b().receive(kReceives + (receives_posted_ % 64) * 4096, 4096);
        ++receives_posted_;
      }
      pump(a(), b());
      pump(b(), a());
      step_time();
      check_completions();
    }
    EXPECT_EQ(done_, operations);
    EXPECT_LE(steps_, 400'000);
    EXPECT_EQ(received_, expected_receives_.size());
    EXPECT_EQ(std::memcmp(shadow_.data(), b().bytes(), kReadable), 0);
    EXPECT_EQ(a().state(), QpState::kRts);
    EXPECT_EQ(b().state(), QpState::kRts);
  }

 private:
  struct Flight {
    Time at;
    uint64_t order;
    Side* to;
    Side* from;
    Bytes bytes;
    bool operator<(const Flight& o) const { return at != o.at ? at > o.at : order > o.order; }
  };

  static Options options(uint64_t seed) {
    Options o;
    o.ipv6 = true;
    o.mtu = static_cast<model::PathMtu>(1 + seed % 4);
    o.send_psn = seed % 3 == 0 ? 0xFFFFF0 : static_cast<uint32_t>(seed * 7919) & 0xFFFFFF;
    o.receive_psn = o.send_psn;
    o.timeout = 8;  // 1 ms
    o.rd_atomic = o.dest_rd_atomic = static_cast<uint8_t>(1 + seed % 5);
    o.config.read_chunk_bytes = 4096;
    o.config.ack_every_packets = 1 + seed % 40;
    o.config.max_window_packets = seed % 2 == 0 ? 64 : 4096;
    return o;
  }
  Side& a() { return link_.a; }
  Side& b() { return link_.b; }

  void post() {
    const auto kind = prng_.below(7);
    Operation op{};
    op.length = static_cast<uint32_t>(prng_.chance(0.2)   ? prng_.below(4)
                                      : prng_.chance(0.5) ? prng_.below(600)
                                                          : prng_.below(4097));
    op.local = kSource + prng_.below(kSourceBytes - op.length);
    const size_t index = posted_.size();
    const uint32_t flags = prng_.chance(0.1) ? uint32_t{model::kFence} : 0u;
    if (kind <= 1) {  // SEND
      op.opcode = kind == 0 ? SendOpcode::kSend : SendOpcode::kSendWithImmediate;
      auto r = a().request(op.opcode, op.local, op.length);
      r.flags = flags | (op.length <= 64 && prng_.chance(0.5) ? uint32_t{model::kInline} : 0u);
      r.immediate = static_cast<uint32_t>(index);
      expected_receives_.push_back(index);
      a().post(r);
    } else if (kind <= 3) {
      op.opcode = kind == 2 ? SendOpcode::kWrite : SendOpcode::kWriteWithImmediate;
      op.remote = kWritten + prng_.below(kReadable - op.length);
      std::copy_n(a().bytes(op.local), op.length, shadow_.begin() + static_cast<long>(op.remote));
      auto r = a().request(op.opcode, op.local, op.length);
      r.remote_address = b().address(op.remote);
      r.remote_key = b().key();
      r.immediate = static_cast<uint32_t>(index);
      r.flags = flags;
      if (kind == 3) expected_receives_.push_back(index);
      a().post(r);
    } else if (kind <= 5) {
      op.opcode = SendOpcode::kRead;
      op.length = static_cast<uint32_t>(prng_.below(12'000));
      op.local = kTarget + (index % 40) * 12'288;
      op.remote = kReadable + prng_.below(kReadableBytes - op.length);
      std::fill_n(a().bytes(op.local), op.length, std::byte{0xEE});
      a().read(op.local, op.length, b(), op.remote, flags);
    } else {
      op.opcode = SendOpcode::kFetchAdd;
      op.length = 8;
      const size_t counter = prng_.below(8);
      op.local = kTarget + 600'000 + (index % 40) * 8;
      op.remote = kCounters + counter * 8;
      op.expected = counters_[counter];
      const uint64_t add = prng_.below(1000);
      counters_[counter] += add;
      a().fetch_add(op.local, add, b(), op.remote);
    }
    posted_.push_back(op);
  }

  void pump(Side& from, Side& to) {
    const auto quantum = static_cast<uint32_t>(prng_.chance(0.3) ? 1 + prng_.below(5) : 1000);
    from.request_allowance = prng_.chance(0.2) ? prng_.below(3000) : 1u << 30;
    from.read_allowance = prng_.chance(0.2) ? prng_.below(9000) : 1u << 30;
    from.defer_acks = prng_.chance(0.2);
    for (Bytes& bytes : from.poll(quantum)) {
      if (prng_.chance(faults_.loss)) continue;
      if (prng_.chance(faults_.damage)) {
        bytes[prng_.below(bytes.size())] ^= static_cast<std::byte>(1u << prng_.below(8));
      }
      const int copies = prng_.chance(faults_.repeat) ? 2 : 1;
      for (int i = 0; i < copies; ++i) {
        Time at = from.now + Duration::microseconds(50);
        if (prng_.chance(faults_.reorder) || i > 0) {
          at = at + Duration::microseconds(static_cast<int64_t>(prng_.below(200)));
        }
        flights_.push({at, ++order_, &to, &from, bytes});
      }
    }
  }

  void step_time() {
    Time next = Time::never();
    if (!flights_.empty()) next = flights_.top().at;
    for (Side* side : {&a(), &b()}) {
      next = std::min(next, side->qp->next_timer());
      if (side->qp->wants_transmit() || side->qp->ack_pending()) {
        next = std::min(next, side->now + Duration::microseconds(5));
      }
    }
    if (next.is_never()) next = a().now + Duration::microseconds(100);
    if (next > a().now) link_.advance(next - a().now);
    for (Side* side : {&a(), &b()}) {
      if (side->qp->next_timer() <= side->now) side->fire_timer();
    }
    while (!flights_.empty() && flights_.top().at <= a().now) {
      const Flight flight = flights_.top();
      flights_.pop();
      flight.to->arrive(flight.bytes, flight.from->flow, flight.from->number);
    }
  }

  void check_completions() {
    for (const auto& c : a().sends()) {
      ASSERT_EQ(c.status, CompletionStatus::kSuccess) << "of request " << c.wr_id;
      ASSERT_EQ(c.wr_id, static_cast<uint64_t>(done_) + 1);
      const Operation& op = posted_[static_cast<size_t>(done_)];
      if (op.opcode == SendOpcode::kRead) {
        ASSERT_EQ(std::memcmp(a().bytes(op.local), b().bytes(op.remote), op.length), 0);
      }
      if (op.opcode == SendOpcode::kFetchAdd) {
        ASSERT_EQ(a().word(op.local), op.expected);
      }
      ++done_;
    }
    for (const auto& c : b().receives()) {
      ASSERT_EQ(c.status, CompletionStatus::kSuccess);
      ASSERT_EQ(c.wr_id, received_ + 1);
      ASSERT_LT(received_, expected_receives_.size());
      const size_t index = expected_receives_[received_];
      const Operation& op = posted_[index];
      ASSERT_EQ(c.byte_length, op.length);
      const bool write = op.opcode == SendOpcode::kWriteWithImmediate;
      if (op.opcode != SendOpcode::kSend) {
        ASSERT_EQ(c.immediate, index);
      }
      if (!write) {
        ASSERT_EQ(std::memcmp(b().bytes(kReceives + (received_ % 64) * 4096), a().bytes(op.local),
                              op.length),
                  0);
      }
      ++received_;
    }
  }

  Prng prng_;
  Faults faults_;
  Link link_;
  std::vector<std::byte> shadow_;  // of B's [0, kReadable)
  uint64_t counters_[8] = {};
  std::vector<Operation> posted_;
  std::vector<size_t> expected_receives_;
  std::priority_queue<Flight> flights_;
  uint64_t order_ = 0;
  uint64_t receives_posted_ = 0;
  size_t received_ = 0;
  int done_ = 0;
  int steps_ = 0;
};

// `seeds` runs, or as many times that as FARVERBS_TEST_EFFORT says.
void run(uint64_t seeds, const Faults& faults) {
  const char* effort = std::getenv("FARVERBS_TEST_EFFORT");
  if (effort != nullptr) seeds *= std::strtoull(effort, nullptr, 10);
  for (uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed, faults);
    world.run(150);
  }
}

TEST(RcRandom, CleanWire) { run(10, {}); }
TEST(RcRandom, Loss) { run(25, {.loss = 0.05}); }
TEST(RcRandom, Repeats) { run(15, {.repeat = 0.1}); }
TEST(RcRandom, Reordering) { run(15, {.reorder = 0.05}); }
TEST(RcRandom, Damage) { run(15, {.damage = 0.05}); }
TEST(RcRandom, Everything) {
  run(40, {.loss = 0.02, .repeat = 0.03, .reorder = 0.03, .damage = 0.02});
}

}  // namespace
}  // namespace farverbs::proto
