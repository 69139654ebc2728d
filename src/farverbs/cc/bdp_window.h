// BdpWindow: the congestion controller of standard RC. It models the path by two numbers, the
// greatest recent delivery rate and the least recent RTT, and keeps little more than their product
// in flight (the ideas of BBR, draft-cardwell-iccrg-bbr-congestion-control). Standing queues are
// kept small because standard RC repairs a loss by sending a whole window again (go-back-N).
//
//   startup   the window is 1.8 x the estimate and so nearly doubles each round, until the rate
//             grows no more; a queue of one BDP does not overflow meanwhile
//   drain     no more than the BDP, until startup's or a probe's queue is gone
//   cruise    1.2 x BDP, paced just above the estimate
//   probe     1.25 x the rate for a round, as long as that delivers more
//   refresh   every few seconds less than the BDP for a round, to see the RTT without a queue
//
// A path with an RTT below a millisecond is local: its queues are socket buffers, its RTTs mostly
// scheduling, and pacing it would cost more than it gives. There the window alone rules, between a
// floor and 1 MiB unless the product proves more.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "farverbs/cc/controller.h"

namespace farverbs::cc {

struct BdpWindowConfig {
  uint64_t packet_bytes = 1100;                // a full packet
  uint64_t initial_window_bytes = 32 * 1024;   // before anything is known; less than a home queue
  uint64_t local_floor_bytes = 256 * 1024;     // least window of a local path without losses
  uint64_t local_ceiling_bytes = 1024 * 1024;  // most there, unless rate x RTT proves more
  uint64_t max_window_bytes = 512u << 20;
};

class BdpWindow final : public Controller {
 public:
  enum class Phase : uint8_t { kStartup, kDrain, kCruise, kProbe, kRefresh };

  explicit BdpWindow(const BdpWindowConfig& config = {});

  void on_sent(Time now, uint64_t bytes, uint64_t inflight_bytes) override;
  void on_feedback(const Sample& sample) override;
  void on_timeout(Time now) override;
  Allowance allowance() const override;

  // What it believes, for tools and tests.
  Phase phase() const { return phase_; }
  BitRate bandwidth() const;
  Duration min_rtt() const { return min_rtt_; }  // zero: unknown
  bool local() const;

 private:
  static constexpr size_t kRateRounds = 10;
  static constexpr size_t kRttBuckets = 4;

  void update_rtt(const Sample& sample);
  bool update_round(const Sample& sample);  // true: a round trip has ended
  void update_rate(const Sample& sample, bool round_ended);
  void update_loss(const Sample& sample);
  void update_loss_cap(Time now);
  void update_phase(const Sample& sample, bool round_ended);
  void update_startup();
  void enter(Phase phase);
  bool queue_is_seen() const;
  uint64_t bdp() const;
  uint64_t unqueued() const;
  uint64_t min_window() const { return 4 * config_.packet_bytes; }
  uint64_t base_window() const;
  double window_gain() const;
  double pacing_gain() const;

  BdpWindowConfig config_;
  Phase phase_ = Phase::kStartup;
  uint32_t rounds_in_phase_ = 0;
  uint32_t drain_least_rounds_ = 0;
  bool refresh_reached_ = false;
  Time refreshed_;
  uint64_t startup_window_;

  // The least RTT, per bucket of time; the buckets pass only while samples come.
  std::array<Duration, kRttBuckets> rtt_buckets_;
  size_t rtt_bucket_ = 0;
  Time rtt_bucket_since_;
  Duration min_rtt_;
  Duration round_rtt_ = Duration::max();       // least of this round
  Duration last_round_rtt_ = Duration::max();  // least of the one before

  // The greatest rate, per round.
  std::array<uint64_t, kRateRounds> rates_{};
  size_t rate_round_ = 0;
  bool round_has_rate_ = false;

  // A round ends when all that was in flight at its start has left the flight.
  uint64_t left_bytes_ = 0;
  uint64_t round_end_ = 0;

  // Startup: rounds without growth, and the rate to outgrow.
  uint64_t plateau_bps_ = 0;
  uint32_t plateau_rounds_ = 0;
  // Probe: the rate to outgrow.
  uint64_t probe_bps_ = 0;

  // After a loss in a full pipe: how much was in flight then, and the window that results.
  uint64_t loss_level_ = 0;
  uint64_t loss_cap_ = 0;  // 0: none
  uint32_t loss_steps_ = 0;
  uint32_t rounds_since_loss_ = std::numeric_limits<uint32_t>::max() / 2;
  Time loss_time_;
  Time ignore_loss_until_;
};

}  // namespace farverbs::cc
