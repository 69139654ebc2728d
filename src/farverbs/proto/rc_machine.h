// RcMachine: the reliable connection. It joins the two halves of the QP and moves it to the error
// state when either of them has failed: the failing completion first, then the flush in order.
#pragma once

#include "farverbs/proto/rc_requester.h"
#include "farverbs/proto/rc_responder.h"

namespace farverbs::proto {

class RcMachine {
 public:
  RcMachine(model::Qp& qp, const TransportConfig& config)
      : qp_(qp), requester_(qp, config), responder_(qp, config) {}

  // The state has just become `to`.
  void on_state(Time now, model::QpState from, model::QpState to);
  void on_packet(Time now, const wire::PacketView& packet, const PacketContext& context);
  size_t on_run(Time now, const ReceivedRun& run);
  void on_work(Time now);
  void on_timer(Time now);
  TransmitResult poll_transmit(const TransmitContext& context);
  bool wants_transmit() const;
  bool wants_respond() const;
  bool ack_pending() const;
  Time next_timer() const { return requester_.next_timer(); }
  Feedback take_feedback() { return requester_.take_feedback(); }
  void fail(Time now);
  size_t memory_bytes() const { return requester_.memory_bytes() + responder_.memory_bytes(); }

 private:
  model::QpState state() const { return qp_.state.load(std::memory_order_relaxed); }
  bool sending() const {
    return state() == model::QpState::kRts || state() == model::QpState::kSqd;
  }
  void settle();
  void enter_error();
  void flush();

  model::Qp& qp_;
  RcRequester requester_;
  RcResponder responder_;
  bool established_ = false;  // COMM_EST is raised once
  bool drained_ = false;      // SQ_DRAINED, once for each SQD
  bool last_words_ = false;   // in ERR: the responder's NAK has yet to leave
};

}  // namespace farverbs::proto
