#include "farverbs/proto/uc_machine.h"

#include "farverbs/proto/completions.h"
#include "farverbs/proto/placing.h"
#include "farverbs/proto/request_packet.h"

namespace farverbs::proto {

using model::AsyncEventType;
using model::CompletionStatus;
using model::QpState;

void UcMachine::on_state(Time, QpState from, QpState to) {
  switch (to) {
    case QpState::kReset:
      inbound_.reset();
      established_ = false;
      return;
    case QpState::kRtr:
      expected_ = first_packet_number(qp_.attributes.rq_psn);
      return;
    case QpState::kRts:
      if (from == QpState::kRtr) next_ = first_packet_number(qp_.attributes.sq_psn);
      break;
    case QpState::kErr:
      return enter_error();
    default:
      break;
  }
  outbox_.on_state(from, to);
}

void UcMachine::on_packet(Time now, const wire::PacketView& packet, const PacketContext& context) {
  const QpState state = qp_.state.load(std::memory_order_relaxed);
  const bool receiving = state == QpState::kRtr || state == QpState::kRts ||
                         state == QpState::kSqd || state == QpState::kSqe;
  if (!receiving || packet.info->service != wire::Service::uc) {
    ++qp_.counters.dropped_packets;
    return;
  }
  Arrival arrival{now, packet, context, packet.bth.psn.extend(expected_)};
  const bool placed_by_state =
      arrival.number == expected_ && inbound_.continues(arrival) && packet.info->extensions == 0;
  if (!placed_by_state || context.unchecked == nullptr) {
    if (!intact(packet, context)) {
      ++qp_.counters.dropped_packets;
      return;
    }
    arrival.checked = true;
  }
  const Verdict verdict = receive(arrival);
  if (verdict == Verdict::kDone) {
    if (state == QpState::kRtr && !established_) {
      established_ = true;
      qp_.raise(AsyncEventType::kCommunicationEstablished);
    }
    return;
  }
  if (verdict == Verdict::kReceiveProtection && (arrival.checked || intact(packet, context))) {
    inbound_.fail_receive(CompletionStatus::kLocalProtectionError);
    qp_.state.store(QpState::kErr, std::memory_order_relaxed);
    return enter_error();
  }
  if (verdict == Verdict::kCompletionOverflow) return fail(now);
  ++qp_.counters.dropped_packets;
  // A damaged packet leaves a gap, which the next one shows. All else ends the message here.
  if (verdict != Verdict::kDamaged && (arrival.checked || intact(packet, context))) {
    inbound_.drop_message();
    expected_ = arrival.number + 1;
  }
}

Verdict UcMachine::receive(Arrival& arrival) {
  if (arrival.number != expected_ || arrival.begins()) inbound_.drop_message();
  using Step = Verdict (*)(Inbound&, const Arrival&);
  static constexpr Step kSteps[] = {
      [](Inbound& in, const Arrival& a) { return in.check_opcode_sequence(a); },
      [](Inbound& in, const Arrival& a) { return in.check_operation(a); },
      [](Inbound& in, const Arrival& a) { return in.check_resources(a); },
      [](Inbound& in, const Arrival& a) { return in.check_length(a); },
      [](Inbound& in, const Arrival& a) { return in.check_rkey(a); },
      [](Inbound& in, const Arrival& a) { return in.place(a); },
      [](Inbound& in, const Arrival& a) { return in.finish(a); },
  };
  for (const Step step : kSteps) {
    const Verdict verdict = step(inbound_, arrival);
    if (verdict == Verdict::kContinue) continue;
    if (verdict == Verdict::kDone) expected_ = arrival.number + 1;
    return verdict;
  }
  return Verdict::kDone;
}

void UcMachine::on_work(Time) {
  if (qp_.state.load(std::memory_order_relaxed) == QpState::kErr) return flush();
  outbox_.settle();
}

TransmitResult UcMachine::poll_transmit(const TransmitContext& context) {
  Turn turn(context);
  const uint32_t mtu = model::bytes_of(qp_.attributes.path_mtu);
  while (model::SendWqe* wqe = outbox_.next()) {
    if (wqe->progress == 0) source_.reset();
    const RequestPacket packet = plan_packet(*wqe, wqe->progress, mtu, wire::Service::uc);
    if (turn.quantum_used()) {
      turn.result.status = TransmitStatus::kQuantum;
      break;
    }
    if (turn.request_left == 0) {
      turn.result.status = TransmitStatus::kWindow;
      break;
    }
    if (!turn.fits(packet.size)) {
      turn.result.status = TransmitStatus::kBurstFull;
      break;
    }
    if (!build_packet(turn, qp_, *wqe, packet, Psn(next_), false, source_)) {
      outbox_.fail(CompletionStatus::kLocalProtectionError);
      break;
    }
    ++next_;
    turn.spend_unacknowledged(packet.size);
    ++qp_.counters.sent_packets;
    qp_.counters.sent_payload_bytes += packet.length;
    ++wqe->progress;
    if (packet.ends) outbox_.finish();
  }
  if (qp_.state.load(std::memory_order_relaxed) == QpState::kErr) flush();
  return turn.result;
}

void UcMachine::fail(Time) {
  const QpState state = qp_.state.load(std::memory_order_relaxed);
  if (state == QpState::kErr || state == QpState::kReset) return;
  qp_.state.store(QpState::kErr, std::memory_order_relaxed);
  qp_.raise(AsyncEventType::kQpFatal);
  enter_error();
}

void UcMachine::enter_error() {
  flush();
  if (qp_.srq != nullptr) qp_.raise(AsyncEventType::kLastWqeReached);
}

void UcMachine::flush() {
  flush_sends(qp_);
  inbound_.fail_receive(CompletionStatus::kWorkRequestFlushed);
  inbound_.drop_message();
  flush_receives(qp_, inbound_.scratch());
}

}  // namespace farverbs::proto
