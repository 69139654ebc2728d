#include "farverbs/proto/outbox.h"

#include "farverbs/proto/completions.h"
#include "farverbs/proto/request_packet.h"

namespace farverbs::proto {

using model::CompletionStatus;
using model::QpState;

void Outbox::on_state(QpState from, QpState to) {
  if (to == QpState::kSqd && from != QpState::kSqd) drained_ = false;
  settle();
}

void Outbox::settle() {
  if (state() == QpState::kSqe || state() == QpState::kErr) flush_sends(qp_);
  if (state() != QpState::kSqd || drained_) return;
  const uint64_t head = qp_.send_queue.head();
  if (head < qp_.send_queue.tail() && qp_.send_queue.at(head).started) return;
  drained_ = true;
  if (qp_.attributes.enable_sqd_notify) qp_.raise(model::AsyncEventType::kSqDrained);
}

bool Outbox::sendable() const {
  const uint64_t head = qp_.send_queue.head();
  if (head >= qp_.send_queue.tail()) return false;
  // SQD finishes what was started and begins nothing.
  return state() == QpState::kRts || (state() == QpState::kSqd && qp_.send_queue.at(head).started);
}

model::SendWqe* Outbox::next() {
  while (sendable()) {
    model::SendWqe& wqe = qp_.send_queue.at(qp_.send_queue.head());
    if (!is_local(wqe.opcode)) {
      wqe.started = true;
      return &wqe;
    }
    if (do_local(wqe)) {
      finish();
    } else {
      fail(wqe.opcode == model::SendOpcode::kBindWindow ? CompletionStatus::kWindowBindError
                                                        : CompletionStatus::kLocalProtectionError);
    }
  }
  return nullptr;
}

bool Outbox::do_local(const model::SendWqe& wqe) {
  if (wqe.opcode == model::SendOpcode::kLocalInvalidate) {
    return qp_.memory.invalidate(MemoryKey(wqe.immediate), qp_.pd, qp_.qpn) ==
           model::MemoryVerdict::kOk;
  }
  return qp_.memory
      .bind_window(wqe.window, qp_.pd, wqe.bind_region_lkey, wqe.remote_address, wqe.bind_length,
                   wqe.bind_access, qp_.qpn, static_cast<uint8_t>(wqe.immediate))
      .ok();
}

void Outbox::finish() {
  if (!finish_oldest_send(qp_, CompletionStatus::kSuccess)) {
    qp_.state.store(QpState::kErr, std::memory_order_relaxed);
    qp_.raise(model::AsyncEventType::kQpFatal);
  }
  settle();
}

void Outbox::fail(CompletionStatus status) {
  finish_oldest_send(qp_, status);
  qp_.state.store(QpState::kSqe, std::memory_order_relaxed);
  settle();
}

}  // namespace farverbs::proto
