// Outbox: the send queue of a service without acknowledgements (UC, UD), oldest request first. It
// knows what may be sent, does local requests on the way, and what errors and SQD do to the queue.
// IBTA vol. 1 section 10.3.1: a failing request takes such a QP to SQE, where receives go on.
#pragma once

#include "farverbs/model/qp.h"
#include "farverbs/proto/turn.h"

namespace farverbs::proto {

class Outbox {
 public:
  explicit Outbox(model::Qp& qp) : qp_(qp) {}

  // The QP's state changed, something was posted, or a request was finished: flushes where the
  // state says so, and tells that the queue has drained.
  void settle();
  void on_state(model::QpState from, model::QpState to);
  bool ready() const { return sendable(); }
  // The oldest request, if it may be sent; local ones before it are done.
  model::SendWqe* next();
  // The oldest request is sent.
  void finish();
  // The oldest request can't be sent.
  void fail(model::CompletionStatus status);

 private:
  bool sendable() const;
  bool do_local(const model::SendWqe& wqe);
  model::QpState state() const { return qp_.state.load(std::memory_order_relaxed); }

  model::Qp& qp_;
  bool drained_ = false;
};

}  // namespace farverbs::proto
