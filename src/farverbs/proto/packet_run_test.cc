// The fast path for runs of MIDDLE packets against the general path: two links do the same, one of
// them packet by packet, over a wire that drops, repeats, swaps and damages. Every packet, counter,
// completion and byte of memory has to be equal.
#include "farverbs/proto/packet_run.h"

#include <sys/mman.h>

#include "farverbs/base/fault_guard.h"
#include "farverbs/proto/proto_testing.h"

namespace farverbs::proto {
namespace {

using testing::Bytes;
using testing::Options;
using testing::SendOpcode;
using testing::Side;

constexpr uint64_t kIova = 0x10'0000;  // of both links, so that their packets are the same
constexpr size_t kMemory = 256 * 1024;
constexpr uint32_t kMtu = 256;

// Two connected sides with a region each that has the same key and addresses in every Twin.
class Twin {
 public:
  Twin(const Options& options, bool whole_bursts, bool runs) : a(1, options), b(2, options) {
    runs_ = runs;
    for (Side* side : {&a, &b}) {
      if (!whole_bursts) side->storage_bytes = kMtu + 40;
      entries_[side->number] =
          side->table.register_region(1, side->bytes(), kMemory, kIova, testing::kAllAccess)
              .value();
    }
    a.connect(b);
    b.connect(a);
  }
  MemoryKey key(const Side& side) const { return MemoryKey(entries_[side.number]->key.load()); }
  void deregister(Side& side) { (void)side.table.deregister(entries_[side.number]); }
  Side& peer(const Side& side) { return side.number == 1 ? b : a; }

  // As the loop does it: what the kernel would merge is a burst.
  void arrive(Side& to, const std::vector<Bytes>& packets) {
    const wire::IcrcFlow& flow = peer(to).flow;
    for (size_t i = 0; i < packets.size();) {
      Bytes burst;
      const size_t segment = packets[i].size();
      for (size_t n = 0; i < packets.size() && n < 64; ++n) {
        const size_t size = packets[i].size();
        if (size > segment) break;
        burst.insert(burst.end(), packets[i].begin(), packets[i].end());
        ++i;
        if (size < segment) break;
      }
      take(to, burst, segment, flow);
    }
    to.collect();
  }
  void advance(Duration d) {
    a.now = a.now + d;
    b.now = a.now;
  }

  Side a;
  Side b;
  size_t in_runs = 0;

 private:
  void take(Side& to, const Bytes& burst, size_t segment, const wire::IcrcFlow& flow) {
    wire::IdentificationGuard& guard = guards_[to.number];
    PacketContext context;
    context.unchecked = &flow;
    context.identifications = &guard;
    const std::span<const std::byte> bytes(burst);
    for (size_t at = 0; at < bytes.size();) {
      const wire::ParseResult packet =
          wire::parse(bytes.subspan(at, std::min(segment, bytes.size() - at)));
      at = std::min(at + segment, bytes.size());
      if (!packet.ok()) continue;
      to.qp->on_packet(to.now, *packet, context);
      context.expected_ip_id = guard.next();
      if (!runs_) continue;
      const size_t taken = to.qp->on_run(to.now, {bytes.subspan(at), segment, context});
      if (taken == 0) continue;
      in_runs += taken;
      at += taken * segment;
      context.expected_ip_id = guard.next();
    }
  }

  bool runs_ = false;
  model::MemoryEntry* entries_[3] = {};
  wire::IdentificationGuard guards_[3];
};

void expect_equal(Side& fast, Side& general) {
  const model::QpCounters& f = fast.counters();
  const model::QpCounters& g = general.counters();
  EXPECT_EQ(f.sent_packets, g.sent_packets);
  EXPECT_EQ(f.sent_payload_bytes, g.sent_payload_bytes);
  EXPECT_EQ(f.received_packets, g.received_packets);
  EXPECT_EQ(f.received_payload_bytes, g.received_payload_bytes);
  EXPECT_EQ(f.retransmitted_packets, g.retransmitted_packets);
  EXPECT_EQ(f.dropped_packets, g.dropped_packets);
  EXPECT_EQ(f.duplicates_received, g.duplicates_received);
  EXPECT_EQ(f.sequence_naks_sent, g.sequence_naks_sent);
  EXPECT_EQ(fast.state(), general.state());
  EXPECT_EQ(fast.inflight, general.inflight);
  EXPECT_EQ(fast.read_inflight, general.read_inflight);
  EXPECT_EQ(fast.rtts, general.rtts);
  EXPECT_EQ(fast.qp->next_timer(), general.qp->next_timer());
  EXPECT_EQ(Side::summary(fast.sends()), Side::summary(general.sends()));
  EXPECT_EQ(Side::summary(fast.receives()), Side::summary(general.receives()));
  EXPECT_EQ(std::memcmp(fast.bytes(), general.bytes(), kMemory), 0);
}

class Both {
 public:
  // Only without identifications, which count within a burst, can one of them send one by one.
  Both(const Options& options, uint64_t seed)
      : fast(options, true, true), general(options, !options.ipv6, false), prng_(seed) {
    for (Twin* twin : {&fast, &general}) {
      twin->a.fill(0, kMemory, seed);
      twin->b.fill(0, kMemory, seed + 1);
    }
  }

  void post_random() {
    const bool from_a = prng_.chance(0.6);
    const auto which = prng_.below(3);
    const auto length = static_cast<uint32_t>(prng_.below(prng_.chance(0.5) ? 40'000 : 2'000));
    const uint64_t local = prng_.below(kMemory - length + 1);
    const uint64_t remote = prng_.below(kMemory - length + 1);
    const auto cut = static_cast<uint32_t>(prng_.below(length + 1));
    for (Twin* twin : {&fast, &general}) {
      Side& from = from_a ? twin->a : twin->b;
      Side& to = twin->peer(from);
      if (which == 0) receive(*twin, to, remote, length, cut);
      const MemoryKey key = twin->key(from);
      const model::ScatterGatherElement sges[2] = {{kIova + local, cut, key},
                                                   {kIova + local + cut, length - cut, key}};
      model::SendWorkRequest r;
      r.wr_id = ++from.posted;
      r.opcode = which == 0   ? SendOpcode::kSend
                 : which == 1 ? SendOpcode::kWrite
                              : SendOpcode::kRead;
      r.sges = sges;
      r.remote_address = kIova + remote;
      r.remote_key = twin->key(to);
      if (from.qp->post_send(r).ok()) from.qp->on_work(from.now);
    }
  }

  // One crossing each way.
  void step(double trouble) {
    for (const uint32_t number : {1u, 2u}) {
      const std::vector<Bytes> sent = poll(fast, number);
      ASSERT_EQ(sent, poll(general, number));
      const std::vector<Bytes> arriving = disturb(sent, trouble);
      for (Twin* twin : {&fast, &general}) {
        twin->advance(Duration::microseconds(5));
        twin->arrive(number == 1 ? twin->b : twin->a, arriving);
      }
    }
    expect_equal(fast.a, general.a);
    expect_equal(fast.b, general.b);
  }
  void fire_timers() {
    Time at = std::min(fast.a.qp->next_timer(), fast.b.qp->next_timer());
    if (at.is_never()) return;
    for (Twin* twin : {&fast, &general}) {
      if (at > twin->a.now) twin->advance(at - twin->a.now);
      for (Side* side : {&twin->a, &twin->b}) {
        if (side->qp->next_timer() <= side->now) side->fire_timer();
      }
    }
  }
  Prng& prng() { return prng_; }

  Twin fast;
  Twin general;

 private:
  static void receive(Twin& twin, Side& to, uint64_t offset, uint32_t length, uint32_t cut) {
    const MemoryKey key = twin.key(to);
    const model::ScatterGatherElement sges[2] = {{kIova + offset, length - cut, key},
                                                 {kIova + offset + length - cut, cut, key}};
    model::ReceiveWorkRequest r;
    r.wr_id = ++to.received;
    r.sges = sges;
    if (to.qp->post_receive(r).ok()) to.qp->on_work(to.now);
  }
  static std::vector<Bytes> poll(Twin& twin, uint32_t number) {
    return (number == 1 ? twin.a : twin.b).poll(200);
  }
  std::vector<Bytes> disturb(const std::vector<Bytes>& sent, double trouble) {
    std::vector<Bytes> arriving;
    for (const Bytes& packet : sent) {
      if (!prng_.chance(trouble)) {
        arriving.push_back(packet);
        continue;
      }
      const auto how = prng_.below(4);
      if (how == 0) continue;  // lost
      arriving.push_back(packet);
      if (how == 1) arriving.push_back(packet);
      if (how == 2 && arriving.size() > 1) std::swap(arriving.back(), arriving.end()[-2]);
      if (how == 3) {
        std::byte& byte = arriving.back()[prng_.below(packet.size())];
        byte ^= static_cast<std::byte>(1u << prng_.below(8));
      }
    }
    return arriving;
  }

  Prng prng_;
};

void run_seed(uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Options options;
  options.mtu = model::PathMtu::k256;
  options.ipv6 = seed % 2 == 0;
  options.memory_bytes = kMemory;
  options.config.ack_request_every_packets = seed % 3 == 0 ? 7 : 64;
  options.config.max_window_packets = seed % 5 == 0 ? 50 : 16'384;
  options.config.read_chunk_bytes = seed % 7 == 0 ? 4096 : 64 * 1024;
  Both both(options, seed);
  const double trouble = seed % 4 == 0 ? 0 : 0.004;
  for (Twin* twin : {&both.fast, &both.general}) {
    for (Side* side : {&twin->a, &twin->b}) {
      side->request_allowance = seed % 6 == 0 ? 10'000 : uint64_t{1} << 40;
    }
  }
  for (int i = 0; i < 60 && !::testing::Test::HasFailure(); ++i) {
    if (i < 40) both.post_random();
    both.step(trouble);
    if (both.prng().chance(0.2)) both.fire_timers();
  }
  EXPECT_GT(both.fast.in_runs, 100u);
  EXPECT_EQ(both.general.in_runs, 0u);
}

TEST(PacketRun, DoesWhatTheGeneralPathDoes) {
  install_fault_guard();
  for (uint64_t seed = 1; seed <= 60 && !HasFailure(); ++seed) run_seed(seed);
}

// Memory of which the pages from `good` on are gone.
struct HalfGone {
  HalfGone()
      : memory(mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    mprotect(static_cast<std::byte*>(memory) + kGood, kSize - kGood, PROT_NONE);
  }
  ~HalfGone() { munmap(memory, kSize); }
  HalfGone(const HalfGone&) = delete;
  HalfGone& operator=(const HalfGone&) = delete;
  MemoryKey add_to(Side& side) const {
    return MemoryKey(
        side.table.register_region(1, memory, kSize, 2 * kIova, testing::kAllAccess).value()->key);
  }
  static constexpr size_t kSize = 32 * 1024;
  static constexpr size_t kGood = 8 * 1024;
  void* memory;
};

class PacketRunFault : public ::testing::TestWithParam<SendOpcode> {
 protected:
  PacketRunFault() : both_(options(), 1) { install_fault_guard(); }
  static Options options() {
    Options options;
    options.ipv6 = true;
    options.memory_bytes = kMemory;
    return options;
  }
  void run(bool gone_at_source) {
    HalfGone gone[2];
    for (Twin* twin : {&both_.fast, &both_.general}) {
      const HalfGone& memory = gone[twin == &both_.fast ? 0 : 1];
      const MemoryKey gone_key = memory.add_to(gone_at_source ? twin->a : twin->b);
      const model::ScatterGatherElement here = {kIova, HalfGone::kSize, twin->key(twin->a)};
      const model::ScatterGatherElement bad = {2 * kIova, HalfGone::kSize, gone_key};
      const model::ScatterGatherElement there = {kIova, HalfGone::kSize, twin->key(twin->b)};
      const model::ScatterGatherElement& target = gone_at_source ? there : bad;
      model::ReceiveWorkRequest receive;
      receive.sges = {&target, 1};
      ASSERT_TRUE(twin->b.qp->post_receive(receive).ok());
      model::SendWorkRequest r;
      r.opcode = GetParam();
      r.sges = {gone_at_source ? &bad : &here, 1};
      r.remote_address = target.address;
      r.remote_key = target.lkey;
      twin->a.post(r);
    }
    for (int i = 0; i < 5; ++i) both_.step(0);
  }
  Both both_;
};

TEST_P(PacketRunFault, MemoryThatIsGoneEndsItWhereItBegins) {
  run(GetParam() != SendOpcode::kRead);
  const bool read = GetParam() == SendOpcode::kRead;
  const Side& sender = read ? both_.fast.b : both_.fast.a;
  EXPECT_EQ(both_.fast.a.state(), model::QpState::kErr);
  EXPECT_EQ(sender.counters().sent_payload_bytes, HalfGone::kGood);
}

TEST_P(PacketRunFault, TheOtherEndsMemoryAsWell) {
  run(GetParam() == SendOpcode::kRead);
  EXPECT_EQ(both_.fast.a.state(), model::QpState::kErr);
}

INSTANTIATE_TEST_SUITE_P(All, PacketRunFault,
                         ::testing::Values(SendOpcode::kSend, SendOpcode::kWrite,
                                           SendOpcode::kRead));

}  // namespace
}  // namespace farverbs::proto
