// SteeringRepair: finds out which socket of a shared (address, port) belongs to which slot, by
// probes, and attaches the program that says so. A joining process runs it, and whoever notices
// that a datagram of a live slot came to the wrong process. Event-driven: nothing blocks, and what
// a stopped process does not answer stays as it was.
#pragma once

#include <bitset>

#include "farverbs/base/prng.h"
#include "farverbs/base/time.h"
#include "farverbs/io/file_descriptor.h"
#include "farverbs/io/port.h"
#include "farverbs/io/steering.h"

namespace farverbs::io {

class SteeringRepair {
 public:
  // `shared_fd` is a socket of the group, for attaching programs; `shared` is its address.
  static Result<SteeringRepair> create(const Endpoint& shared, int shared_fd, uint64_t nonce_seed);

  // Attaches the program for members that came in order; what the first member does.
  void attach_default();
  // Asks for a round of probes, now or when the pause after the last one is over.
  void request() { requested_ = true; }
  bool idle() const { return !requested_ && !probing_; }
  // Starts, continues or ends a round.
  void step(Time now);
  // Takes answers, those that come after the end of a round too. Without it fd() stays readable.
  void collect();
  // The descriptor on which answers come.
  int fd() const { return fd_.get(); }

  uint64_t rounds() const { return rounds_; }
  uint64_t programs_attached() const { return programs_attached_; }

  // What the answer to a probe is, or nothing if it did not come from this host.
  static std::optional<SteeringProbe> answer(const SteeringProbe& probe, uint8_t own_slot,
                                             const Endpoint& source, const Endpoint& local);

 private:
  SteeringRepair(const Endpoint& shared, int shared_fd, FileDescriptor fd, uint64_t seed)
      : shared_(shared), shared_fd_(shared_fd), fd_(std::move(fd)), nonces_(seed) {}
  void start(Time now);
  void finish(Time now);
  void attach();

  Endpoint shared_;
  int shared_fd_;
  FileDescriptor fd_;
  Prng nonces_;

  SteeringTable table_;
  SteeringTable before_;  // the table when the round began
  bool requested_ = false;
  bool probing_ = false;
  uint64_t nonce_ = 0;
  std::bitset<kSlots> live_;  // when the round began
  std::bitset<kSlots> unanswered_;
  std::bitset<kSlots> awake_;  // of those that answered; a stopped process's is not among them
  Time deadline_;
  Time next_round_;
  Duration pause_;
  uint64_t rounds_ = 0;
  uint64_t programs_attached_ = 0;
};

}  // namespace farverbs::io
