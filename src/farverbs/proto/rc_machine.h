// RcMachine: the reliable connection. It joins the two halves of the QP and moves it to the error
// state when either of them has failed: the failing completion first, then the flush in order.
// Between two ends that speak it the packets are those of the far transport (far_machine.h); the
// states, and what the application sees, are the same.
#pragma once

#include <memory>

#include "farverbs/proto/far_machine.h"
#include "farverbs/proto/rc_requester.h"
#include "farverbs/proto/rc_responder.h"

namespace farverbs::proto {

class RcMachine {
 public:
  RcMachine(model::Qp& qp, const TransportConfig& config) : qp_(qp), config_(config) {
    make_standard();
  }

  // The state has just become `to`.
  void on_state(Time now, model::QpState from, model::QpState to);
  void on_packet(Time now, const wire::PacketView& packet, const PacketContext& context);
  size_t on_run(Time now, const ReceivedRun& run);
  void on_work(Time now);
  void on_timer(Time now);
  TransmitResult poll_transmit(const TransmitContext& context);
  std::optional<Endpoint> write_aside(wire::TxBurst& burst) {
    return far_ != nullptr ? far_->write_aside(burst) : std::nullopt;
  }
  bool wants_transmit() const;
  bool wants_respond() const;
  bool ack_pending() const;
  Time next_timer() const;
  bool take_feedback(Feedback& told);
  void fail(Time now);
  size_t memory_bytes() const;
  bool trim(Time now) { return far_ != nullptr && far_->trim(now); }

  // The connection's packets will be the far transport's: in INIT.
  void use_far();
  void use_standard() { offers_ = false; }
  bool far() const { return requests_far_; }
  // The next poll_transmit() may write packets of RC.
  bool may_write_standard() const {
    return !sends_far() || (responder_ != nullptr &&
                            (last_words_ || responder_->ready() || responder_->ack_pending()));
  }
  bool sends_far() const {
    return requests_far_ || (sending() && far_ != nullptr && far_->ready());
  }

 private:
  model::QpState state() const { return qp_.state.load(std::memory_order_relaxed); }
  bool sending() const {
    return state() == model::QpState::kRts || state() == model::QpState::kSqd;
  }
  void make_standard();
  void notice(const wire::PacketView& packet, const PacketContext& context);
  void meet_far_peer();
  bool take_far(Time now, const wire::PacketView& packet, const PacketContext& context);
  bool change_over();
  void establish();
  void settle();
  void enter_error();
  void flush();

  model::Qp& qp_;
  const TransportConfig& config_;
  // A half is there until what it does has changed over to the far transport.
  std::unique_ptr<RcRequester> requester_;
  std::unique_ptr<RcResponder> responder_;
  std::unique_ptr<FarMachine> far_;  // once the peer is known to speak it
  bool far_from_the_start_ = false;  // connection set-up said so: there are no packets of RC
  bool offers_ = false;              // its packets of RC tell the peer that it would
  bool requests_far_ = false;        // this end's requests have changed over
  bool peer_far_ = false;            // the peer's have
  bool established_ = false;         // COMM_EST is raised once
  bool drained_ = false;             // SQ_DRAINED, once for each SQD
  bool last_words_ = false;          // in ERR: the responder's NAK has yet to leave
};

}  // namespace farverbs::proto
