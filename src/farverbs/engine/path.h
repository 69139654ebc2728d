// Path: one peer address (and traffic class) as the QPs of a loop see it: where bursts go, what is
// in flight there, and the congestion controllers that all QPs to that peer share, so that many QPs
// are no greedier than one. Requests and the responses of READs are two flights with a controller
// each: the requester paces a READ's responses by what it asks for.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "farverbs/base/intrusive_list.h"
#include "farverbs/base/time.h"
#include "farverbs/cc/controller.h"
#include "farverbs/cc/far_controller.h"
#include "farverbs/cc/pacer.h"
#include "farverbs/engine/mtu_search.h"
#include "farverbs/engine/timers.h"
#include "farverbs/io/port.h"
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
  ListLink ack_link;    // among those that owe an acknowledgement
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

  // Bytes that may be added now. An empty flight always has room for a packet.
  uint64_t room() const {
    const uint64_t window = allowance_.window_bytes;
    if (inflight_ == 0) return window > 0 ? window : 1;
    return window > inflight_ ? window - inflight_ : 0;
  }
  // There is enough room to wake somebody that waits for it. If every small acknowledgement woke
  // the next, many QPs would send bursts of a few packets and get acknowledgements for a few
  // packets for ever (the silly window of RFC 813). A paced path gathers bursts by its pacer.
  bool worth_waking() const {
    if (inflight_ == 0) return true;
    const uint64_t least =
        allowance_.rate.is_zero() ? std::min(kBurst, allowance_.window_bytes / 8) : 1;
    return room() >= least;
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

// One peer address and class.
struct Path {
  // A full packet over an interface of 1,500 bytes; pacing counts in about such.
  static constexpr uint32_t kSegmentBytes = 1'056;
  static constexpr uint32_t kFarSegmentBytes = 1'472;

  Path(const io::TxFlow& to, wire::IcrcFlow icrc_of_flow,
       std::unique_ptr<cc::Controller> requests_cc, std::unique_ptr<cc::Controller> reads_cc,
       std::unique_ptr<cc::Controller> far_cc, uint32_t datagram_ceiling)
      : flow(to),
        icrc(icrc_of_flow),
        requests(std::move(requests_cc)),
        reads(std::move(reads_cc)),
        far(std::move(far_cc)),
        mtu(to.destination.address.is_v4(), datagram_ceiling) {}

  io::TxFlow flow;
  wire::IcrcFlow icrc;
  Flight requests;
  Flight reads;
  Flight far;                                         // of far QPs: requests and responses alike
  const cc::FarController* far_controller = nullptr;  // if far's controller is one: for tools
  cc::Pacer pacer{kSegmentBytes};
  cc::Pacer far_pacer{kFarSegmentBytes};
  MtuSearch mtu;
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
