// RoundTrips: probes on requests that ask for an acknowledgement, and the smoothed round-trip time
// they tell (RFC 6298's estimator). A rewind takes all probes back, because the acknowledgement of
// a packet that was sent twice says nothing about either (Karn).
#pragma once

#include <cstdint>

#include "farverbs/base/ids.h"
#include "farverbs/base/ring.h"
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
    const bool due = probes_.empty() || (probe.sent - newest_).ns() >= smoothed_ns_ / kPerRoundTrip;
    if (probes_.size() == kMost || !due) return;
    newest_ = probe.sent;
    probes_.push_back(probe);
  }
  // Takes off all probes below `acknowledged`; true if there was one, the newest in `probe`.
  bool take(PacketNumber acknowledged, Probe& probe) {
    bool any = false;
    while (!probes_.empty() && probes_.front().packet < acknowledged) {
      probe = probes_.front();
      probes_.pop_front();
      any = true;
    }
    return any;
  }
  void forget() { probes_.clear(); }

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
  size_t memory_bytes() const { return probes_.memory_bytes(); }

 private:
  static constexpr size_t kMost = 32;
  static constexpr int64_t kPerRoundTrip = 16;  // leaves places for a round trip that grows
  Ring<Probe> probes_;
  Time newest_;
  int64_t smoothed_ns_ = 0;
  int64_t variation_ns_ = 0;
};

}  // namespace farverbs::proto
