#include "farverbs/proto/completions.h"

#include <algorithm>

namespace farverbs::proto {
namespace {

using model::CompletionOpcode;
using model::SendOpcode;

constexpr CompletionOpcode completion_opcode(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::kWrite:
    case SendOpcode::kWriteWithImmediate:
      return CompletionOpcode::kWrite;
    case SendOpcode::kSend:
    case SendOpcode::kSendWithImmediate:
    case SendOpcode::kSendWithInvalidate:
      return CompletionOpcode::kSend;
    case SendOpcode::kRead:
      return CompletionOpcode::kRead;
    case SendOpcode::kCompareSwap:
      return CompletionOpcode::kCompareSwap;
    case SendOpcode::kFetchAdd:
      return CompletionOpcode::kFetchAdd;
    case SendOpcode::kLocalInvalidate:
      return CompletionOpcode::kLocalInvalidate;
    case SendOpcode::kBindWindow:
      return CompletionOpcode::kBindWindow;
  }
  return CompletionOpcode::kSend;
}

}  // namespace

bool finish_oldest_send(model::Qp& qp, model::CompletionStatus status) {
  const model::SendWqe& wqe = qp.send_queue.at(qp.send_queue.head());
  const bool success = status == model::CompletionStatus::kSuccess;
  const bool visible = !success || qp.signal_all || (wqe.flags & model::kSignaled) != 0;
  model::WorkCompletion completion;
  completion.wr_id = wqe.wr_id;
  completion.status = status;
  completion.opcode = completion_opcode(wqe.opcode);
  completion.qpn = qp.qpn;
  // The length of what arrived: READs and atomics.
  const bool arrives = wqe.opcode == SendOpcode::kRead || wqe.opcode == SendOpcode::kCompareSwap ||
                       wqe.opcode == SendOpcode::kFetchAdd;
  completion.byte_length = success && arrives ? wqe.length : 0;
  // The place is free before the completion shows: who polls it may post at once.
  qp.send_queue.pop_front();
  return !visible || qp.send_cq->push(completion, false);
}

bool fail_receive(model::Qp& qp, uint64_t wr_id, model::CompletionStatus status) {
  model::WorkCompletion completion;
  completion.wr_id = wr_id;
  completion.status = status;
  completion.opcode = CompletionOpcode::kReceive;
  completion.qpn = qp.qpn;
  return qp.receive_cq->push(completion, false);
}

void flush_sends(model::Qp& qp) {
  while (qp.send_queue.head() < qp.send_queue.tail()) {
    finish_oldest_send(qp, model::CompletionStatus::kWorkRequestFlushed);
  }
}

void flush_receives(model::Qp& qp, model::ReceiveWqe& scratch) {
  if (qp.srq != nullptr || qp.receive_queue.count() == 0) return;
  prepare(scratch, qp.receive_queue);
  while (qp.receive_queue.pop(scratch)) {
    fail_receive(qp, scratch.wr_id, model::CompletionStatus::kWorkRequestFlushed);
  }
}

void prepare(model::ReceiveWqe& receive, const model::ReceiveQueue& queue) {
  if (receive.sge_storage != nullptr) return;
  receive.sge_storage =
      std::make_unique<model::ScatterGatherElement[]>(std::max(queue.max_sge(), 1u));
}

}  // namespace farverbs::proto
