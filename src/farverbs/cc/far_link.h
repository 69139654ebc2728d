// A long path for the controllers' tests: selective-repeat senders share one drop-tail queue of
// bytes in front of a line of a fixed rate. Losses are detected as RACK-TLP does (RFC 8985), about
// 1.25 round trips after the sending, and what was lost is sent again as a new packet. Virtual
// time, seeded chance. Bytes and rates are those of the packets; framing costs nothing here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "farverbs/base/prng.h"
#include "farverbs/cc/controller.h"
#include "farverbs/cc/pacer.h"

namespace farverbs::cc {

struct FarLinkSpec {
  BitRate rate;
  Duration round_trip;  // without queueing
  uint64_t queue_bytes = 0;
  uint32_t packet_bytes = 1472;
  uint64_t seed = 1;
  double loss = 0;        // of packets that passed the queue
  double loss_burst = 1;  // mean length of a burst of losses (Gilbert-Elliott if above 1)
  Duration jitter;        // most; of whole batches of acknowledgements, without reordering
  double reordered = 0;   // share of packets that come later by ...
  Duration reorder_by;    // ... this
  // Packets that wait longer than this in the queue are marked CE: all, or with a chance that grows
  // up to mark_all_above. Zero: never.
  Duration mark_above;
  Duration mark_all_above;
  BitRate policer;  // zero: none; a token bucket before the queue
  uint64_t policer_bytes = 0;
  uint32_t ack_every = 64;                          // packets, at most
  Duration ack_tick = Duration::microseconds(100);  // the receiver gathers packets this long
};

class FarLink {
 public:
  struct Flow {
    uint64_t delivered = 0;  // bytes at the receiver, without doubles
    uint64_t sent = 0;
    uint64_t lost = 0;      // told lost
    uint64_t spurious = 0;  // of them, wrongly
    uint64_t timeouts = 0;
    Time completed = Time::never();
  };

  explicit FarLink(const FarLinkSpec& spec)
      : spec_(spec), prng_(spec.seed), policer_credit_(static_cast<double>(spec.policer_bytes)) {}

  // The controller is the caller's and outlives the link. transfer_bytes 0: endless.
  size_t add_flow(Controller& controller, Time start = {}, uint64_t transfer_bytes = 0,
                  Duration extra_round_trip = {}) {
    auto flow = std::make_unique<State>(controller, spec_.packet_bytes);
    flow->wake = start;
    flow->transfer = transfer_bytes;
    flow->unsent = transfer_bytes == 0 ? UINT64_MAX / 2 : transfer_bytes;
    flow->extra = extra_round_trip;
    flows_.push_back(std::move(flow));
    return flows_.size() - 1;
  }
  void set_rate(BitRate rate) {
    // What is queued keeps its bytes.
    const uint64_t queued = spec_.rate.bytes_for(busy_until_ - now_);
    spec_.rate = rate;
    if (busy_until_ > now_) busy_until_ = now_ + rate.time_for(queued);
  }
  void set_loss(double loss) { spec_.loss = loss; }
  void set_round_trip(Duration d) { spec_.round_trip = d; }
  void set_policer(BitRate rate, uint64_t bytes) {
    spec_.policer = rate;
    spec_.policer_bytes = bytes;
  }
  void set_down(bool down) { down_ = down; }
  // A flow without data, or with endless data again.
  void set_active(size_t index, bool active) {
    flows_[index]->unsent = active ? UINT64_MAX / 2 : 0;
    if (active) flows_[index]->wake = now_;
  }
  // Some more bytes to send, for flows that have something now and then.
  void offer(size_t index, uint64_t bytes) {
    flows_[index]->unsent += bytes;
    flows_[index]->wake = now_;
  }

  void run_until(Time end) {
    for (;;) {
      Time at = next_ping_;
      State* who = nullptr;
      for (auto& flow : flows_) {
        const Time next = std::min({flow->wake, flow->ack, flow->timer});
        if (next < at) {
          at = next;
          who = flow.get();
        }
      }
      if (at > end) break;
      now_ = std::max(now_, at);
      if (who == nullptr) {
        queue_delays_.push_back(std::max(busy_until_ - now_, Duration{}));
        next_ping_ = now_ + kPing;
      } else {
        step(*who);
      }
    }
    now_ = end;
  }
  void run_for(Duration d) { run_until(now_ + d); }

  Time now() const { return now_; }
  const Flow& flow(size_t index) const { return flows_[index]->report; }
  uint64_t inflight(size_t index) const { return flows_[index]->inflight; }
  uint64_t queue_drops() const { return queue_drops_; }
  // The queue's delay at regular times since the last call; quantile in [0, 1].
  Duration take_queue_delay(double quantile) {
    if (queue_delays_.empty()) return {};
    std::sort(queue_delays_.begin(), queue_delays_.end());
    const Duration d = queue_delays_[static_cast<size_t>(
        quantile * static_cast<double>(queue_delays_.size() - 1))];
    queue_delays_.clear();
    return d;
  }
  // Called after each sample; for traces.
  using Observer = void (*)(void* context, size_t flow, const Sample& sample);
  void observe(Observer observer, void* context) {
    observer_ = observer;
    context_ = context;
  }

 private:
  static constexpr Duration kPing = Duration::milliseconds(3);
  static constexpr Duration kMostProbeInterval = Duration::milliseconds(250);

  enum class Fate : uint8_t { kFlying, kAcked, kLost };
  struct Packet {
    Time sent;
    Time first_sent;
    Time delivered_time;
    uint64_t delivered;
    uint64_t inflight;
    uint32_t bytes;
    bool application_limited;
    Fate fate;
  };
  struct Return {
    Time at;
    uint64_t number;
    bool marked;
  };
  struct State {
    State(Controller& c, uint32_t packet_bytes) : controller(c), pacer(packet_bytes) {}
    Controller& controller;
    Pacer pacer;
    Duration extra;
    uint64_t transfer = 0;
    uint64_t unsent = 0;  // lost bytes come back here
    uint64_t inflight = 0;
    uint64_t delivered = 0;
    uint64_t limited_until = 0;
    Time delivered_time;
    Time first_sent;
    std::deque<Packet> packets;  // from number `oldest`
    uint64_t oldest = 0;
    uint64_t undecided = 0;  // all before are acked or lost
    Time newest_acked_sent;
    Duration min_rtt = Duration::max();
    Duration smoothed_rtt;
    std::deque<Return> returns;
    Time wake = Time::never();
    Time ack = Time::never();
    Time timer = Time::never();
    uint32_t probes = 0;
    Flow report;
  };

  void step(State& flow) {
    if (flow.ack <= now_) acknowledge(flow);
    if (flow.timer <= now_) time_out(flow);
    if (flow.wake <= now_) flow.wake = Time::never();
    send(flow);
  }

  void send(State& flow) {
    const uint64_t size = spec_.packet_bytes;
    while (flow.unsent > 0) {
      const Allowance allowance = flow.controller.allowance();
      flow.pacer.set_rate(now_, allowance.rate);
      // An empty flight always has room for a packet.
      if (flow.inflight > 0 && flow.inflight + size > allowance.window_bytes) break;
      const uint64_t paced = flow.pacer.available(now_, flow.unsent);
      if (paced == 0) {
        flow.wake = flow.pacer.next(now_, flow.unsent);
        return;
      }
      const uint64_t room = std::max(allowance.window_bytes, flow.inflight + size) - flow.inflight;
      uint64_t count = std::max<uint64_t>(1, std::min({room, paced, uint64_t{64} * size}) / size);
      uint64_t burst = 0;
      for (; count > 0 && flow.unsent > 0; --count) {
        burst += transmit(flow, true);
      }
      flow.pacer.on_sent(now_, burst);
      flow.controller.on_sent(now_, burst, flow.inflight);
    }
    if (flow.unsent == 0) flow.limited_until = flow.delivered + flow.inflight;
  }

  uint64_t transmit(State& flow, bool arm) {
    const uint32_t bytes = static_cast<uint32_t>(
        std::min<uint64_t>(spec_.packet_bytes, std::max<uint64_t>(flow.unsent, 1)));
    flow.unsent -= std::min<uint64_t>(flow.unsent, bytes);
    if (flow.inflight == 0) {
      flow.first_sent = now_;
      flow.delivered_time = now_;
    }
    flow.inflight += bytes;
    flow.report.sent += bytes;
    const uint64_t number = flow.oldest + flow.packets.size();
    flow.packets.push_back({now_, flow.first_sent, flow.delivered_time, flow.delivered,
                            flow.inflight, bytes, flow.delivered < flow.limited_until,
                            Fate::kFlying});
    if (arm && flow.probes == 0) arm_timer(flow);
    carry(flow, number, bytes);
    return bytes;
  }

  void carry(State& flow, uint64_t number, uint32_t bytes) {
    if (down_) return;
    if (!spec_.policer.is_zero()) {
      policer_credit_ = std::min(static_cast<double>(spec_.policer_bytes),
                                 policer_credit_ + static_cast<double>(spec_.policer.bps()) / 8 *
                                                       (now_ - policer_time_).to_seconds());
      policer_time_ = now_;
      if (policer_credit_ < bytes) return;
      policer_credit_ -= bytes;
    }
    const Time busy = std::max(busy_until_, now_);
    const uint64_t queued = spec_.rate.bytes_for(busy - now_);
    if (queued + bytes > spec_.queue_bytes + bytes / 2) {
      ++queue_drops_;
      return;
    }
    const bool marked = marks(busy - now_);
    busy_until_ = busy + spec_.rate.time_for(bytes);
    if (lost_by_chance()) return;
    Duration later = spec_.round_trip + flow.extra;
    if (spec_.reordered > 0 && prng_.chance(spec_.reordered)) later += spec_.reorder_by;
    Return entry{busy_until_ + later, number, marked};
    if (spec_.jitter > Duration{}) {
      // A batch of a millisecond has one delay; the order is kept.
      if (now_ - jitter_since_ > Duration::milliseconds(1)) {
        jitter_since_ = now_;
        jitter_now_ = Duration::nanoseconds(
            static_cast<int64_t>(prng_.below(static_cast<uint64_t>(spec_.jitter.ns()) + 1)));
      }
      entry.at = entry.at + jitter_now_;
      if (!flow.returns.empty() && spec_.reordered == 0)
        entry.at = std::max(entry.at, flow.returns.back().at);
    }
    auto place = flow.returns.end();
    while (place != flow.returns.begin() && std::prev(place)->at > entry.at) --place;
    const bool first = place == flow.returns.begin();
    flow.returns.insert(place, entry);
    if (first) flow.ack = std::max(now_, entry.at + spec_.ack_tick);
  }

  bool marks(Duration wait) {
    if (spec_.mark_above == Duration{} || wait <= spec_.mark_above) return false;
    if (wait >= spec_.mark_all_above) return true;
    return prng_.chance((wait - spec_.mark_above).to_seconds() /
                        (spec_.mark_all_above - spec_.mark_above).to_seconds());
  }

  bool lost_by_chance() {
    if (spec_.loss <= 0) return false;
    if (spec_.loss_burst <= 1) return prng_.chance(spec_.loss);
    const double leave = 1 / spec_.loss_burst;
    if (in_burst_) {
      in_burst_ = !prng_.chance(leave);
    } else {
      in_burst_ = prng_.chance(leave * spec_.loss / (1 - spec_.loss));
    }
    return in_burst_;
  }

  void acknowledge(State& flow) {
    Sample sample;
    sample.now = now_;
    const Packet* newest = nullptr;
    for (uint32_t n = 0;
         n < spec_.ack_every && !flow.returns.empty() && flow.returns.front().at <= now_; ++n) {
      const Return entry = flow.returns.front();
      flow.returns.pop_front();
      if (entry.number < flow.oldest) continue;
      Packet& packet = flow.packets[entry.number - flow.oldest];
      if (packet.fate == Fate::kAcked) continue;
      if (entry.marked) sample.congestion_marked_bytes += packet.bytes;
      if (packet.fate == Fate::kLost) {
        sample.spurious_bytes += packet.bytes;
        flow.report.spurious += packet.bytes;
        // The repair is a double; the receiver counts bytes once, the sender cannot take it back.
        flow.unsent -= flow.transfer == 0 ? 0 : std::min<uint64_t>(flow.unsent, packet.bytes);
      } else {
        sample.acked_bytes += packet.bytes;
        flow.inflight -= packet.bytes;
      }
      packet.fate = Fate::kAcked;
      flow.delivered += packet.bytes;
      flow.report.delivered += packet.bytes;
      if (newest == nullptr || packet.sent >= newest->sent) newest = &packet;
    }
    flow.ack = flow.returns.empty() ? Time::never() : flow.returns.front().at + spec_.ack_tick;
    if (newest == nullptr) return;
    flow.delivered_time = now_;
    sample.has_rtt = true;
    sample.rtt = now_ - newest->sent;
    flow.min_rtt = std::min(flow.min_rtt, sample.rtt);
    flow.smoothed_rtt = flow.smoothed_rtt == Duration{}
                            ? sample.rtt
                            : flow.smoothed_rtt + (sample.rtt - flow.smoothed_rtt) / 8;
    sample.delivery_rate = BitRate::bytes_in(
        flow.delivered - newest->delivered,
        std::max(now_ - newest->delivered_time, newest->sent - newest->first_sent));
    sample.application_limited = newest->application_limited;
    sample.delivered_bytes = flow.delivered;
    sample.prior_delivered_bytes = newest->delivered;
    sample.prior_inflight_bytes = newest->inflight;
    flow.first_sent = std::max(flow.first_sent, newest->sent);
    flow.newest_acked_sent = std::max(flow.newest_acked_sent, newest->sent);
    detect_losses(flow, sample);
    flow.probes = 0;
    flow.timer = Time::never();
    if (flow.inflight > 0) arm_timer(flow);
    if (flow.transfer > 0 && flow.report.delivered >= flow.transfer &&
        flow.report.completed.is_never()) {
      flow.report.completed = now_;
      flow.unsent = 0;
    }
    sample.inflight_bytes = flow.inflight;
    flow.controller.on_feedback(sample);
    if (observer_ != nullptr) observer_(context_, index_of(flow), sample);
    flow.wake = std::min(flow.wake, now_);
  }

  void detect_losses(State& flow, Sample& sample) {
    const Duration reordering = flow.min_rtt / 4;
    while (flow.undecided < flow.oldest + flow.packets.size()) {
      Packet& packet = flow.packets[flow.undecided - flow.oldest];
      if (packet.fate == Fate::kFlying) {
        if (packet.sent + reordering > flow.newest_acked_sent) break;
        packet.fate = Fate::kLost;
        flow.inflight -= packet.bytes;
        flow.unsent += packet.bytes;
        flow.report.lost += packet.bytes;
        sample.lost_bytes += packet.bytes;
      }
      ++flow.undecided;
    }
    // Lost packets are remembered for a while, in case they come after all.
    while (flow.oldest < flow.undecided &&
           (flow.packets.front().fate == Fate::kAcked ||
            now_ - flow.packets.front().sent > flow.smoothed_rtt * 4)) {
      flow.packets.pop_front();
      ++flow.oldest;
    }
  }

  void arm_timer(State& flow) {
    const Duration rtt =
        flow.smoothed_rtt == Duration{} ? Duration::milliseconds(300) : flow.smoothed_rtt;
    Duration wait = rtt + rtt / 2 + Duration::milliseconds(5);
    if (flow.probes > 0) {
      wait = std::min(wait * (int64_t{1} << std::min(flow.probes, 10u)),
                      std::max(rtt * 2, kMostProbeInterval));
    }
    flow.timer = now_ + wait;
  }

  void time_out(State& flow) {
    flow.timer = Time::never();
    if (flow.inflight == 0) return;
    ++flow.probes;
    if (flow.probes == 3) {
      ++flow.report.timeouts;
      flow.controller.on_timeout(now_);
    }
    // A tail-loss probe: the oldest packet that is missing, or new data.
    if (flow.unsent == 0) {
      for (uint64_t n = flow.undecided; n < flow.oldest + flow.packets.size(); ++n) {
        Packet& packet = flow.packets[n - flow.oldest];
        if (packet.fate != Fate::kFlying) continue;
        packet.fate = Fate::kLost;
        flow.inflight -= packet.bytes;
        flow.unsent += packet.bytes;
        break;
      }
    }
    // Two, since one may be lost (RFC 9002, section 6.2.4).
    uint64_t bytes = transmit(flow, false);
    if (flow.unsent > 0) bytes += transmit(flow, false);
    flow.controller.on_sent(now_, bytes, flow.inflight);
    arm_timer(flow);
  }

  size_t index_of(const State& flow) const {
    size_t i = 0;
    while (flows_[i].get() != &flow) ++i;
    return i;
  }

  Observer observer_ = nullptr;
  void* context_ = nullptr;
  FarLinkSpec spec_;
  Prng prng_;
  Time now_;
  Time next_ping_;
  Time busy_until_;
  bool down_ = false;
  bool in_burst_ = false;
  double policer_credit_;
  Time policer_time_;
  Time jitter_since_ = Time::from_ns(-1'000'000'000);
  Duration jitter_now_;
  uint64_t queue_drops_ = 0;
  std::vector<Duration> queue_delays_;
  std::vector<std::unique_ptr<State>> flows_;
};

}  // namespace farverbs::cc
