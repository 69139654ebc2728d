// FaultPort: a Port whose receptions suffer what networks do, by a seed: loss, duplication,
// reordering, corruption of single datagrams. For tests of real processes; sends pass untouched, so
// wrap the port of the end that shall suffer. It allocates per faulty datagram.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "farverbs/base/prng.h"
#include "farverbs/io/port.h"

namespace farverbs::io {

// Each is the probability that it happens to a datagram, 0 to 1; at most one happens to each, in
// this order of precedence.
struct FaultRates {
  double loss = 0;
  double duplication = 0;
  double corruption = 0;  // one to three bits are flipped
  double reordering =
      0;  // delivered after 1 to reorder_distance later datagrams, or when none come
  unsigned reorder_distance = 8;
};

struct FaultCounters {
  uint64_t lost = 0;
  uint64_t duplicated = 0;
  uint64_t corrupted = 0;
  uint64_t reordered = 0;
};

class FaultPort final : public Port {
 public:
  FaultPort(std::unique_ptr<Port> inner, const FaultRates& rates, uint64_t seed)
      : inner_(std::move(inner)), rates_(rates), prng_(seed) {}

  // From the next datagram on.
  void set_rates(const FaultRates& rates) { rates_ = rates; }
  const FaultCounters& faults() const { return faults_; }
  Port& inner() { return *inner_; }

  Endpoint local() const override { return inner_->local(); }
  bool has_source(uint8_t source) const override { return inner_->has_source(source); }
  Endpoint local_at(uint8_t source) const override { return inner_->local_at(source); }
  const PortLimits& limits() const override { return inner_->limits(); }
  const PortCounters& counters() const override { return inner_->counters(); }
  SendStatus send(const TxFlow& flow, const wire::TxBurst& burst) override {
    return inner_->send(flow, burst);
  }
  size_t receive(std::span<RxBurst> bursts) override;
  int wait_fd() const override { return inner_->wait_fd(); }
  std::vector<int> sockets() const override { return inner_->sockets(); }

 private:
  enum class Fate { kUnharmed, kLost, kDuplicated, kCorrupted, kReordered };
  struct Held {
    std::vector<std::byte> bytes;
    RxBurst burst;       // its bytes are those above
    unsigned after = 0;  // so many more datagrams
  };

  Fate draw();
  bool take_next(RxBurst& out);
  bool suffer(Fate fate, const RxBurst& datagram, RxBurst& out);
  size_t until_next_held() const;
  bool release_held(RxBurst& out, bool all);
  void keep(Held held, RxBurst& out);
  void pass(size_t datagrams);

  std::unique_ptr<Port> inner_;
  FaultRates rates_;
  Prng prng_;
  FaultCounters faults_;

  std::array<RxBurst, 32> taken_;  // what inner_ gave; gone through up to byte offset_ of next_
  size_t taken_count_ = 0;
  size_t next_ = 0;
  size_t offset_ = 0;
  bool has_fate_ = false;  // of the datagram at offset_, drawn while a run before it was delivered
  Fate fate_ = Fate::kUnharmed;
  bool repeats_ = false;  // repeat_ comes next
  RxBurst repeat_;
  std::vector<Held> held_;
  std::vector<Held> kept_;  // delivered; the caller looks at them until its next call
};

}  // namespace farverbs::io
