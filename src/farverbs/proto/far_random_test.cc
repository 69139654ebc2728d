// Two properties of the far transport's receiving half. Whatever the order in which a peer's
// packets come, repeated and cut differently, the outcome is that of the messages one after the
// other. And whatever a peer's packets say, nothing crashes and memory stays bounded. A failure
// names its seed.
#include <cstdlib>

#include "farverbs/proto/far_testing.h"

namespace farverbs::proto {
namespace {

using namespace testing;
using Verdict = FarResponder::Verdict;
using wire::FarStatus;

constexpr size_t kWritten = 0;  // WRITEs overlap here
constexpr size_t kWrittenBytes = 24 << 10;
constexpr size_t kReceives = 8 << 10;   // WRITEs and SENDs overlap as well
constexpr size_t kCounters = 64 << 10;  // 8 words
constexpr uint32_t kReceiveBytes = 4096;
constexpr size_t kReceivePlaces = 12;  // fewer than receives: some share their buffer
constexpr uint32_t kMessages = 120;

struct Message {
  Opcode opcode;
  Bytes data;
  size_t to = 0;
  uint32_t sequence = 0;
  uint64_t word = 0;  // atomics: what is added, or swapped in
  uint64_t compare = 0;
  bool solicited = false;
};

bool takes_receive(const Message& m) {
  return m.opcode != Opcode::far_write && m.opcode != Opcode::far_fetch_add &&
         m.opcode != Opcode::far_compare_swap && m.opcode != Opcode::far_read_request;
}
bool is_write(const Message& m) {
  return m.opcode == Opcode::far_write || m.opcode == Opcode::far_write_imm;
}

class World {
 public:
  explicit World(uint64_t seed) : prng_(seed), side_(options(seed)), shadow_(128 << 10) {
    for (uint32_t m = 0; m < kMessages; ++m) add_message();
  }

  void run() {
    const double drop = prng_.unit() * 0.3;
    const size_t reach = 1 + prng_.below(prng_.chance(0.3) ? 2000 : 60);
    fill();
    int steps = 0;
    while (side_.far.executed() < kMessages && !::testing::Test::HasFailure()) {
      ASSERT_LT(++steps, 200'000);
      if (receives_posted_ < sequences_ && prng_.chance(0.05)) post_receives();
      if (packets_.empty()) {  // what was acknowledged and dropped, as told
        if (side_.far.told().status == FarStatus::not_ready) post_receives();
        fill();
        continue;
      }
      // Packets overtake each other by up to `reach`.
      const size_t i = prng_.below(std::min(reach, packets_.size()));
      Bytes packet = packets_[i];
      if (prng_.chance(0.9)) packets_.erase(packets_.begin() + static_cast<long>(i));
      if (prng_.chance(drop)) continue;
      if (prng_.chance(0.03)) {
        Bytes bad = packet;
        bad[24 + prng_.below(bad.size() - 24)] ^= std::byte{4};
        ASSERT_EQ(side_.take(bad), Verdict::kDamaged);
      }
      ASSERT_NE(side_.take(packet), Verdict::kDamaged);
      ASSERT_FALSE(side_.far.failed());
      answer();
      check_in_order();
    }
    for (size_t i = 0; i < shadow_.size(); ++i) ASSERT_EQ(side_.a.bytes()[i], shadow_[i]) << i;
    EXPECT_EQ(completed_, sequences_);
    EXPECT_LT(side_.far.memory_bytes(), 20'000u);
    EXPECT_TRUE(originals_.empty());
  }

 private:
  static Options options(uint64_t seed) {
    Options o;
    o.sges = 3;
    o.memory_bytes = 128 << 10;
    o.srq = seed % 3 == 0;
    o.dest_rd_atomic = 16;
    if (seed % 4 == 0) o.config.far_hold_bytes = 20'000;
    if (seed % 5 == 0) o.config.far_messages_ahead = 10;
    return o;
  }

  void add_message() {
    Message m;
    switch (prng_.below(8)) {
      case 0:
        m.opcode = Opcode::far_fetch_add;
        break;
      case 1:
        m.opcode = Opcode::far_compare_swap;
        break;
      case 2:
        m.opcode = Opcode::far_write_imm;
        break;
      case 3:
        m.opcode = Opcode::far_send;
        break;
      case 4:
        m.opcode = Opcode::far_send_imm;
        break;
      default:
        m.opcode = Opcode::far_write;
    }
    const uint64_t size = prng_.chance(0.1)   ? 0
                          : prng_.chance(0.5) ? 1 + prng_.below(300)
                                              : 1 + prng_.below(kReceiveBytes);
    m.data = random_bytes(size, prng_.next());
    m.to = kWritten + prng_.below(kWrittenBytes - size);
    m.solicited = prng_.chance(0.5);
    if (takes_receive(m)) m.sequence = sequences_++;
    if (m.opcode == Opcode::far_fetch_add || m.opcode == Opcode::far_compare_swap) {
      m.to = kCounters + 8 * prng_.below(8);
      m.word = prng_.below(3);
      m.compare = prng_.below(3);
    }
    messages_.push_back(m);
  }

  // The packets of all messages that have not been carried out, cut anew.
  void fill() {
    for (uint32_t m = side_.far.executed(); m < kMessages; ++m) cut(m);
  }
  void cut(uint32_t number) {
    const Message& m = messages_[number];
    if (m.opcode == Opcode::far_fetch_add) {
      packets_.push_back(side_.fetch_add(number, m.to, m.word));
    } else if (m.opcode == Opcode::far_compare_swap) {
      packets_.push_back(side_.compare_swap(number, m.to, m.compare, m.word));
    } else {
      const size_t size = m.data.size();
      size_t begin = 0;
      do {
        const size_t end = std::min(size, begin + 1 + prng_.below(1200));
        Bytes packet = cut(number, m, begin, end);
        packets_.push_back(m.solicited && end == size ? solicited(packet) : packet);
        begin = end;
      } while (begin < size);
    }
  }
  Bytes cut(uint32_t number, const Message& m, size_t begin, size_t end) const {
    const bool last = end == m.data.size();
    if (m.opcode == Opcode::far_write || (m.opcode == Opcode::far_write_imm && !last)) {
      return side_.write(number, m.to, m.data, begin, end);
    }
    if (m.opcode == Opcode::far_write_imm) {
      return side_.write_imm(number, m.to, m.data, begin, m.sequence, number);
    }
    if (m.opcode == Opcode::far_send_imm && last) {
      return far_packet(Opcode::far_send_imm, number, true, part(m.data, begin, end),
                        wire::FarSequence{m.sequence},
                        wire::FarOffset{static_cast<uint32_t>(begin)}, wire::ImmDt{number});
    }
    return side_.send(number, m.sequence, m.data, begin, end);
  }

  void post_receives() {
    const uint64_t more = 1 + prng_.below(10);
    for (uint64_t i = 0; i < more; ++i) {
      const size_t place = place_of(receives_posted_);
      // In two pieces that stand the other way round.
      const model::ScatterGatherElement pieces[] = {
          side_.a.sge(place + kSplit, kReceiveBytes - kSplit), side_.a.sge(place, kSplit)};
      model::ReceiveWorkRequest receive;
      receive.wr_id = receives_posted_++;
      receive.sges = pieces;
      const auto result =
          side_.a.options.srq ? side_.a.srq.post(receive) : side_.a.qp->post_receive(receive);
      if (!result.ok()) --receives_posted_;
    }
  }
  static constexpr uint32_t kSplit = 1500;
  static size_t place_of(uint64_t receive) {
    return kReceives + (receive % kReceivePlaces) * kReceiveBytes;
  }

  // What the message does, one after the other.
  void apply(const Message& m) {
    if (is_write(m)) {
      std::copy(m.data.begin(), m.data.end(), shadow_.begin() + static_cast<long>(m.to));
    } else if (takes_receive(m)) {
      for (size_t i = 0; i < m.data.size(); ++i) {
        const size_t at = i < kReceiveBytes - kSplit ? kSplit + i : i - (kReceiveBytes - kSplit);
        shadow_[place_of(m.sequence) + at] = m.data[i];
      }
    } else {
      uint64_t word;
      std::memcpy(&word, &shadow_[m.to], 8);
      originals_.push_back(word);
      if (m.opcode == Opcode::far_fetch_add) {
        word += m.word;
      } else if (word == m.compare) {
        word = m.word;
      }
      std::memcpy(&shadow_[m.to], &word, 8);
    }
  }

  void check_in_order() {
    for (; applied_ < side_.far.executed(); ++applied_) {
      const Message& m = messages_[applied_];
      apply(m);
      if (!takes_receive(m)) continue;
      const auto all = next_completion();
      ASSERT_EQ(all.size(), 1u);
      ASSERT_EQ(all[0].wr_id, completed_);
      ASSERT_EQ(all[0].status, CompletionStatus::kSuccess);
      ASSERT_EQ(all[0].byte_length, m.data.size());
      ASSERT_EQ(all[0].immediate, m.opcode == Opcode::far_send ? 0 : applied_);
      ++completed_;
    }
    ASSERT_TRUE(side_.a.receive_cq.empty());
    check_answers();
  }
  std::vector<model::WorkCompletion> next_completion() {
    std::vector<model::WorkCompletion> one(1);
    one.resize(side_.a.receive_cq.poll(one));
    return one;
  }

  // Atomic results come in order and once.
  void answer() {
    while (FarResponder::Response* response = side_.far.next_response()) {
      answered_.push_back(response->original);
      response->sent = 8;
      response->begun = true;
      unacknowledged_.push_back(response->message);
    }
    while (!unacknowledged_.empty() && prng_.chance(0.5)) {
      const size_t i = prng_.below(unacknowledged_.size());
      side_.far.acknowledged(unacknowledged_[i], 8);
      unacknowledged_.erase(unacknowledged_.begin() + static_cast<long>(i));
    }
  }
  void check_answers() {
    ASSERT_EQ(answered_, originals_);
    answered_.clear();
    originals_.clear();
  }

  Prng prng_;
  FarSide side_;
  std::vector<Message> messages_;
  std::vector<std::byte> shadow_;
  std::vector<Bytes> packets_;
  std::vector<uint64_t> answered_;
  std::vector<uint64_t> originals_;
  std::vector<uint32_t> unacknowledged_;
  uint32_t sequences_ = 0;
  uint64_t receives_posted_ = 0;
  uint32_t applied_ = 0;
  uint64_t completed_ = 0;
};

// `seeds` runs, or as many times that as FARVERBS_TEST_EFFORT says.
template <typename F>
void for_seeds(uint64_t seeds, F&& f) {
  const char* effort = std::getenv("FARVERBS_TEST_EFFORT");
  if (effort != nullptr) seeds *= std::strtoull(effort, nullptr, 10);
  for (uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    f(seed);
  }
}

TEST(FarRandom, TheOutcomeIsThatOfTheOrderOfPosting) {
  for_seeds(150, [](uint64_t seed) { World(seed).run(); });
}

// Packets of a peer that keeps to nothing but the ICRC.
TEST(FarRandom, AnyPackets) {
  for_seeds(300, [](uint64_t seed) {
    Prng prng(seed);
    Options options;
    options.srq = prng.chance(0.5);
    options.cq_depth = prng.chance(0.2) ? 4 : 4096;
    options.dest_rd_atomic = static_cast<uint8_t>(prng.below(5));
    options.config.far_hold_bytes = 50'000;
    options.memory_bytes = 64 << 10;
    FarSide side(options);
    // Few values of each field, so that packets meet; now and then any.
    const uint64_t messages = 1 + prng.below(20);
    const double wild = prng.unit() * 0.05;
    const auto pick = [&](uint64_t below) {
      return static_cast<uint32_t>(prng.chance(wild) ? prng.next() : prng.below(below));
    };
    uint64_t receives = 0;
    for (int i = 0; i < 300; ++i) {
      if (receives < 40 && prng.chance(0.1)) {
        side.a.receive(32'768, 2048);
        ++receives;
      }
      const uint32_t message = side.far.executed() + pick(messages);
      const bool last = prng.chance(0.3);
      const Bytes payload = random_bytes(prng.below(1400), prng.next());
      const wire::FarOffset offset{pick(4) * 700};
      const uint64_t address = side.a.address(pick(4) * 4096);
      const MemoryKey key = prng.chance(wild) ? MemoryKey(pick(1u << 31)) : side.a.key();
      const wire::FarPlace place{address + offset.offset, key, offset.offset};
      const wire::FarSequence sequence{pick(messages)};
      const wire::AtomicEth atomic{address + (prng.chance(wild) ? 1 : 0), key, prng.next(), 0};
      Bytes packet;
      switch (static_cast<Opcode>(0xC0 + prng.below(9))) {
        case Opcode::far_write_imm:
          packet = far_packet(Opcode::far_write_imm, message, last, payload, place, sequence,
                              wire::ImmDt{1});
          break;
        case Opcode::far_send:
          packet = far_packet(Opcode::far_send, message, last, payload, sequence, offset);
          break;
        case Opcode::far_send_imm:
          packet = far_packet(Opcode::far_send_imm, message, last, payload, sequence, offset,
                              wire::ImmDt{1});
          break;
        case Opcode::far_send_invalidate:
          packet = far_packet(Opcode::far_send_invalidate, message, last, payload, sequence, offset,
                              wire::Ieth{key});
          break;
        case Opcode::far_read_request:
          packet = far_packet(Opcode::far_read_request, message, last, {},
                              wire::Reth{address, key, pick(2000)});
          break;
        case Opcode::far_compare_swap:
          packet = far_packet(Opcode::far_compare_swap, message, last, {}, atomic);
          break;
        case Opcode::far_fetch_add:
          packet = far_packet(Opcode::far_fetch_add, message, last, {}, atomic);
          break;
        default:
          packet = far_packet(Opcode::far_write, message, last, payload, place);
      }
      ASSERT_NE(side.take(packet), Verdict::kDamaged);
      FarResponder::Response* const response = side.far.next_response();
      if (response != nullptr && prng.chance(0.5)) {
        response->sent = response->length;
        response->begun = true;
        side.far.acknowledged(response->message, response->length);
      }
      // Receives in hand and responses have limits of their own.
      ASSERT_LT(side.far.memory_bytes(), 50'000u + 40'000u);
      if (side.far.failed() && prng.chance(0.1)) side.far.flush();
    }
  });
}

}  // namespace
}  // namespace farverbs::proto
