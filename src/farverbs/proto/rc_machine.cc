#include "farverbs/proto/rc_machine.h"

#include "farverbs/proto/completions.h"

namespace farverbs::proto {

using model::AsyncEventType;
using model::QpState;

void RcMachine::on_state(Time, QpState from, QpState to) {
  switch (to) {
    case QpState::kReset:
      requester_.reset();
      responder_.reset();
      if (far_ != nullptr) far_->reset();  // its bytes leave the path's flight yet
      established_ = drained_ = last_words_ = false;
      return;
    case QpState::kInit:
      far_.reset();  // the next connection may be another's
      return;
    case QpState::kRtr:
      responder_.start();
      if (far_ != nullptr) far_->start_responder();
      return;
    case QpState::kRts:
      if (from != QpState::kRtr) return;
      requester_.start();
      if (far_ != nullptr) far_->start_requester();
      return;
    case QpState::kSqd:
      if (from != QpState::kSqd) drained_ = false;
      return settle();
    case QpState::kErr:
      return enter_error();
    default:
      return;
  }
}

void RcMachine::use_far() { far_ = std::make_unique<FarMachine>(qp_, config_); }

Time RcMachine::next_timer() const {
  return far_ != nullptr ? far_->next_timer() : requester_.next_timer();
}

Feedback RcMachine::take_feedback() {
  return far_ != nullptr ? far_->take_feedback() : requester_.take_feedback();
}

size_t RcMachine::memory_bytes() const {
  const size_t far = far_ != nullptr ? sizeof(FarMachine) + far_->memory_bytes() : 0;
  return requester_.memory_bytes() + responder_.memory_bytes() + far;
}

void RcMachine::on_packet(Time now, const wire::PacketView& packet, const PacketContext& context) {
  const bool receiving = sending() || state() == QpState::kRtr;
  if (far_ != nullptr && packet.has(wire::Extension::far_base)) {
    if (receiving) {
      far_->on_packet(now, packet, context);
    } else if (state() == QpState::kErr && far_->refusing()) {
      far_->on_packet_in_error(packet, context);
    }
    establish();
    return settle();
  }
  const bool mine = packet.info->service == wire::Service::rc;
  if (!mine || !receiving || (packet.info->is_response() && !sending())) {
    ++qp_.counters.dropped_packets;
    return;
  }
  if (packet.info->is_response()) {
    requester_.on_response(now, packet, context);
  } else {
    responder_.on_request(now, packet, context);
  }
  establish();
  settle();
}

size_t RcMachine::on_run(Time now, const ReceivedRun& run) {
  if (far_ != nullptr) {
    return sending() || state() == QpState::kRtr ? far_->on_run(now, run) : 0;
  }
  size_t taken = 0;
  if (sending() || state() == QpState::kRtr) taken = responder_.on_run(run);
  if (taken == 0 && sending()) taken = requester_.on_run(now, run);
  if (taken > 0) settle();
  return taken;
}

void RcMachine::establish() {
  if (state() != QpState::kRtr || established_ || qp_.counters.received_packets == 0) return;
  established_ = true;
  qp_.raise(AsyncEventType::kCommunicationEstablished);
}

void RcMachine::on_work(Time) { settle(); }

void RcMachine::on_timer(Time now) {
  if (far_ != nullptr) {
    far_->on_timer(now);
  } else {
    requester_.on_timer(now);
  }
  settle();
}

bool RcMachine::wants_transmit() const {
  if (far_ != nullptr) return sending() && far_->ready();
  return wants_respond() || (sending() && !last_words_ && requester_.ready());
}

bool RcMachine::wants_respond() const {
  if (far_ != nullptr) return sending() && far_->must_send();
  return (last_words_ || sending() || state() == QpState::kRtr) && responder_.ready();
}

bool RcMachine::ack_pending() const {
  if (far_ != nullptr) {
    return far_->ack_pending() && (sending() || state() == QpState::kRtr || far_->refusing());
  }
  return (sending() || state() == QpState::kRtr) && responder_.ack_pending();
}

TransmitResult RcMachine::poll_far(const TransmitContext& context) {
  Turn turn(context);
  if (sending()) turn.result.status = far_->transmit(turn);
  const TransmitStatus status = turn.result.status;
  if ((status == TransmitStatus::kIdle || status == TransmitStatus::kWindow) && ack_pending() &&
      far_->acknowledge(turn) == TransmitStatus::kBurstFull) {
    turn.result.status = TransmitStatus::kBurstFull;
  }
  settle();
  return turn.result;
}

TransmitResult RcMachine::poll_transmit(const TransmitContext& context) {
  if (far_ != nullptr) return poll_far(context);
  Turn turn(context);
  if (sending() || state() == QpState::kRtr || last_words_) {
    turn.result.status = responder_.respond(turn);
    if (turn.result.status == TransmitStatus::kIdle) last_words_ = false;
  }
  if (turn.result.status == TransmitStatus::kIdle && sending()) {
    turn.result.status = requester_.transmit(turn);
  }
  // The acknowledgement comes last: being short, it may end a burst of full packets.
  const TransmitStatus status = turn.result.status;
  if ((status == TransmitStatus::kIdle || status == TransmitStatus::kWindow) &&
      (sending() || state() == QpState::kRtr)) {
    if (responder_.acknowledge(turn) == TransmitStatus::kBurstFull) {
      turn.result.status = TransmitStatus::kBurstFull;
    }
  }
  settle();
  return turn.result;
}

// After every step: errors take effect, and a drained send queue is told.
void RcMachine::settle() {
  if (state() == QpState::kErr) return flush();
  if (requester_.failed() || responder_.failed()) {
    qp_.state.store(QpState::kErr, std::memory_order_relaxed);
    last_words_ = responder_.failed();
    if (last_words_ && responder_.failure_event() != AsyncEventType::kDeviceFatal) {
      qp_.raise(responder_.failure_event());
    } else if (qp_.send_cq->in_error() || qp_.receive_cq->in_error()) {
      qp_.raise(AsyncEventType::kQpFatal);
    }
    return enter_error();
  }
  if (far_ != nullptr && far_->failed()) {
    qp_.state.store(QpState::kErr, std::memory_order_relaxed);
    if (far_->refusing() && far_->failure_event() != AsyncEventType::kDeviceFatal) {
      qp_.raise(far_->failure_event());
    } else if (qp_.send_cq->in_error() || qp_.receive_cq->in_error()) {
      qp_.raise(AsyncEventType::kQpFatal);
    }
    return enter_error();
  }
  const bool all_done = far_ != nullptr ? far_->drained() : requester_.drained();
  if (state() == QpState::kSqd && !drained_ && all_done) {
    drained_ = true;
    if (qp_.attributes.enable_sqd_notify) qp_.raise(AsyncEventType::kSqDrained);
  }
}

void RcMachine::fail(Time) {
  if (state() == QpState::kErr || state() == QpState::kReset) return;
  qp_.state.store(QpState::kErr, std::memory_order_relaxed);
  qp_.raise(AsyncEventType::kQpFatal);
  enter_error();
}

void RcMachine::enter_error() {
  requester_.stop();
  if (far_ != nullptr) far_->stop();
  flush();
  if (qp_.srq != nullptr) qp_.raise(AsyncEventType::kLastWqeReached);
}

void RcMachine::flush() {
  flush_sends(qp_);
  if (far_ != nullptr) far_->flush();
  responder_.flush();
}

}  // namespace farverbs::proto
