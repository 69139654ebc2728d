// Path: one peer address and traffic class as the QPs of a loop see it: where bursts go, what is
// in flight there, and the congestion controllers that all QPs to that peer share, so that many QPs
// are no greedier than one. Requests and the responses of READs are two flights with a controller
// each: the requester paces a READ's responses by what it asks for. Far QPs share a FarLine.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "farverbs/base/intrusive_list.h"
#include "farverbs/base/time.h"
#include "farverbs/cc/controller.h"
#include "farverbs/cc/pacer.h"
#include "farverbs/cc/path_control.h"
#include "farverbs/engine/mtu_search.h"
#include "farverbs/engine/timers.h"
#include "farverbs/io/port.h"
#include "farverbs/model/traffic_class.h"
#include "farverbs/proto/queue_pair.h"
#include "farverbs/wire/icrc.h"

namespace farverbs::engine {

struct Path;

// A QP as its loop keeps it.
struct LoopQp {
  LoopQp(const model::QpInit& init, Qpn qpn, model::MemoryTable& memory,
         model::AsyncEventSink* events, const proto::TransportConfig& config)
      : pair(init, qpn, memory, events, config) {
    timer.owner = this;
  }

  proto::QueuePair pair;
  Path* path = nullptr;  // RC, UC: set with the address vector; UD: none
  uint32_t weight = 1;   // quanta per turn
  TimerEntry timer;
  ListLink turn_link;   // among the senders, or waiting at its path
  uint32_t credit = 0;  // packets left of its turn
  bool waits = false;   // it is the latter
  model::TrafficClass traffic = model::TrafficClass::kBulk;
  bool demands = false;  // far: counted in FarLine::demanding
  ListLink ack_link;     // among those that owe an acknowledgement
  Time ack_owed_since;
  std::atomic<bool> rung{false};
  LoopQp* next_rung = nullptr;
};

// One direction's bytes: what is in flight and what its controller allows.
class Flight {
 public:
  // A burst of the port: what a system call carries.
  static constexpr uint64_t kBurst = 62 * 1'056;

  explicit Flight(std::unique_ptr<cc::Controller> controller)
      : controller_(std::move(controller)), allowance_(controller_->allowance()) {}

  // Bytes that may be added now, `beyond` the window. An empty flight always has room for a packet.
  uint64_t room(uint64_t beyond = 0) const {
    const uint64_t window = allowance_.window_bytes + beyond;
    if (inflight_ == 0) return window > 0 ? window : 1;
    return window > inflight_ ? window - inflight_ : 0;
  }
  // `room` is enough to wake somebody that waits for it. If every small acknowledgement woke
  // the next, many QPs would send bursts of a few packets and get acknowledgements for a few
  // packets for ever (the silly window of RFC 813). A paced path gathers bursts by its pacer.
  bool worth_waking(uint64_t room) const {
    if (inflight_ == 0) return true;
    const uint64_t least =
        allowance_.rate.is_zero() ? std::min(kBurst, allowance_.window_bytes / 8) : 1;
    return room >= least;
  }
  void add(Time now, uint64_t bytes) {
    if (bytes == 0) return;
    if (inflight_ == 0) first_sent_ = delivered_time_ = now;
    inflight_ += bytes;
    controller_->on_sent(now, bytes, inflight_);
    allowance_ = controller_->allowance();
  }
  struct Returned {
    uint64_t delivered = 0;
    uint64_t lost = 0;
    bool has_rtt = false;
    Duration rtt;
    Time probe_sent;
    uint64_t probe_delivered = 0;
  };
  void take_back(Time now, const Returned& returned);
  // The same for the far transport, whose packets carry marks.
  void take_back_far(Time now, const proto::Feedback& feedback);
  proto::FlightMark mark(Time now) const {
    const bool idle = inflight_ == 0;
    return {delivered_, idle ? now : delivered_time_, idle ? now : first_sent_, inflight_,
            delivered_ < application_limited_until_};
  }
  void time_out(Time now) {
    controller_->on_timeout(now);
    allowance_ = controller_->allowance();
  }
  // The sender ran out of things to send: rates measured until what is in flight now has arrived
  // say nothing about the path.
  void mark_application_limited() { application_limited_until_ = delivered_ + inflight_; }

  uint64_t inflight() const { return inflight_; }
  uint64_t delivered() const { return delivered_; }
  BitRate rate() const { return allowance_.rate; }
  uint64_t window() const { return allowance_.window_bytes; }
  Duration last_rtt() const { return last_rtt_; }

 private:
  std::unique_ptr<cc::Controller> controller_;
  cc::Allowance allowance_;
  uint64_t inflight_ = 0;
  uint64_t delivered_ = 0;
  uint64_t application_limited_until_ = 0;
  Time delivered_time_;  // when delivered_ grew last
  Time first_sent_;      // when the packet left that was acknowledged last
  Duration last_rtt_;
};

// What the far QPs of one peer share whatever their class, because their packets meet in one queue
// of one line: flight, controller, pacing. Real time and interactive are paced for themselves, so
// that they never wait for bulk, and what they send is charged to bulk. The background class has a
// line of its own, whose controller gives way to everybody.
struct FarLine {
  static constexpr uint32_t kSegmentBytes = 1'472;

  FarLine(const Endpoint& peer, bool background_class, std::unique_ptr<cc::Controller> cc,
          const cc::FarController* for_tools, const cc::PathControl* chooser,
          uint32_t datagram_ceiling)
      : destination(peer),
        background(background_class),
        flight(std::move(cc)),
        controller(for_tools),
        control(chooser),
        mtu(peer.address.is_v4(), datagram_ceiling) {}

  // An urgent sender that never stops leaves bulk a twentieth.
  static constexpr uint64_t urgent_part(uint64_t whole) { return whole - whole / 20; }

  Endpoint destination;
  bool background;
  Flight flight;  // requests and responses alike
  const cc::FarController* controller;
  const cc::PathControl* control;  // background: none
  // For tools; nullptr: a fixed window, which has none.
  const char* phase() const {
    if (control != nullptr) return control->phase_name();
    return controller != nullptr ? controller->phase_name() : nullptr;
  }
  // Zero: not known.
  Duration min_rtt() const {
    if (control != nullptr) return control->min_rtt();
    return controller != nullptr ? controller->min_rtt() : Duration();
  }
  uint32_t bursts_since_timeout = 0;
  cc::Pacer pacer{kSegmentBytes};
  cc::Pacer urgent_pacer{kSegmentBytes};
  MtuSearch mtu;
  uint64_t urgent_inflight = 0;
  uint32_t demanding = 0;  // QPs that have something to send
  bool renamed = false;    // it is known by further endpoints, too
  std::vector<Path*> paths;
};

// One peer address and class.
struct Path {
  // A full packet over an interface of 1,500 bytes; pacing counts in about such.
  static constexpr uint32_t kSegmentBytes = 1'056;

  Path(const io::TxFlow& to, model::TrafficClass of, wire::IcrcFlow icrc_of_flow,
       std::unique_ptr<cc::Controller> requests_cc, std::unique_ptr<cc::Controller> reads_cc,
       std::shared_ptr<FarLine> far_line)
      : flow(to),
        traffic(of),
        icrc(icrc_of_flow),
        requests(std::move(requests_cc)),
        reads(std::move(reads_cc)),
        line(std::move(far_line)),
        far(line->flight),
        far_controller(line->controller),
        mtu(line->mtu) {
    line->paths.push_back(this);
  }
  ~Path() { std::erase(line->paths, this); }
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;

  // Not held back by bulk.
  bool urgent() const { return traffic <= model::TrafficClass::kInteractive; }
  // What is urgent finds room beyond what others have filled, but does not fill all by itself.
  uint64_t far_room() const {
    if (!urgent()) return far.room();
    const uint64_t most = FarLine::urgent_part(far.window());
    const uint64_t own = most - std::min(most, line->urgent_inflight);
    const uint64_t room = std::min(far.room(far.window() / 4), own);
    return line->urgent_inflight == 0 ? std::max<uint64_t>(room, 1) : room;
  }
  cc::Pacer& far_pacer() const { return urgent() ? line->urgent_pacer : line->pacer; }
  BitRate far_rate() const {
    const uint64_t whole = far.rate().bps();
    return BitRate::bits_per_second(urgent() ? FarLine::urgent_part(whole) : whole);
  }

  io::TxFlow flow;
  model::TrafficClass traffic;
  wire::IcrcFlow icrc;
  Flight requests;
  Flight reads;
  std::shared_ptr<FarLine> line;
  Flight& far;
  const cc::FarController* far_controller;  // if far's controller is one: for tools
  MtuSearch& mtu;
  cc::Pacer pacer{kSegmentBytes};
  uint32_t users = 0;   // connected QPs; a path without any may be dropped
  Time paced_until;     // the pacer lets nothing leave before
  ListLink paced_link;  // in the loop's list of paths that wait for their pacer
  // QPs that wait for room in one of the flights.
  struct Waiting {
    Flight& flight;
    IntrusiveList<LoopQp, &LoopQp::turn_link> qps;
    LoopQp* woken = nullptr;  // whose turn it is; the next one is woken when it has ended
  };
  Waiting waiting_requests{requests, {}, nullptr};
  Waiting waiting_reads{reads, {}, nullptr};
  Waiting waiting_far{far, {}, nullptr};
  std::array<Waiting*, 3> waiting() { return {&waiting_requests, &waiting_reads, &waiting_far}; }
};

}  // namespace farverbs::engine
