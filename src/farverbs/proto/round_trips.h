// RoundTrips: probes on requests that ask for an acknowledgement, and the smoothed round-trip time
// they tell (RFC 6298's estimator). A rewind takes all probes back, because the acknowledgement of
// a packet that was sent twice says nothing about either (Karn).
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "farverbs/base/ids.h"
#include "farverbs/base/time.h"

namespace farverbs::proto {

class RoundTrips {
 public:
  struct Probe {
    PacketNumber packet;
    Time sent;
    uint64_t delivered;
  };

  // Probes are spread over the round trip. Taken whenever there is a place, they would crowd at the
  // beginning of each window and tell of the same moment of the path again and again.
  void add(const Probe& probe) {
    const bool due = count_ == 0 || (probe.sent - newest_).ns() >= smoothed_ns_ / kPerRoundTrip;
    if (count_ == kMost || !due) return;
    if (probes_ == nullptr) probes_ = std::make_unique<std::array<Probe, kMost>>();
    newest_ = probe.sent;
    (*probes_)[(head_ + count_++) % kMost] = probe;
  }
  // Takes off all probes below `acknowledged`; true if there was one, the newest in `probe`.
  bool take(PacketNumber acknowledged, Probe& probe) {
    bool any = false;
    while (count_ > 0 && (*probes_)[head_].packet < acknowledged) {
      probe = (*probes_)[head_];
      head_ = static_cast<uint8_t>((head_ + 1) % kMost);
      --count_;
      any = true;
    }
    return any;
  }
  void forget() { count_ = 0; }

  void measured(Duration rtt) {
    const int64_t sample = rtt.ns();
    if (smoothed_ns_ == 0) {
      smoothed_ns_ = sample;
      variation_ns_ = sample / 2;
      return;
    }
    const int64_t error = sample > smoothed_ns_ ? sample - smoothed_ns_ : smoothed_ns_ - sample;
    variation_ns_ += (error - variation_ns_) / 4;
    smoothed_ns_ += (sample - smoothed_ns_) / 8;
  }
  // How long an answer surely takes; zero before anything was measured.
  Duration patience() const { return Duration::nanoseconds(smoothed_ns_ + 4 * variation_ns_); }
  size_t memory_bytes() const { return probes_ == nullptr ? 0 : sizeof *probes_; }

 private:
  static constexpr uint8_t kMost = 32;
  static constexpr int64_t kPerRoundTrip = 16;  // leaves places for a round trip that grows
  std::unique_ptr<std::array<Probe, kMost>> probes_;
  Time newest_;
  int64_t smoothed_ns_ = 0;
  int64_t variation_ns_ = 0;
  uint8_t head_ = 0;
  uint8_t count_ = 0;
};

}  // namespace farverbs::proto
