#include "farverbs/cc/bdp_window.h"

#include <algorithm>

namespace farverbs::cc {
namespace {

// Below this RTT a path is local.
constexpr Duration kLocalRtt = Duration::milliseconds(1);

// Startup. A window of 2 x BDP would just fill a queue of one BDP; 1.8 leaves room for an estimate
// that is a little high, and reaches 1 Gb/s x 100 ms from 32 KiB in 11 rounds.
constexpr double kStartupWindowGain = 1.8;
// The rate measured over a round lags behind: to double a round one has to send at 4 ln 2 times of
// it (the BBR draft, section 4.3.1). The window is what limits; this spreads it over the round.
constexpr double kStartupPacingGain = 2.77;
// Startup ends after this many rounds that grow less than 25 %, or after one if a queue is seen
// too.
constexpr double kPlateauGrowth = 1.25;
constexpr uint32_t kPlateauRounds = 3;
// A queue is seen when the least RTT of a whole round is this much above the path's least.
constexpr double kQueueSeen = 1.25;

// Cruise. Pacing a little above the estimate keeps the link full although the estimate is measured
// with a granularity of bursts; the window bounds the queue that this builds to a fifth of the BDP.
constexpr double kCruiseWindowGain = 1.2;
constexpr double kCruisePacingGain = 1.02;
constexpr uint32_t kCruiseRounds = 8;

constexpr double kProbePacingGain = 1.25;
constexpr double kProbeWindowGain = 1.35;
// A probe goes on while its rounds deliver this much more.
constexpr double kProbeGrowth = 1.08;

constexpr double kDrainWindowGain = 1.0;
constexpr double kDrainPacingGain = 0.75;
constexpr uint32_t kDrainRounds = 3;  // at most: a wrong estimate must not hold it there

// Refresh. Every half life of the RTT filter; 15 % less for a round in 5 s costs 0.3 % at 100 ms,
// and corrects an RTT that was 15 % too high, so that the estimate cannot creep upwards.
constexpr Duration kRefreshInterval = Duration::seconds(5);
constexpr double kRefreshWindowGain = 0.85;
// A local path's RTT can be nearly all queue; a round there costs nothing.
constexpr double kLocalRefreshWindowGain = 0.5;
constexpr uint32_t kRefreshRounds = 4;  // at most, for reaching the smaller window

// Local. Scheduling makes deliveries bunch: two BDP keep the peer fed between its wake-ups.
constexpr double kLocalWindowGain = 2.0;
constexpr double kLocalProvenGain = 1.25;

// The least RTT is remembered for 10 s at most.
constexpr Duration kRttBucketSpan = Duration::milliseconds(2500);

// Loss in a full pipe. The window falls to 0.7 of what was in flight, comes back to just below it
// in a few rounds and stays there, since every further loss costs a window; after the path had this
// time to change, it grows again.
constexpr double kLossCut = 0.7;
// What go-back-N took back is still in the full queue when it is sent again: that has to be slower
// than the link for a round (the round in which the loss is told ends at once), or it is lost
// again.
constexpr uint32_t kLossDrainRounds = 2;
constexpr double kLossHold = 0.93;
// But not below the BDP and what the granularity of acknowledgements takes: a loss without any
// queue is chance, and shrinking for one after the other would starve the pipe.
constexpr uint64_t kAcknowledgedAtOnce = 64;  // packets
constexpr double kMostGranularity = 0.15;     // of the BDP
// Losses that follow each other within this many rounds are not chance, or cost so much that it
// does not matter: each lowers that bound by 5 %, about what one loss in 16 rounds costs.
constexpr uint32_t kLossSpacing = 16;  // rounds
constexpr double kLossStep = 0.05;
constexpr uint32_t kMostLossSteps = 5;
constexpr Duration kLossMemory = Duration::seconds(5);  // and on local paths
constexpr Duration kShortestLossMemory = Duration::milliseconds(500);
constexpr int64_t kLossMemoryRounds = 100;
constexpr double kLossRegrowth = 1.02;
// With no more than this much of the BDP in flight the pipe was not full: the loss was chance.
constexpr double kFullPipe = 1.05;
// On a local path the socket buffer of the peer may be smaller than the floor; but one super-buffer
// of 64 KB must go.
constexpr uint64_t kLocalFloorDivisor = 4;

uint64_t scaled(uint64_t value, double gain) {
  return static_cast<uint64_t>(static_cast<double>(value) * gain);
}
Duration scaled(Duration value, double gain) {
  return Duration::nanoseconds(static_cast<int64_t>(static_cast<double>(value.ns()) * gain));
}

}  // namespace

BdpWindow::BdpWindow(const BdpWindowConfig& config)
    : config_(config), startup_window_(config.initial_window_bytes) {
  rtt_buckets_.fill(Duration::max());
}

BitRate BdpWindow::bandwidth() const {
  return BitRate::bits_per_second(*std::max_element(rates_.begin(), rates_.end()));
}

bool BdpWindow::local() const { return min_rtt_ > Duration{} && min_rtt_ < kLocalRtt; }

uint64_t BdpWindow::bdp() const { return bandwidth().bytes_for(min_rtt_); }

uint64_t BdpWindow::unqueued() const {
  const uint64_t product = bdp();
  return product +
         std::min(kAcknowledgedAtOnce * config_.packet_bytes, scaled(product, kMostGranularity));
}

bool BdpWindow::queue_is_seen() const {
  return last_round_rtt_ != Duration::max() && last_round_rtt_ > scaled(min_rtt_, kQueueSeen);
}

void BdpWindow::on_sent(Time, uint64_t, uint64_t) {}

void BdpWindow::on_feedback(const Sample& sample) {
  update_rtt(sample);
  const bool round_ended = update_round(sample);
  update_rate(sample, round_ended);
  if (sample.lost_bytes > 0) update_loss(sample);
  if (round_ended) update_loss_cap(sample.now);
  update_phase(sample, round_ended);
}

void BdpWindow::update_rtt(const Sample& sample) {
  if (!sample.has_rtt || sample.rtt <= Duration{}) return;
  if (sample.now - rtt_bucket_since_ >= kRttBucketSpan) {
    rtt_bucket_since_ = sample.now;
    rtt_bucket_ = (rtt_bucket_ + 1) % kRttBuckets;
    rtt_buckets_[rtt_bucket_] = Duration::max();
  }
  rtt_buckets_[rtt_bucket_] = std::min(rtt_buckets_[rtt_bucket_], sample.rtt);
  min_rtt_ = *std::min_element(rtt_buckets_.begin(), rtt_buckets_.end());
  round_rtt_ = std::min(round_rtt_, sample.rtt);
}

bool BdpWindow::update_round(const Sample& sample) {
  left_bytes_ += sample.acked_bytes + sample.lost_bytes;
  if (left_bytes_ < round_end_ || sample.acked_bytes == 0) return false;
  round_end_ = left_bytes_ + sample.inflight_bytes;
  last_round_rtt_ = round_rtt_;
  round_rtt_ = Duration::max();
  return true;
}

void BdpWindow::update_rate(const Sample& sample, bool round_ended) {
  const uint64_t bps = sample.delivery_rate.bps();
  // A rate that the application limited says only that the path can do as much.
  if (bps > 0 && (!sample.application_limited || bps > bandwidth().bps())) {
    rates_[rate_round_] = std::max(rates_[rate_round_], bps);
    round_has_rate_ = true;
  }
  // Rounds that told nothing do not push out what is known.
  if (round_ended && round_has_rate_) {
    if (phase_ == Phase::kStartup) update_startup();
    rate_round_ = (rate_round_ + 1) % kRateRounds;
    rates_[rate_round_] = 0;
    round_has_rate_ = false;
  }
}

void BdpWindow::update_startup() {
  if (bandwidth().bps() >= scaled(plateau_bps_, kPlateauGrowth)) {
    plateau_bps_ = bandwidth().bps();
    plateau_rounds_ = 0;
  } else {
    ++plateau_rounds_;
  }
}

void BdpWindow::update_loss(const Sample& sample) {
  if (sample.now < ignore_loss_until_) return;  // the same event
  const uint64_t before = sample.inflight_bytes + sample.lost_bytes + sample.acked_bytes;
  ignore_loss_until_ =
      sample.now +
      std::max(last_round_rtt_ == Duration::max() ? min_rtt_ : last_round_rtt_, min_rtt_);
  const bool again = rounds_since_loss_ < kLossSpacing;
  rounds_since_loss_ = 0;
  loss_steps_ = again ? std::min(loss_steps_ + 1, kMostLossSteps) : 0;
  if (!again && before <= scaled(bdp(), kFullPipe)) return;
  if (phase_ == Phase::kStartup) {
    // Startup's window is above the BDP that it knows by intention; only a queue tells that the
    // pipe is full.
    if (!local() && !queue_is_seen() && plateau_rounds_ == 0) return;
    plateau_rounds_ = kPlateauRounds;
  }
  loss_level_ = before;
  loss_time_ = sample.now;
  const uint64_t least = local() ? config_.local_floor_bytes / kLocalFloorDivisor : min_window();
  loss_cap_ = std::max(least, scaled(before, kLossCut));
  if (local() || phase_ == Phase::kStartup) return;
  enter(Phase::kDrain);
  drain_least_rounds_ = kLossDrainRounds;
}

void BdpWindow::update_loss_cap(Time now) {
  ++rounds_since_loss_;
  if (loss_cap_ == 0) return;
  const Duration memory =
      local() ? kLossMemory
              : std::clamp(min_rtt_ * kLossMemoryRounds, kShortestLossMemory, kLossMemory);
  if (now - loss_time_ < memory) {
    const uint64_t hold =
        std::max(scaled(loss_level_, kLossHold), scaled(unqueued(), 1 - kLossStep * loss_steps_));
    if (loss_cap_ < hold) loss_cap_ += (hold - loss_cap_ + 1) / 2;
    return;
  }
  loss_cap_ = scaled(loss_cap_, kLossRegrowth) + 1;
  if (loss_cap_ > base_window()) loss_cap_ = 0;
}

void BdpWindow::enter(Phase phase) {
  phase_ = phase;
  rounds_in_phase_ = 0;
  drain_least_rounds_ = 0;
  refresh_reached_ = false;
  if (phase == Phase::kProbe) probe_bps_ = bandwidth().bps();
}

void BdpWindow::update_phase(const Sample& sample, bool round_ended) {
  if (round_ended) ++rounds_in_phase_;
  const bool small_enough = sample.inflight_bytes <= base_window();
  switch (phase_) {
    case Phase::kStartup:
      if (plateau_rounds_ >= kPlateauRounds || (plateau_rounds_ > 0 && queue_is_seen())) {
        refreshed_ = sample.now;
        enter(local() ? Phase::kCruise : Phase::kDrain);
      }
      break;
    case Phase::kDrain:
      if ((small_enough && rounds_in_phase_ >= drain_least_rounds_) ||
          rounds_in_phase_ >= kDrainRounds) {
        enter(Phase::kCruise);
      }
      break;
    case Phase::kCruise:
      if (sample.now - refreshed_ >= kRefreshInterval) {
        enter(Phase::kRefresh);
      } else if (!local() && rounds_in_phase_ >= kCruiseRounds) {
        enter(Phase::kProbe);
      }
      break;
    case Phase::kProbe:
      if (!round_ended) break;
      if (bandwidth().bps() >= scaled(probe_bps_, kProbeGrowth)) {
        probe_bps_ = bandwidth().bps();  // it delivers more: go on
      } else if (rounds_in_phase_ >= 2) {
        // The first round that ends carried the rate from before the probe.
        enter(Phase::kDrain);
      }
      break;
    case Phase::kRefresh:
      if (!refresh_reached_) {
        refresh_reached_ = small_enough || rounds_in_phase_ >= kRefreshRounds;
        if (refresh_reached_) rounds_in_phase_ = 0;
      } else if (rounds_in_phase_ >= 2) {  // a whole round was sent with the small window
        refreshed_ = sample.now;
        enter(Phase::kCruise);
      }
      break;
  }
}

void BdpWindow::on_timeout(Time) {
  // Nothing came back for a long time: what was known may be wrong. The RTT is kept, since it
  // decides what kind of path this is.
  rates_.fill(0);
  round_has_rate_ = false;
  plateau_bps_ = 0;
  plateau_rounds_ = 0;
  loss_cap_ = 0;
  startup_window_ = min_window();
  round_end_ = left_bytes_;
  enter(Phase::kStartup);
}

double BdpWindow::window_gain() const {
  switch (phase_) {
    case Phase::kStartup:
      return kStartupWindowGain;
    case Phase::kDrain:
      return kDrainWindowGain;
    case Phase::kCruise:
      return kCruiseWindowGain;
    case Phase::kProbe:
      return kProbeWindowGain;
    case Phase::kRefresh:
      return local() ? kLocalRefreshWindowGain : kRefreshWindowGain;
  }
  return 1;
}

double BdpWindow::pacing_gain() const {
  switch (phase_) {
    case Phase::kStartup:
      return kStartupPacingGain;
    case Phase::kDrain:
      return kDrainPacingGain;
    case Phase::kCruise:
      return kCruisePacingGain;
    case Phase::kProbe:
      return kProbePacingGain;
    case Phase::kRefresh:
      return kCruisePacingGain;
  }
  return 1;
}

// The window but for losses.
uint64_t BdpWindow::base_window() const {
  const uint64_t product = bdp();
  if (phase_ == Phase::kStartup) {
    uint64_t window = std::max(startup_window_, scaled(product, kStartupWindowGain));
    if (local() && product > 0 && startup_window_ >= config_.initial_window_bytes) {
      window = std::max(window, config_.local_floor_bytes);
    }
    return std::min(window, config_.max_window_bytes);
  }
  uint64_t window = scaled(product, window_gain());
  if (local() && phase_ != Phase::kRefresh) {
    window = std::max({config_.local_floor_bytes,
                       std::min(scaled(product, kLocalWindowGain), config_.local_ceiling_bytes),
                       scaled(product, kLocalProvenGain)});
  }
  return std::clamp(window, min_window(), config_.max_window_bytes);
}

Allowance BdpWindow::allowance() const {
  uint64_t window = base_window();
  if (loss_cap_ != 0) window = std::min(window, std::max(loss_cap_, min_window()));
  const uint64_t bps = bandwidth().bps();
  if (bps == 0 || min_rtt_ < kLocalRtt) return {window, BitRate{}};
  return {window, BitRate::bits_per_second(scaled(bps, pacing_gain()))};
}

}  // namespace farverbs::cc
