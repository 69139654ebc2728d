#include "farverbs/cc/far_controller.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace farverbs::cc {
namespace {

// Below this RTT a path is local.
constexpr Duration kLocalRtt = Duration::milliseconds(1);
constexpr double kLocalFloorDivisor = 4;
constexpr double kLocalExcess = 0.05;
constexpr double kLocalCut = 0.7;
constexpr double kLocalRegrowth = 1.002;  // a round
constexpr Duration kLocalHold = Duration::seconds(60);
constexpr Duration kLocalFloorTime = Duration::milliseconds(2);
constexpr double kLeastLocalFloor = 16 * 1024;

// Rounds of short paths are joined to this long, intervals (quarters of a round) likewise: below it
// bursts and merges are seen rather than rates.
constexpr Duration kLeastRound = Duration::milliseconds(5);
constexpr Duration kLeastInterval = Duration::milliseconds(2);
constexpr uint32_t kLeastIntervalSamples = 3;

// The queue that cruise keeps: two milliseconds at 1 Gb/s, and two and a half more for each factor
// of ten less. So of two flows that see the same queue the slower one wants a longer one and gains.
constexpr double kTargetMs = 2;
constexpr double kTargetMsPerDecade = 2.5;
constexpr double kTargetBps = 1e9;
constexpr double kLeastTargetMs = 1;
constexpr double kBackgroundTargetMs = 1.2;
constexpr double kMostTargetMs = 6;
constexpr int64_t kTargetRttDivisor = 4;  // at most
constexpr double kTargetFullRttMs = 32;   // shorter paths want less

// The gain's slope: this part of the queue's error is corrected in a round trip. What is done is
// seen one and a quarter round trips later; more than 0.8 would swing.
constexpr double kGainSlope = 0.7;
constexpr Duration kGainLeastRtt = Duration::milliseconds(4);
constexpr double kMostGain = 1.02;
constexpr double kLeastGain = 0.9;
constexpr double kBackgroundLeastGain = 0.5;
constexpr double kBackgroundSlope = 0.25;
// So much more than the target, and a quarter of that, is pressing.
constexpr Duration kMargin = Duration::milliseconds(1);
constexpr Duration kWaryMargin = Duration::microseconds(300);
constexpr Duration kBackgroundHold = Duration::seconds(60);

constexpr double kStartupGain = 2.77;  // 4 ln 2, see the BBR draft
constexpr double kStartupGrowth = 1.25;
constexpr uint32_t kPlateauRounds = 3;
// That part of packets lost in a round that grows no more ends startup though no queue was seen.
constexpr double kStartupMuchLoss = 0.15;
// A queue is seen when the least of so many RTTs, over an eighth of a round at least, is longer.
constexpr uint32_t kLeastQueuedSamples = 8;
constexpr double kStartupMarks = 0.1;
constexpr double kDrainGain = 0.6;

// A probe begins with what builds a queue of four milliseconds in a round trip.
constexpr double kProbeGainMs = 4;
constexpr double kLeastProbeGain = 0.04;
constexpr double kMostProbeGain = 0.25;
constexpr double kProbeStep = 3;
constexpr double kFastProbeGain = 2;
constexpr uint32_t kProbeRounds = 3;  // without growth; the first ones tell of before
constexpr uint32_t kEmptyIntervals = 16;
constexpr Duration kLeastProbeHold = Duration::milliseconds(200);
constexpr Duration kMostProbeHold = Duration::seconds(8);

constexpr Duration kRefreshInterval = Duration::seconds(5);
constexpr int64_t kRefreshRounds = 20;
constexpr Duration kRefreshFound = Duration::microseconds(700);
constexpr Duration kLowWait = Duration::seconds(1);
constexpr Duration kOwnSpread = Duration::microseconds(700);
constexpr Duration kMostJitter = Duration::milliseconds(12);
constexpr double kSlower = 0.8;
constexpr uint32_t kSlowIntervals = 4;
constexpr double kRefreshShare = 0.96;
constexpr double kOurShare = 0.75;
constexpr double kSmallShare = 0.45;
// The most that was seen of the line is forgotten in a minute.
constexpr double kPeakSeconds = 60;
constexpr uint32_t kClearedIntervals = 6;
constexpr Duration kHoldAfter = Duration::seconds(30);
constexpr Duration kCompeteMemory = Duration::seconds(10);

constexpr double kRamp = 0.25;
constexpr double kNoisePackets = 8;
constexpr double kCongestedCut = 0.85;
constexpr double kCleanFloor = 0.0005;
constexpr double kExcessLoss = 0.02;
// A round that lost more than this was a blackout or a collapse, and says nothing about chance.
constexpr double kMostChance = 0.3;

// The first train: what an access of 20 Mb/s takes in a round trip, within these packets.
constexpr BitRate kTrainRate = BitRate::bits_per_second(20'000'000);
constexpr uint64_t kLeastTrain = 16;
constexpr uint64_t kMostTrain = 64;
constexpr uint64_t kUnknownTrain = 32;
constexpr Duration kUnknownRtt = Duration::milliseconds(100);
// After the train as much again is spread over the round trip.
constexpr uint64_t kInitialWindowTrains = 2;
constexpr double kTrainTrust = 0.7;
constexpr double kMemoryTrust = 0.5;
constexpr double kHintStep = 32;  // initial windows

Duration scaled(Duration d, double gain) {
  return Duration::nanoseconds(static_cast<int64_t>(static_cast<double>(d.ns()) * gain));
}
Duration from_ms(double ms) { return Duration::nanoseconds(static_cast<int64_t>(ms * 1e6)); }

}  // namespace

FarController::FarController(const FarConfig& config)
    : config_(config), cubic_(config.packet_bytes) {
  uint64_t packets = kUnknownTrain;
  if (config.initial_rtt > Duration{}) {
    packets = std::clamp(kTrainRate.bytes_for(config.initial_rtt) / config.packet_bytes,
                         kLeastTrain, kMostTrain);
  }
  if (config.background) packets = kLeastTrain;
  train_bytes_ = train_left_ = packets * config.packet_bytes;
  probe_hold_ = kLeastProbeHold;
  low_wait_ = kLowWait;
  resume(config.initial_rtt);
  allow_start();
}

// Once an RTT is known, if it is the remembered path's.
void FarController::resume(Duration rtt) {
  if (!config_.remembered || config_.background || hint_.known() || rtt == Duration{}) return;
  const Duration was = config_.remembered->min_rtt;
  if (rtt > scaled(was, 0.7) && rtt < scaled(was, 1.4)) {
    hint_.learn(static_cast<double>(config_.remembered->rate.bps()), kMemoryTrust,
                std::numeric_limits<double>::max());
  }
}

bool FarController::local() const {
  const Duration least = rtt_.least();
  return least > Duration{} && least < kLocalRtt;
}

BitRate FarController::bandwidth() const {
  return BitRate::bits_per_second(static_cast<uint64_t>(bps()));
}

const char* FarController::phase_name() const {
  if (local()) return "local";
  if (competing_) return "competing";
  switch (phase_) {
    case Phase::kStartup:
      return "startup";
    case Phase::kDrain:
      return "drain";
    case Phase::kCruise:
      return "cruise";
    case Phase::kProbe:
      return "probe";
    case Phase::kRefresh:
      return "refresh";
  }
  return "";
}

std::optional<RememberedPath> FarController::remember() const {
  if (phase_ == Phase::kStartup || bps() <= 0 || rtt_.least() == Duration{}) return std::nullopt;
  return RememberedPath{bandwidth(), rtt_.least()};
}

Duration FarController::target() const {
  const double decades = std::log10(kTargetBps / std::clamp(bps(), 1e5, 1e11));
  const double rtt_ms = rtt_.least().to_seconds() * 1e3;
  const double wanted = config_.background ? kBackgroundTargetMs
                                           : (kTargetMs + kTargetMsPerDecade * decades) *
                                                 std::min(1.0, rtt_ms / kTargetFullRttMs);
  return std::min(std::min(from_ms(std::clamp(wanted, kLeastTargetMs, kMostTargetMs)),
                           rtt_.least() / kTargetRttDivisor) +
                      jitter_,
                  target_limit_);
}

Duration FarController::queue_now() const {
  // What was seen is a round trip old; what left the flight since has left the queue.
  const double less = static_cast<double>(prior_inflight_) - static_cast<double>(inflight_);
  if (less <= 0 || wire_bps() <= 0) return queue_;
  return std::max(queue_ - Duration::from_seconds(less * 8 / wire_bps()), Duration{});
}

// How much of what is in flight may be there or not by chance, and by batches.
double FarController::noise() const {
  const double packets = static_cast<double>(inflight_) / packet();
  return (kNoisePackets + 3 * std::sqrt(loss_.floor() * packets)) * packet();
}

bool FarController::pressed() const {
  // Who had competitors a moment ago expects them.
  const bool wary = config_.background || wary_;
  return queue_ > target() * 5 / 4 + (wary ? kWaryMargin : kMargin);
}

Duration FarController::much() const {
  return std::max({target() * 5 / 2, Duration::milliseconds(4), rtt_.least() / 8});
}

void FarController::on_sent(Time now, uint64_t bytes, uint64_t inflight_bytes) {
  inflight_ = inflight_bytes;
  if (phase_ != Phase::kStartup || hint_.known() || config_.background) return;
  if (inflight_bytes == bytes && !timed_out_) {
    train_.start(train_bytes_, delivered_);
    train_left_ = train_bytes_;
  }
  train_left_ -= std::min(train_left_, bytes);
  allow(now);
}

void FarController::on_feedback(const Sample& sample) {
  delivered_ = sample.delivered_bytes;
  inflight_ = sample.inflight_bytes;
  prior_inflight_ = sample.prior_inflight_bytes;
  if (sample.has_rtt && sample.rtt > Duration{}) {
    const bool first = rtt_.least() == Duration{};
    if (rtt_.add(sample.now, sample.rtt) && !first) refreshed_ = sample.now;
    smoothed_rtt_ = first ? sample.rtt : smoothed_rtt_ + (sample.rtt - smoothed_rtt_) / 16;
    round_.least = std::min(round_.least, sample.rtt);
    interval_.least = std::min(interval_.least, sample.rtt);
    ++round_.samples;
    ++interval_.samples;
    interval_.rtt_sum_ns += sample.rtt.ns();
    interval_.inflight_sum += sample.prior_inflight_bytes;
    if (first) {
      refreshed_ = sample.now;
      resume(sample.rtt);
    }
  }
  batch_ = std::max(batch_, static_cast<double>(sample.acked_bytes));
  if (sample.lost_bytes > 0 && sample.has_rtt) {
    round_.lost_queue = std::max(round_.lost_queue, sample.rtt - rtt_.least());
  }
  if (phase_ == Phase::kRefresh || phase_ == Phase::kDrain ||
      sample.prior_delivered_bytes < calm_begin_) {
    round_.restrained = true;
  }
  round_.acked += sample.acked_bytes;
  round_.lost += sample.lost_bytes;
  round_.marked += sample.congestion_marked_bytes;
  round_.spurious += sample.spurious_bytes;
  round_.limited |= sample.application_limited;
  count_losses(sample);
  if (sample.spurious_bytes > 0 && before_.valid) {
    before_.spurious += sample.spurious_bytes;
    if (before_.spurious * 2 > before_.lost) undo();
  }
  if (phase_ == Phase::kStartup) {
    const auto rate = static_cast<double>(sample.delivery_rate.bps());
    if (!sample.application_limited || rate > bps()) {
      best_sample_ = std::max(best_sample_, rate);
      rates_.raise(rate);
    }
    if (train_.measuring() && train_.on_delivered(sample.now, delivered_) && !hint_.known() &&
        !train_.rate().is_zero()) {
      peak_bps_ = static_cast<double>(train_.rate().bps());
      hint_.learn(static_cast<double>(train_.rate().bps()), kTrainTrust,
                  kHintStep * initial_window() * 8 / rtt_.least().to_seconds());
    }
  }
  if (competing_ && sample.acked_bytes > 0) {
    if (ramping_) {
      // Until the first loss it takes room as a flow that starts would.
      cubic_.start(sample.now, cubic_.bytes() + kRamp * static_cast<double>(sample.acked_bytes));
    } else {
      cubic_.on_acknowledged(sample.now, sample.acked_bytes, smoothed_rtt_);
    }
  }
  const bool interval_ended =
      interval_.samples >= kLeastIntervalSamples &&
      sample.now - interval_.since >= std::max(rtt_.least() / 4, kLeastInterval);
  if (interval_ended) update_interval(sample);
  const bool round_ended =
      sample.prior_delivered_bytes >= round_.end && sample.acked_bytes > 0 &&
      (phase_ == Phase::kStartup || local() || sample.now - round_.since >= kLeastRound);
  if (round_ended) end_round(sample);
  timed_out_ = timed_out_ && sample.acked_bytes == 0;
  switch (phase_) {
    case Phase::kStartup:
    case Phase::kDrain:
      advance(sample, round_ended);
      break;
    case Phase::kCruise:
      advance_cruise(sample.now, interval_ended);
      break;
    case Phase::kProbe:
      advance_probe(sample.now, round_ended);
      break;
    case Phase::kRefresh:
      advance_refresh(sample, interval_ended);
      break;
  }
  if (round_ended) begin_round(sample);
  allow(sample.now);
}

// Tells the losses of packets that were sent in refresh rounds from those of cruise. What is told
// lost now was sent a quarter of a round trip before what is acknowledged now.
void FarController::count_losses(const Sample& sample) {
  const double acked = static_cast<double>(sample.acked_bytes);
  const double lost = static_cast<double>(sample.lost_bytes);
  const double spurious = static_cast<double>(sample.spurious_bytes);
  const uint64_t lag = static_cast<uint64_t>(product(bps(), rtt_.least() / 4));
  const uint64_t sent_at = sample.prior_delivered_bytes;
  if (sent_at >= low_begin_ + lag && sent_at <= low_end_) {
    round_.low_acked += acked;
    round_.low_lost += std::max(lost - spurious, -round_.low_lost);
  } else if (phase_ == Phase::kCruise && sent_at >= calm_begin_ + lag) {
    round_.ordinary_acked += acked;
    round_.ordinary_lost += std::max(lost - spurious, -round_.ordinary_lost);
  }
}

void FarController::update_interval(const Sample& sample) {
  const Duration least = std::min(before_least_, interval_.least);
  queue_ = std::max(least - rtt_.least(), Duration{});
  queue_in_round_ = std::max(queue_in_round_, queue_);
  const Duration span = sample.now - interval_.since;
  const double rate =
      static_cast<double>(sample.delivered_bytes - interval_.delivered) * 8 / span.to_seconds();
  if (phase_ == Phase::kStartup) {
    const double total = static_cast<double>(round_.acked + round_.lost);
    const double lost = total > 0 ? static_cast<double>(round_.lost) / total : 0;
    hint_.on_interval(rate / (1 - std::min(lost, kMostChance)), queue_ > Duration::milliseconds(2));
  }
  if (phase_ == Phase::kStartup && queue_ > Duration::milliseconds(1)) {
    interval_bps_ = std::max(interval_bps_, rate);
  }
  if (phase_ != Phase::kStartup && !round_.limited && queue_ > much() && rate < kSlower * bps()) {
    // Rounds take long with a long queue: that the line became slower must not wait for four.
    slow_bps_ += rate / kSlowIntervals;
    if (++slow_intervals_ == kSlowIntervals) {
      rates_.reset(slow_bps_);
      witness_.clear();
    }
  } else {
    slow_intervals_ = 0;
  }
  if (slow_intervals_ % kSlowIntervals == 0) slow_intervals_ = 0, slow_bps_ = 0;
  if (phase_ != Phase::kStartup) {
    // Within an interval a queue changes little. What does change is the path's, and cannot be
    // told from a queue of that length.
    const Duration spread =
        Duration::nanoseconds(interval_.rtt_sum_ns / interval_.samples) - interval_.least;
    const Duration ours = std::max(kOwnSpread, Duration::from_seconds(3 * packet() * 8 / bps()));
    const Duration more = std::clamp(spread - ours, Duration{}, kMostJitter);
    jitter_ = jitter_ + (more - jitter_) / 16;
  }
  before_least_ = interval_.least;
  if (phase_ == Phase::kCruise && !competing_ && pressed()) {
    // Means of the same packets, so that queue and flight belong together.
    witness_.add(Duration::nanoseconds(interval_.rtt_sum_ns / interval_.samples) - rtt_.least(),
                 interval_.inflight_sum / interval_.samples, rate / (1 - loss_.floor()), noise());
  } else {
    witness_.clear();
  }
  interval_ = Interval{};
  interval_.since = sample.now;
  interval_.delivered = sample.delivered_bytes;
}

void FarController::begin_round(const Sample& sample) {
  last_limited_ = round_.limited;
  round_ = Round{};
  round_.since = sample.now;
  round_.delivered = round_.end = sample.delivered_bytes;
  queue_in_round_ = queue_;
  batch_ *= 0.9;
  best_sample_ = 0;
}

void FarController::end_round(const Sample& sample) {
  ++rounds_;
  const Duration span = sample.now - round_.since;
  const double rate =
      span > Duration{}
          ? static_cast<double>(sample.delivered_bytes - round_.delivered) * 8 / span.to_seconds()
          : 0;
  if (phase_ == Phase::kStartup) {
    if (!round_.limited) rates_.add(best_sample_);
  } else if (!(round_.limited || round_.restrained) || rate > bps()) {
    rates_.add(rate);
  }
  const double total = static_cast<double>(round_.acked + round_.lost);
  const double share = total > 0 ? static_cast<double>(round_.marked) / total : 0;
  mark_share_ =
      share > 0 ? std::max(mark_share_ * 0.75 + share * 0.25, share * 0.25) : mark_share_ * 0.5;
  if (mark_share_ < 0.001) mark_share_ = 0;
  cut_ = std::min(1.0, cut_ + (1 - kCongestedCut));
  peak_bps_ -= (peak_bps_ - bps()) * std::min(1.0, span.to_seconds() / kPeakSeconds);
  peak_bps_ = std::max(peak_bps_, bps());
  judge_losses(sample);
}

void FarController::judge_losses(const Sample& sample) {
  const double lost =
      std::max(0.0, static_cast<double>(round_.lost) - static_cast<double>(round_.spurious));
  const double acked = static_cast<double>(round_.acked);
  const double total = acked + lost;
  if (total <= 0) return;
  const double share = lost / total;
  const double packets = total / packet();
  const double expected = loss_.floor() * packets;
  // Beside others that fill the queue each loss counts, unless chance takes some.
  const bool clean = competing_ && loss_.floor() < kCleanFloor;
  const bool excess = lost / packet() > expected + 3 * std::sqrt(expected) + (clean ? 0.5 : 1.5) &&
                      share > loss_.floor() + (clean ? 0 : kExcessLoss);
  const bool queued = round_.lost_queue > std::max(Duration::microseconds(500), target() * 2);
  if (!competing_ && share < kMostChance && queue_in_round_ < target() * 2 + from_ms(2)) {
    loss_.add(round_.ordinary_acked / packet(), round_.ordinary_lost / packet(), false);
  }
  if (share < kMostChance) loss_.add(round_.low_acked / packet(), round_.low_lost / packet(), true);
  if (local()) {
    judge_local_losses(lost / packet() > expected + 5 * std::sqrt(expected) + 3 &&
                       share > loss_.floor() + kLocalExcess);
    return;
  }
  if (excess && queued && phase_ != Phase::kStartup &&
      sample.prior_delivered_bytes >= yielded_until_) {
    respond_to_congestion(sample.now);
  }
  if (round_.marked > 0 && competing_ && sample.prior_delivered_bytes >= yielded_until_) {
    respond_to_congestion(sample.now);
  }
}

// The peer's socket buffer may be shorter than the window's floor.
void FarController::judge_local_losses(bool excess) {
  const double floor = static_cast<double>(config_.local_floor_bytes);
  if (excess) {
    local_cap_ = std::max(floor / kLocalFloorDivisor,
                          kLocalCut * static_cast<double>(inflight_ + round_.lost));
  } else if (local_cap_ > 0) {
    local_cap_ *= kLocalRegrowth;
    if (local_cap_ > 4 * static_cast<double>(config_.local_ceiling_bytes)) local_cap_ = 0;
  }
}

void FarController::respond_to_congestion(Time now) {
  before_ = Before{round_.lost, 0, target_limit_, bps(), true};
  yielded_until_ = delivered_ + inflight_ / 2;
  if (competing_) {
    cubic_.on_congestion(now);
    // Everybody has just made room. Perhaps they are of our kind, and the queue can be emptied.
    compete(now, false);
    enter(Phase::kCruise, now);
    return;
  }
  cut_ = kCongestedCut;
  target_limit_ = std::max(round_.lost_queue / 2, Duration::microseconds(200));
  rates_.reset(rates_.last());
}

void FarController::undo() {
  before_.valid = false;
  if (competing_) {
    cubic_.undo();
    return;
  }
  target_limit_ = before_.target_limit;
  rates_.raise(before_.bps);
  cut_ = 1;
}

void FarController::enter(Phase phase, Time now) {
  if (phase_ == Phase::kRefresh && !competing_) low_end_ = delivered_;
  if (phase == Phase::kRefresh && !competing_) {
    low_begin_ = delivered_;
    low_end_ = std::numeric_limits<uint64_t>::max();
  }
  calm_begin_ = delivered_;
  phase_ = phase;
  phase_since_ = now;
  empty_intervals_ = 0;
}

void FarController::advance(const Sample& sample, bool round_ended) {
  if (phase_ == Phase::kDrain) {
    const bool small = static_cast<double>(sample.inflight_bytes) <=
                       product(wire_bps(), rtt_.least() + target()) + packet();
    if (small || sample.now - phase_since_ > rtt_.least() * 4) {
      gain_ = 1;
      enter(Phase::kCruise, sample.now);
      probe_after_ = sample.now;
    }
    return;
  }
  const Duration rise =
      std::clamp(rtt_.least() / 16, Duration::milliseconds(2), Duration::milliseconds(8));
  const bool queued = sample.now - round_.since >= rtt_.least() / 8 &&
                      round_.samples >= kLeastQueuedSamples && round_.least != Duration::max() &&
                      round_.least > rtt_.least() + rise;
  if (queued && !round_.limited) {
    leave_startup(sample.now);
    return;
  }
  if (round_ended) advance_startup(true);
}

void FarController::advance_startup(bool) {
  const Time now = round_.since;
  const double total = static_cast<double>(round_.acked + round_.lost);
  if (total > 0 && static_cast<double>(round_.marked) > kStartupMarks * total) {
    leave_startup(now);
    return;
  }
  if (round_.limited) return;
  if (bps() >= kStartupGrowth * plateau_bps_) {
    plateau_bps_ = bps();
    plateau_rounds_ = 0;
    return;
  }
  ++plateau_rounds_;
  const bool lossy = static_cast<double>(round_.lost) > kStartupMuchLoss * total;
  if (plateau_rounds_ >= kPlateauRounds || lossy) leave_startup(now);
}

void FarController::leave_startup(Time now) {
  // The rate over a whole round lags behind the line's; with a queue the last quarters know it.
  if (interval_bps_ > bps()) rates_.raise(std::min(interval_bps_, 2 * bps()));
  enter(Phase::kDrain, now);
}

void FarController::begin_refresh(Time now) {
  const Duration rtt = std::max(rtt_.least(), Duration::milliseconds(4));
  const double depth = (queue_ + Duration::milliseconds(2)).to_seconds() / rtt.to_seconds();
  // A least that the last refresh made lower was queue; then this one goes deeper.
  const bool deeper = refresh_least_ > rtt_.least() + kRefreshFound;
  refresh_depth_ = std::clamp(deeper ? 2 * refresh_depth_ : depth, 0.05, 0.25);
  refresh_gain_ = 1 - refresh_depth_;
  refresh_least_ = rtt_.least();
  if (competing_) {
    test_from_ = {queue_, prior_inflight_};
    const double less = std::min(wire_bps() / 8 * queue_.to_seconds(), cubic_.bytes()) / 2;
    test_window_ = cubic_.bytes() - less;
    test_until_ = 0;
  } else {
    low_wait_ = loss_.by_load() ? std::min(low_wait_ * 2, kRefreshInterval) : kLowWait;
    loss_.begin_low();
    low_at_ = now;
  }
  enter(Phase::kRefresh, now);
}

void FarController::advance_refresh(const Sample& sample, bool interval_ended) {
  if (competing_) {
    // A round trip after less is in flight, and an interval to see it.
    if (test_until_ == 0 && static_cast<double>(inflight_) <= test_window_ + 2 * packet()) {
      test_until_ = delivered_ + inflight_;
    }
    if (test_until_ == 0 || sample.prior_delivered_bytes < test_until_ || !interval_ended) return;
    refreshed_ = sample.now;
    const QueueWitness::View now{queue_, prior_inflight_};
    const double share = QueueWitness::share(test_from_, now, wire_bps());
    ramping_ = share < kSmallShare && bps() < kSmallShare * peak_bps_;
    if (share > kOurShare) {
      compete(sample.now, false);
      relearn_ = true;
      enter(Phase::kDrain, sample.now);
    } else {
      enter(Phase::kCruise, sample.now);
    }
    return;
  }
  const Duration rtt = std::max(rtt_.least(), Duration::milliseconds(4));
  if (sample.now - phase_since_ < rtt * 3 / 2) return;
  refreshed_ = sample.now;
  enter(Phase::kCruise, sample.now);
}

bool FarController::found_lower(Time now) const {
  return refresh_least_ > rtt_.least() + kRefreshFound && now - phase_since_ > rtt_.least() * 3 / 2;
}

bool FarController::wants_low(Time now) const {
  return loss_.wants_low() && now - low_at_ > std::max(low_wait_, rtt_.least() * 10);
}

void FarController::compete(Time now, bool yes) {
  if (yes == competing_) return;
  competing_ = yes;
  // Beside others the queue may never be empty again.
  if (yes) rtt_.hold(Time::never());
  queue_cleared_ = 0;
  if (!yes) {
    competed_ = now;
    rtt_.hold(now + kHoldAfter);
    return;
  }
  // Soon it looks how large its share is.
  refreshed_ = now - kRefreshInterval + smoothed_rtt_ * 2;
  // What was given up to see whose queue it is comes back; who was away for a moment goes on where
  // it was.
  const bool again = competed_ > Time{} && now - competed_ < kCompeteMemory;
  const double before = again ? cubic_.bytes() : static_cast<double>(witness_.before().inflight);
  ramping_ = false;
  cubic_.start(now, std::max(product(wire_bps(), rtt_.least() + queue_), before));
}

void FarController::advance_cruise(Time now, bool interval_ended) {
  if (!interval_ended) return;
  if (local()) {
    // The window's own queue must not make it look longer.
    rtt_.hold(rtt_.last_better() + kLocalHold);
    return;
  }
  if (target_limit_ != Duration::max()) target_limit_ = scaled(target_limit_, 1.002);
  const Duration since = now - refreshed_;
  wary_ = competed_ > Time{} && now - competed_ < kCompeteMemory;
  // Whom the queue belongs to does not matter to who gives way to everybody; but it has to know
  // the RTT without a queue for long, since others may never empty it.
  if (config_.background) rtt_.hold(rtt_.last_better() + kBackgroundHold);
  const bool due = since > (competing_ ? kRefreshInterval
                                       : std::max(kRefreshInterval, rtt_.least() * kRefreshRounds));
  if (competing_) {
    queue_cleared_ =
        queue_ <= std::max(target() / 2, Duration::milliseconds(1)) ? queue_cleared_ + 1 : 0;
    if (queue_cleared_ >= kClearedIntervals) {
      compete(now, false);
    } else if (due) {
      begin_refresh(now);
    }
    return;
  }
  if (relearn_ && now - phase_since_ > smoothed_rtt_ * 2) {
    // Whatever the RTT is now, it is so without a queue of ours.
    relearn_ = false;
    if (pressed()) rtt_.restart(now, rtt_.least() + queue_);
  }
  const Duration error = target() - queue_now();
  const Duration rtt = std::max(rtt_.least(), kGainLeastRtt);
  gain_ = std::clamp(1 + kGainSlope * error.to_seconds() / rtt.to_seconds() - mark_share_ / 2,
                     kLeastGain, loss_.by_load() ? 1.0 : kMostGain);
  if (config_.background && pressed()) {
    const double over = -error.to_seconds() / target().to_seconds();
    gain_ = std::clamp(1 - kBackgroundSlope * over, kBackgroundLeastGain, 1.0);
  }
  empty_intervals_ = queue_ < target() / 2 && !round_.limited ? empty_intervals_ + 1 : 0;
  if (!round_.limited && !config_.background && witness_.foreign()) {
    compete(now, true);
  } else if (!round_.limited && (due || found_lower(now) || wants_low(now))) {
    begin_refresh(now);
  } else if (empty_intervals_ >= kEmptyIntervals && now >= probe_after_ && mark_share_ == 0) {
    probe_from_bps_ = bps();
    probe_rounds_ = 0;
    probe_gain_ = 1 + std::clamp(kProbeGainMs * 1e-3 / rtt_.least().to_seconds(), kLeastProbeGain,
                                 kMostProbeGain);
    enter(Phase::kProbe, now);
  }
}

void FarController::advance_probe(Time now, bool round_ended) {
  const Duration rise =
      std::max(target() * 3 / 2,
               std::clamp(rtt_.least() / 16, Duration::milliseconds(2), Duration::milliseconds(4)));
  const bool queued = queue_ > rise;
  if (!queued && !round_ended) return;
  if (round_ended) ++probe_rounds_;
  const bool grew = bps() > probe_from_bps_ * (1 + (std::min(probe_gain_, 1.25) - 1) / 2);
  if (!queued && probe_rounds_ < kProbeRounds && !grew) return;
  if (grew && !queued) {
    probe_from_bps_ = bps();
    probe_rounds_ = 0;
    probe_gain_ = std::min(1 + (probe_gain_ - 1) * kProbeStep, kFastProbeGain);
    probe_hold_ = kLeastProbeHold;
    return;
  }
  if (!grew) probe_hold_ = std::min(probe_hold_ * 2, kMostProbeHold);
  probe_after_ = now + std::max(probe_hold_, rtt_.least() * 4);
  enter(queued ? Phase::kDrain : Phase::kCruise, now);
}

void FarController::on_timeout(Time now) {
  // The line may be down. What was known of it is probably still true when it is back, so it is
  // kept; but the first packets after it probe.
  timed_out_ = true;
  if (phase_ == Phase::kProbe || phase_ == Phase::kRefresh) enter(Phase::kCruise, now);
  before_.valid = false;
  allow(now);
}

void FarController::set(double window, double rate_bps) {
  const double least = (config_.background ? 2 : 4) * packet();
  allowance_.window_bytes = static_cast<uint64_t>(
      std::clamp(window, least, static_cast<double>(config_.max_window_bytes)));
  allowance_.rate = BitRate::bits_per_second(static_cast<uint64_t>(rate_bps));
}

void FarController::allow(Time) {
  if (timed_out_) {
    set(8 * packet(), std::max(bps() / 8, 1e5));
    return;
  }
  if (rtt_.least() == Duration{}) {
    allow_start();
    return;
  }
  if (local()) {
    allow_local();
    return;
  }
  if (phase_ == Phase::kStartup) {
    allow_startup();
    return;
  }
  const Duration least = rtt_.least();
  const double slack = 3 * packet() + batch_;
  if (competing_) {
    const double window = cubic_.bytes();
    set(phase_ == Phase::kRefresh ? test_window_ : window,
        1.2 * window * 8 / std::max(smoothed_rtt_, least).to_seconds());
    return;
  }
  double gain = gain_ * cut_;
  Duration room = std::clamp(smoothed_rtt_, least + target(), least + least / 2 + from_ms(10)) +
                  least / 8 + from_ms(1);
  switch (phase_) {
    case Phase::kDrain:
      gain = kDrainGain;
      room = least;
      break;
    case Phase::kProbe:
      gain = probe_gain_;
      room = scaled(room, probe_gain_);
      break;
    case Phase::kRefresh:
      // Below what arrived, so that a policer drops nothing.
      gain = std::min(refresh_gain_, kRefreshShare * (1 - loss_.floor()));
      break;
    default:
      break;
  }
  // With a queue the line carried what it can, and the mean tells what that is; the greatest of
  // the last rounds is for when it did not.
  const double empty = std::clamp(1 - queue_now().to_seconds() / target().to_seconds(), 0.0, 1.0);
  const double full = config_.background && pressed() ? rates_.last() : rates_.mean();
  const double base = (full + (bps() - full) * empty) / (1 - loss_.floor());
  set(product(wire_bps(), room) * (1 + loss_.floor() / 4) + slack,
      (phase_ == Phase::kCruise ? base : wire_bps()) * gain);
}

void FarController::allow_start() {
  // Nothing came back yet.
  if (hint_.known()) {
    const double rate = hint_.rate(0);
    set(1.2 * product(rate, config_.initial_rtt), rate);
    return;
  }
  const Duration rtt = config_.initial_rtt > Duration{} ? config_.initial_rtt : kUnknownRtt;
  if (train_left_ > 0) {
    set(static_cast<double>(train_bytes_), 0);
    return;
  }
  set(initial_window(), static_cast<double>(train_bytes_) * 8 / rtt.to_seconds());
}

double FarController::initial_window() const {
  return static_cast<double>(kInitialWindowTrains * train_bytes_);
}

void FarController::allow_startup() {
  const double initial = initial_window();
  const Duration least = rtt_.least();
  if (train_.measuring() && train_left_ > 0) {
    set(initial, 0);
    return;
  }
  const double rate = hint_.rate(std::max(kStartupGain * bps(), initial * 8 / least.to_seconds()));
  const double window =
      std::max(2 * product(bps(), least), hint_.known() ? 1.2 * product(hint_.rate(0), least) : 0);
  set(std::max(initial, window) + batch_, rate);
}

void FarController::allow_local() {
  const double bdp = product(bps(), rtt_.least());
  // What a slow line would need long for is no floor, but a queue.
  double floor = static_cast<double>(config_.local_floor_bytes);
  if (phase_ != Phase::kStartup) {
    floor = std::clamp(product(bps(), kLocalFloorTime), kLeastLocalFloor, floor);
  }
  double window = std::max(
      {floor, std::min(2 * bdp, static_cast<double>(config_.local_ceiling_bytes)), 1.25 * bdp});
  if (local_cap_ > 0) window = std::min(window, local_cap_);
  set(window, 0);
}

}  // namespace farverbs::cc
