// FarController: the congestion controller of the far transport, for paths of 1 ms to a second and
// 10 Mb/s to 10 Gb/s that lose packets by chance. It keeps BBR's model, a delivery rate and a least
// RTT (draft-ietf-ccwg-bbr), and steers the sending rate so that a queue of a few milliseconds
// stands at the bottleneck: enough for the line never to idle, too little to hurt anybody.
//
//   startup   doubles each round, from the rate that the first train of packets shows or that is
//             remembered of the path, until a queue, a plateau or marks are seen
//   drain     until startup's queue is gone
//   cruise    rate = delivered / (1 - chance loss) x a gain by how far the queue is from its target
//   probe     when the queue stays empty: a quarter more, and doubling while that delivers more
//   refresh   now and then less than the line carries for about a round: shows the RTT without a
//             queue, the loss that is not our doing, and whether the queue is somebody else's
//
// Losses are congestion only beyond the share that is lost in refresh rounds too and together with
// a queue. Beside a flow that fills the queue (what refresh could not empty is not ours) the window
// follows CUBIC's law until the queue empties again. A path with an RTT below a millisecond is
// local: not paced, the window alone rules (see BdpWindow).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "farverbs/cc/controller.h"
#include "farverbs/cc/cubic_window.h"
#include "farverbs/cc/path_model.h"
#include "farverbs/cc/start_hint.h"
#include "farverbs/cc/train_estimate.h"

namespace farverbs::cc {

// What is worth remembering of a path between connections.
struct RememberedPath {
  BitRate rate;
  Duration min_rtt;
};

struct FarConfig {
  uint64_t packet_bytes = 1472;  // a full packet
  Duration initial_rtt;          // of the connection's set-up; zero: unknown
  std::optional<RememberedPath> remembered;
  bool background = false;  // gives way to everybody, see ledbat.h
  uint64_t local_floor_bytes = 256 * 1024;
  uint64_t local_ceiling_bytes = 1024 * 1024;
  uint64_t max_window_bytes = uint64_t{4} << 30;
};

class FarController final : public Controller {
 public:
  enum class Phase : uint8_t { kStartup, kDrain, kCruise, kProbe, kRefresh };

  explicit FarController(const FarConfig& config = {});

  void on_sent(Time now, uint64_t bytes, uint64_t inflight_bytes) override;
  void on_feedback(const Sample& sample) override;
  void on_timeout(Time now) override;
  Allowance allowance() const override { return allowance_; }

  // What it believes, for tools and tests.
  Phase phase() const { return phase_; }
  const char* phase_name() const;  // "startup", ..., "competing", "local"
  bool competing() const { return competing_; }
  bool local() const;
  BitRate bandwidth() const;  // delivered
  Duration min_rtt() const { return rtt_.least(); }
  Duration queue_delay() const { return queue_; }
  double loss_floor() const { return loss_.floor(); }
  std::optional<RememberedPath> remember() const;  // nothing before startup has ended

 private:
  void note_rtt(const Sample& sample);
  void note_round(const Sample& sample);
  void note_startup(const Sample& sample);
  void note_competition(const Sample& sample);
  void begin_round(const Sample& sample);
  void end_round(const Sample& sample);
  void count_losses(const Sample& sample);
  void update_interval(const Sample& sample);
  void judge_losses(const Sample& sample);
  void judge_local_losses(bool excess);
  void respond_to_congestion(Time now);
  void undo();

  void advance(const Sample& sample, bool round_ended);
  void advance_startup();
  void leave_startup(Time now);
  void advance_cruise(Time now, bool interval_ended);
  void advance_probe(Time now, bool round_ended);
  void advance_refresh(const Sample& sample, bool interval_ended);
  void enter(Phase phase, Time now);
  void begin_refresh(Time now);
  bool found_lower(Time now) const;
  bool wants_low(Time now) const;
  void compete(Time now, bool yes);

  void allow(Time now);
  void resume(Duration rtt);
  double initial_window() const;
  void allow_start();
  void allow_local();
  void allow_startup();

  double bps() const { return rates_.greatest(); }
  double wire_bps() const { return bps() / (1 - loss_.floor()); }
  double product(double rate_bps, Duration rtt) const { return rate_bps / 8 * rtt.to_seconds(); }
  Duration target() const;
  Duration queue_now() const;
  double chance_in_flight() const;
  bool pressed() const;   // we give way to a queue
  Duration much() const;  // a queue that ours alone cannot be
  double packet() const { return static_cast<double>(config_.packet_bytes); }
  void set(double window, double rate_bps);

  FarConfig config_;
  Allowance allowance_;
  Phase phase_ = Phase::kStartup;
  Time phase_since_;

  LeastRtt rtt_;
  RoundRates rates_;
  LossFloor loss_;
  Duration smoothed_rtt_;
  Duration queue_;           // standing, as of the last two intervals
  Duration jitter_;          // mean spread of RTTs that is not ours
  Duration queue_in_round_;  // greatest of them
  uint64_t delivered_ = 0;
  uint64_t inflight_ = 0;
  uint64_t prior_inflight_ = 0;
  double batch_ = 0;  // bytes acknowledged at once, lately at most

  struct Round {
    Time since;
    uint64_t end = 0;  // delivered bytes
    uint64_t delivered = 0;
    uint64_t acked = 0;
    uint64_t lost = 0;
    uint64_t marked = 0;
    uint64_t spurious = 0;
    Duration least = Duration::max();
    uint32_t samples = 0;
    bool limited = false;
    bool restrained = false;  // by us, for a while
    Duration lost_queue;      // greatest that was seen with losses
    double ordinary_acked = 0;
    double ordinary_lost = 0;
    double low_acked = 0;
    double low_lost = 0;
  };
  Round round_;
  double best_sample_ = 0;  // startup

  // A quarter of a round.
  struct Interval {
    Time since;
    uint64_t delivered = 0;
    Duration least = Duration::max();
    uint32_t samples = 0;
    int64_t rtt_sum_ns = 0;
    uint64_t inflight_sum = 0;
  };
  Interval interval_;
  Duration before_least_ = Duration::max();
  uint32_t slow_intervals_ = 0;
  double slow_bps_ = 0;
  double interval_bps_ = 0;  // greatest while a queue was seen in startup

  // Startup.
  uint64_t train_bytes_;
  uint64_t train_left_;
  TrainEstimate train_;
  StartHint hint_;
  double plateau_bps_ = 0;
  uint32_t plateau_rounds_ = 0;

  // Cruise.
  double gain_ = 1;
  double cut_ = 1;
  uint32_t empty_intervals_ = 0;
  Duration target_limit_ = Duration::max();
  double mark_share_ = 0;
  Duration probe_hold_;
  Time probe_after_;
  double probe_from_bps_ = 0;
  uint32_t probe_rounds_ = 0;
  double probe_gain_ = 1;

  // Refresh.
  Time refreshed_;
  double refresh_gain_ = 1;
  double refresh_depth_ = 0;
  Duration refresh_least_;  // before it
  Duration low_wait_;
  Time low_at_;
  uint64_t low_begin_ = 0;  // delivered bytes
  uint64_t low_end_ = 0;
  uint64_t calm_begin_ = 0;

  // Competing.
  bool competing_ = false;
  CubicWindow cubic_;
  bool ramping_ = false;
  double peak_bps_ = 0;
  QueueWitness witness_;
  QueueWitness::View test_from_;
  double test_window_ = 0;
  uint64_t test_until_ = 0;  // delivered bytes; 0: the window is not reached yet
  uint32_t queue_cleared_ = 0;
  Time competed_;
  bool wary_ = false;
  bool relearn_ = false;
  uint64_t yielded_until_ = 0;  // delivered bytes

  // Undo.
  struct Before {
    uint64_t lost = 0;
    uint64_t spurious = 0;
    Duration target_limit;
    double bps = 0;
    bool valid = false;
  };
  Before before_;

  bool timed_out_ = false;
  double local_cap_ = 0;
};

}  // namespace farverbs::cc
