#include "farverbs/cc/far_controller.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "farverbs/cc/far_tuning.h"

namespace farverbs::cc {

using namespace far;

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

// How much of what is in flight may be there or not by chance losses.
double FarController::chance_in_flight() const {
  const double packets = static_cast<double>(inflight_) / packet();
  return 5 * std::sqrt(loss_.floor() * packets) * packet();
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
  note_rtt(sample);
  note_round(sample);
  count_losses(sample);
  if (sample.spurious_bytes > 0 && before_.valid) {
    before_.spurious += sample.spurious_bytes;
    if (before_.spurious * 2 > before_.lost) undo();
  }
  if (phase_ == Phase::kStartup) note_startup(sample);
  if (competing_ && sample.acked_bytes > 0) note_competition(sample);
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

void FarController::note_rtt(const Sample& sample) {
  if (!sample.has_rtt || sample.rtt <= Duration{}) return;
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

void FarController::note_round(const Sample& sample) {
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
}

void FarController::note_startup(const Sample& sample) {
  const double rate = std::min(static_cast<double>(sample.delivery_rate.bps()), kMostBps);
  if (!sample.application_limited || rate > bps()) {
    best_sample_ = std::max(best_sample_, rate);
    rates_.raise(rate);
  }
  if (train_.measuring() && train_.on_delivered(sample.now, delivered_, prior_inflight_) &&
      !hint_.known() && !train_.rate().is_zero()) {
    peak_bps_ = std::min(static_cast<double>(train_.rate().bps()), kMostBps);
    hint_.learn(peak_bps_, kTrainTrust,
                kHintStep * initial_window() * 8 / rtt_.least().to_seconds());
  }
}

void FarController::note_competition(const Sample& sample) {
  if (ramping_) {
    // Until the first loss it takes room as a flow that starts would.
    cubic_.start(sample.now, cubic_.bytes() + kRamp * static_cast<double>(sample.acked_bytes));
  } else {
    cubic_.on_acknowledged(sample.now, sample.acked_bytes, smoothed_rtt_);
  }
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
  const double rate = rate_between(interval_.delivered, sample.delivered_bytes, span);
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
    const Duration ours =
        std::max(kOwnSpread, Duration::from_seconds(3 * packet() * 8 / std::max(bps(), kLeastBps)));
    const Duration more = std::clamp(spread - ours, Duration{}, kMostJitter);
    jitter_ = jitter_ + (more - jitter_) / 16;
  }
  before_least_ = interval_.least;
  if (phase_ == Phase::kCruise && !competing_ && pressed()) {
    // Means of the same packets, so that queue and flight belong together.
    witness_.add(Duration::nanoseconds(interval_.rtt_sum_ns / interval_.samples) - rtt_.least(),
                 interval_.inflight_sum / interval_.samples, rate / (1 - loss_.floor()),
                 kNoisePackets * packet(), chance_in_flight());
  } else {
    witness_.clear();
  }
  interval_ = Interval{};
  interval_.since = sample.now;
  interval_.delivered = sample.delivered_bytes;
}

void FarController::begin_round(const Sample& sample) {
  round_ = Round{};
  round_.since = sample.now;
  round_.delivered = round_.end = sample.delivered_bytes;
  queue_in_round_ = queue_;
  batch_ *= 0.9;
  best_sample_ = 0;
}

void FarController::end_round(const Sample& sample) {
  const Duration span = sample.now - round_.since;
  const double rate = rate_between(round_.delivered, sample.delivered_bytes, span);
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

}  // namespace farverbs::cc
