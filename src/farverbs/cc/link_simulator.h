// A small bottleneck for the controllers' tests: go-back-N senders that always have data share one
// drop-tail queue of a fixed rate, with fixed delays. Virtual time, no chance but a seeded loss.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "farverbs/base/prng.h"
#include "farverbs/cc/controller.h"
#include "farverbs/cc/pacer.h"

namespace farverbs::cc {

struct LinkSpec {
  BitRate rate;
  Duration round_trip;  // without queueing and serialization
  uint64_t queue_bytes = 0;
  uint32_t packet_bytes = 1100;
  uint32_t ack_every = 64;  // packets; the last of each turn is acknowledged at once
  double loss = 0;          // random, of data packets
};

class LinkSimulator {
 public:
  struct FlowReport {
    uint64_t delivered = 0;  // bytes in order at the receiver
    uint64_t sent = 0;
    uint64_t loss_events = 0;
    uint64_t timeouts = 0;
  };

  explicit LinkSimulator(const LinkSpec& spec) : spec_(spec), prng_(1) {}

  // The controller is the caller's and outlives the simulator.
  size_t add_flow(Controller& controller, Time start) {
    flows_.push_back(std::make_unique<Flow>(controller, spec_.packet_bytes));
    const size_t index = flows_.size() - 1;
    push({start, Kind::kWake, index, 0});
    return index;
  }

  void set_rate(BitRate rate) { spec_.rate = rate; }

  // A flow without data stops after what it has sent.
  void set_active(size_t flow, bool active) {
    flows_[flow]->active = active;
    if (active) push({now_, Kind::kWake, flow, 0});
  }

  void run_until(Time end) {
    while (!events_.empty() && events_.top().at <= end) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      handle(event);
    }
    now_ = end;
  }
  void run_for(Duration d) { run_until(now_ + d); }

  Time now() const { return now_; }
  const FlowReport& report(size_t flow) const { return flows_[flow]->report; }
  uint64_t drops() const { return drops_; }
  uint64_t inflight(size_t flow) const { return flows_[flow]->inflight(); }
  // The greatest queue since the last call.
  uint64_t take_peak_queue() { return std::exchange(peak_queue_, 0); }

 private:
  enum class Kind : uint8_t { kWake, kArrival, kAck, kNak, kTimer };
  struct Event {
    Time at;
    Kind kind;
    size_t flow;
    uint64_t packet;
    bool ack_request = false;
    uint64_t order = 0;
    bool operator<(const Event& other) const {  // the earliest on top
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  struct Record {
    Time sent;
    uint64_t delivered;
  };
  struct Flow {
    Flow(Controller& c, uint32_t packet_bytes)
        : controller(c), pacer(packet_bytes), size(packet_bytes) {}
    uint64_t inflight() const { return (next - acked) * size; }
    Controller& controller;
    Pacer pacer;
    uint64_t size;
    bool active = true;
    uint64_t next = 0;   // packet to send
    uint64_t acked = 0;  // first not acknowledged
    std::deque<Record> records;
    uint64_t delivered = 0;
    Time progress;
    bool timer_set = false;
    Time wake_at = Time::never();
    uint64_t expected = 0;  // receiver
    uint32_t unacknowledged = 0;
    bool nak_sent = false;
    FlowReport report;
  };

  static constexpr Duration kRetransmitTimeout = Duration::milliseconds(600);

  void push(Event event) {
    event.order = order_++;
    events_.push(event);
  }

  void handle(const Event& event) {
    Flow& flow = *flows_[event.flow];
    switch (event.kind) {
      case Kind::kWake:
        if (flow.wake_at <= now_) flow.wake_at = Time::never();
        break;
      case Kind::kArrival:
        arrive(flow, event);
        return;
      case Kind::kAck:
        acknowledge(flow, event.packet, false);
        break;
      case Kind::kNak:
        acknowledge(flow, event.packet, true);
        break;
      case Kind::kTimer:
        timer(flow);
        break;
    }
    send(event.flow);
  }

  void send(size_t index) {
    Flow& flow = *flows_[index];
    const Allowance allowance = flow.controller.allowance();
    flow.pacer.set_rate(now_, allowance.rate);
    uint64_t room =
        allowance.window_bytes > flow.inflight() ? allowance.window_bytes - flow.inflight() : 0;
    if (!flow.active || room == 0) return;
    // What fits in the window is bulk to the pacer: acknowledgements open it bit by bit.
    const uint64_t paced = flow.pacer.available(now_, uint64_t{1} << 40);
    if (paced == 0) {
      const Time wake = flow.pacer.next(now_, uint64_t{1} << 40);
      if (wake < flow.wake_at) {
        flow.wake_at = wake;
        push({wake, Kind::kWake, index, 0});
      }
      return;
    }
    const uint64_t count = std::max<uint64_t>(1, std::min(room, paced) / flow.size);
    for (uint64_t i = 0; i < count; ++i) transmit(index, i + 1 == count);
    flow.pacer.on_sent(now_, count * flow.size);
    flow.controller.on_sent(now_, count * flow.size, flow.inflight());
    if (!flow.timer_set) {
      flow.timer_set = true;
      flow.progress = now_;
      push({now_ + kRetransmitTimeout, Kind::kTimer, index, 0});
    }
    if (room < (count + 1) * flow.size) return;
    const Time wake = flow.pacer.next(now_, uint64_t{1} << 40);
    if (wake < flow.wake_at) {
      flow.wake_at = wake;
      push({wake, Kind::kWake, index, 0});
    }
  }

  void transmit(size_t index, bool last) {
    Flow& flow = *flows_[index];
    const uint64_t packet = flow.next++;
    flow.records.push_back({now_, flow.delivered});
    flow.report.sent += flow.size;
    const Time busy = std::max(busy_until_, now_);
    const uint64_t queued = spec_.rate.bytes_for(busy - now_);
    if (queued + flow.size > spec_.queue_bytes + flow.size / 2) {
      ++drops_;
      return;
    }
    peak_queue_ = std::max(peak_queue_, queued + flow.size);
    busy_until_ = busy + spec_.rate.time_for(flow.size);
    if (spec_.loss > 0 && prng_.chance(spec_.loss)) return;
    push({busy_until_ + spec_.round_trip / 2, Kind::kArrival, index, packet, last});
  }

  void arrive(Flow& flow, const Event& event) {
    const Time back = now_ + spec_.round_trip / 2;
    if (event.packet < flow.expected) {
      push({back, Kind::kAck, event.flow, flow.expected});
      return;
    }
    if (event.packet > flow.expected) {
      if (!flow.nak_sent) push({back, Kind::kNak, event.flow, flow.expected});
      flow.nak_sent = true;
      return;
    }
    flow.nak_sent = false;
    ++flow.expected;
    flow.report.delivered += flow.size;
    if (++flow.unacknowledged >= spec_.ack_every || event.ack_request) {
      flow.unacknowledged = 0;
      push({back, Kind::kAck, event.flow, flow.expected});
    }
  }

  void acknowledge(Flow& flow, uint64_t upto, bool nak) {
    Sample sample;
    sample.now = now_;
    if (upto > flow.next) {
      // Packets that a timeout took back had arrived: they were delivered, but tell no RTT.
      sample.acked_bytes = (upto - flow.acked) * flow.size;
      flow.delivered += sample.acked_bytes;
      flow.acked = flow.next = upto;
      flow.records.clear();
      flow.progress = now_;
    } else if (upto > flow.acked) {
      const uint64_t count = upto - flow.acked;
      const Record record = flow.records[count - 1];
      flow.records.erase(flow.records.begin(),
                         flow.records.begin() + static_cast<std::ptrdiff_t>(count));
      flow.acked = upto;
      flow.delivered += count * flow.size;
      flow.progress = now_;
      sample.acked_bytes = count * flow.size;
      sample.has_rtt = true;
      sample.rtt = now_ - record.sent;
      sample.delivery_rate =
          BitRate::bytes_in(flow.delivered - record.delivered, now_ - record.sent);
    }
    if (nak && flow.next > flow.acked) {
      sample.lost_bytes = flow.inflight();
      ++flow.report.loss_events;
      go_back(flow);
    }
    sample.inflight_bytes = flow.inflight();
    flow.controller.on_feedback(sample);
  }

  void go_back(Flow& flow) {
    flow.next = flow.acked;
    flow.records.clear();
  }

  void timer(Flow& flow) {
    flow.timer_set = false;
    if (flow.next == flow.acked) return;
    if (now_ - flow.progress < kRetransmitTimeout) {
      flow.timer_set = true;
      push({flow.progress + kRetransmitTimeout, Kind::kTimer, index_of(flow), 0});
      return;
    }
    ++flow.report.timeouts;
    go_back(flow);
    flow.nak_sent = false;
    flow.controller.on_timeout(now_);
  }

  size_t index_of(const Flow& flow) const {
    for (size_t i = 0; i < flows_.size(); ++i) {
      if (flows_[i].get() == &flow) return i;
    }
    return 0;
  }

  LinkSpec spec_;
  Prng prng_;
  Time now_;
  Time busy_until_;
  uint64_t order_ = 0;
  uint64_t drops_ = 0;
  uint64_t peak_queue_ = 0;
  std::priority_queue<Event> events_;
  std::vector<std::unique_ptr<Flow>> flows_;
};

}  // namespace farverbs::cc
