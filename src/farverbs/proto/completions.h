// How a machine tells the application that a request ended. A push onto a completion queue that has
// overflowed takes the QP to the error state (IBTA vol. 1 C9-218): these give false then.
#pragma once

#include "farverbs/model/qp.h"

namespace farverbs::proto {

// Takes the oldest send request off its queue and completes it: visibly if it failed, was posted
// signaled, or the QP signals all.
bool finish_oldest_send(model::Qp& qp, model::CompletionStatus status);

// A receive that ended in an error: only wr_id, status and qpn count.
bool fail_receive(model::Qp& qp, uint64_t wr_id, model::CompletionStatus status);

// Completes everything that is queued with WORK_REQUEST_FLUSHED, oldest first. Receives of an SRQ
// stay: others may use them.
void flush_sends(model::Qp& qp);
void flush_receives(model::Qp& qp, model::ReceiveWqe& scratch);

// Storage for the SGEs of a receive, made at the first use.
void prepare(model::ReceiveWqe& receive, const model::ReceiveQueue& queue);

}  // namespace farverbs::proto
