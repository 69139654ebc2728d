#include "farverbs/proto/rc_machine.h"

#include <algorithm>

#include "farverbs/proto/completions.h"
#include "farverbs/proto/placing.h"

namespace farverbs::proto {

using model::AsyncEventType;
using model::QpState;

namespace {

// In the six reserved bits of BTH byte 4, which standard peers ignore.
constexpr uint8_t kFarOffer = 0x2D;

// Of the far transport's packets those that begin or go on with a message of the requester.
constexpr bool is_request(wire::OpKind kind) {
  using enum wire::OpKind;
  return kind == send || kind == write || kind == read_request || kind == compare_swap ||
         kind == fetch_add;
}

}  // namespace

void RcMachine::make_standard() {
  if (requester_ == nullptr) requester_ = std::make_unique<RcRequester>(qp_, config_);
  if (responder_ == nullptr) responder_ = std::make_unique<RcResponder>(qp_, config_);
}

void RcMachine::on_state(Time, QpState from, QpState to) {
  switch (to) {
    case QpState::kReset:
      if (requester_ != nullptr) requester_->reset();
      if (responder_ != nullptr) responder_->reset();
      if (far_ != nullptr) far_->reset();  // its bytes leave the path's flight yet
      established_ = drained_ = last_words_ = false;
      qp_.bth_reserved = 0;
      return;
    case QpState::kInit:
      if (from == QpState::kInit) return;
      far_.reset();  // the next connection may be another's
      make_standard();
      far_from_the_start_ = requests_far_ = peer_far_ = false;
      offers_ = config_.far_use == FarUse::kNegotiate;
      return;
    case QpState::kRtr:
      if (responder_ != nullptr) responder_->start();
      if (far_ != nullptr) far_->start_responder();
      return;
    case QpState::kRts:
      if (from != QpState::kRtr) return;
      if (requester_ != nullptr) requester_->start();
      if (far_ != nullptr) far_->start_sending();
      if (far_from_the_start_) far_->start_requester();
      // Not before: to answer READs it needs packet numbers, and those begin at sq_psn. Some ends
      // never leave RTR.
      if (offers_) {
        qp_.bth_reserved = kFarOffer;
        responder_->say_hello();
      }
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

void RcMachine::use_far() {
  if (far_ == nullptr) far_ = std::make_unique<FarMachine>(qp_, config_);
  far_from_the_start_ = requests_far_ = true;
  requester_.reset();
  responder_.reset();
  offers_ = false;
}

// --- Negotiation in band (docs/far-transport.md section 10)

// A packet of RC that fits this connection and offers the far transport.
void RcMachine::notice(const wire::PacketView& packet, const PacketContext& context) {
  if (!offers_ || far_ != nullptr || packet.bth.reserved6 != kFarOffer || !sending()) return;
  const bool fits = packet.info->is_response() ? requester_->may_answer(packet.bth.psn)
                                               : responder_->expects(packet.bth.psn);
  if (fits && intact(packet, context)) meet_far_peer();
}

// The responder takes both from here on; requests change over when those on their way are done.
void RcMachine::meet_far_peer() {
  far_ = std::make_unique<FarMachine>(qp_, config_);
  far_->start_responder();
  far_->start_sending();
  requester_->hold();
}

// A packet of the far transport. False: it is not for this connection as it stands.
bool RcMachine::take_far(Time now, const wire::PacketView& packet, const PacketContext& context) {
  if (far_ == nullptr) {
    // The peer learned of this end, and what it had to say of itself was lost.
    if (!offers_ || !sending()) return false;
    auto far = std::make_unique<FarMachine>(qp_, config_);
    far->start_responder();
    const wire::OpKind kind = packet.info->kind;
    const bool numbered = is_request(kind) || kind == wire::OpKind::probe;
    if (!numbered || !far->proves(packet, context)) return false;
    meet_far_peer();
  }
  if (!far_from_the_start_ && !peer_far_ && is_request(packet.info->kind)) {
    // Its first request: those before it have been carried out.
    if (!responder_->idle() || !far_->proves(packet, context)) return false;
    peer_far_ = true;
    responder_.reset();
  }
  far_->on_packet(now, packet, context);
  return true;
}

// Called with no feedback of the standard flight left to tell: nothing is counted to the other.
bool RcMachine::change_over() {
  if (far_ == nullptr || requests_far_ || !sending() || !requester_->drained()) return false;
  requests_far_ = true;
  requester_.reset();
  far_->start_requester();
  return true;
}

Time RcMachine::next_timer() const {
  const Time standard = requester_ != nullptr ? requester_->next_timer() : Time::never();
  return far_ != nullptr ? std::min(standard, far_->next_timer()) : standard;
}

bool RcMachine::take_feedback(Feedback& told) {
  if (far_ != nullptr && far_->take_feedback(told)) return true;
  if (requests_far_) return false;
  if (requester_->take_feedback(told)) return true;
  if (!change_over()) return false;
  told = Feedback{};
  told.far = told.moved = true;
  return true;
}

size_t RcMachine::memory_bytes() const {
  size_t bytes = 0;
  if (requester_ != nullptr) bytes += sizeof(RcRequester) + requester_->memory_bytes();
  if (responder_ != nullptr) bytes += sizeof(RcResponder) + responder_->memory_bytes();
  if (far_ != nullptr) bytes += sizeof(FarMachine) + far_->memory_bytes();
  return bytes;
}

void RcMachine::on_packet(Time now, const wire::PacketView& packet, const PacketContext& context) {
  const bool receiving = sending() || state() == QpState::kRtr;
  if (packet.has(wire::Extension::far_base)) {
    if (receiving) {
      if (!take_far(now, packet, context)) {
        ++qp_.counters.dropped_packets;
        return;
      }
    } else if (state() == QpState::kErr && far_ != nullptr && far_->refusing()) {
      far_->on_packet_in_error(packet, context);
    } else {
      ++qp_.counters.dropped_packets;
    }
    establish();
    return settle();
  }
  const bool mine = packet.info->service == wire::Service::rc && !far_from_the_start_;
  if (!mine || !receiving || (packet.info->is_response() && !sending())) {
    ++qp_.counters.dropped_packets;
    return;
  }
  notice(packet, context);
  const bool response = packet.info->is_response();
  if (response ? requester_ == nullptr : responder_ == nullptr) {
    ++qp_.counters.duplicates_received;  // all that it could be about has been answered
  } else if (response) {
    requester_->on_response(now, packet, context);
  } else {
    responder_->on_request(now, packet, context);
  }
  establish();
  settle();
}

size_t RcMachine::on_run(Time now, const ReceivedRun& run) {
  const bool receiving = sending() || state() == QpState::kRtr;
  if (far_from_the_start_) return receiving ? far_->on_run(now, run) : 0;
  size_t taken = 0;
  if (peer_far_ && receiving) taken = far_->on_run(now, run);
  if (taken > 0) return taken;
  if (receiving && responder_ != nullptr) taken = responder_->on_run(run);
  if (taken == 0 && sending() && requester_ != nullptr) taken = requester_->on_run(now, run);
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
  if (far_ != nullptr) far_->on_timer(now);
  if (requester_ != nullptr) requester_->on_timer(now);
  settle();
}

bool RcMachine::wants_transmit() const {
  if (sending() && far_ != nullptr && far_->ready()) return true;
  return wants_respond() ||
         (sending() && !last_words_ && requester_ != nullptr && requester_->ready());
}

bool RcMachine::wants_respond() const {
  if (sending() && far_ != nullptr && far_->must_send()) return true;
  return responder_ != nullptr && responder_->ready() &&
         (last_words_ || sending() || state() == QpState::kRtr);
}

bool RcMachine::ack_pending() const {
  const bool receiving = sending() || state() == QpState::kRtr;
  if (far_ != nullptr && far_->ack_pending() && (receiving || far_->refusing())) return true;
  return receiving && responder_ != nullptr && responder_->ack_pending();
}

TransmitResult RcMachine::poll_transmit(const TransmitContext& context) {
  Turn turn(context);
  TransmitStatus& status = turn.result.status;
  const bool receiving = sending() || state() == QpState::kRtr;
  const bool far = sends_far();
  if ((receiving || last_words_) && responder_ != nullptr) {
    status = responder_->respond(turn);
    if (status == TransmitStatus::kIdle) last_words_ = false;
  }
  if (status == TransmitStatus::kIdle && sending()) {
    status = far ? far_->transmit(turn) : requester_->transmit(turn);
  }
  // Acknowledgements come last: being short, they may end a burst of full packets.
  const bool room = status == TransmitStatus::kIdle || status == TransmitStatus::kWindow;
  if (room && receiving && responder_ != nullptr &&
      responder_->acknowledge(turn) == TransmitStatus::kBurstFull) {
    status = TransmitStatus::kBurstFull;
  } else if (room && far_ != nullptr && far_->ack_pending() && (receiving || far_->refusing()) &&
             far_->acknowledge(turn) == TransmitStatus::kBurstFull) {
    status = TransmitStatus::kBurstFull;
  }
  settle();
  return turn.result;
}

// After every step: errors take effect, and a drained send queue is told.
void RcMachine::settle() {
  if (state() == QpState::kErr) return flush();
  const bool refused = responder_ != nullptr && responder_->failed();
  if (refused || (requester_ != nullptr && requester_->failed())) {
    qp_.state.store(QpState::kErr, std::memory_order_relaxed);
    last_words_ = refused;
    if (last_words_ && responder_->failure_event() != AsyncEventType::kDeviceFatal) {
      qp_.raise(responder_->failure_event());
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
  const bool all_done = requests_far_ ? far_->drained() : requester_->drained();
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
  if (requester_ != nullptr) requester_->stop();
  if (far_ != nullptr) far_->stop();
  flush();
  if (qp_.srq != nullptr) qp_.raise(AsyncEventType::kLastWqeReached);
}

void RcMachine::flush() {
  flush_sends(qp_);
  // Who took receives off the queue last returns them first.
  if (far_ != nullptr && (far_from_the_start_ || peer_far_)) far_->flush();
  if (responder_ != nullptr) responder_->flush();
  if (far_ != nullptr) far_->flush();
}

}  // namespace farverbs::proto
