// What comes back to a requester: acknowledgements, refusals, responses, and the silence of timers.
#include <algorithm>

#include "farverbs/base/fault_guard.h"
#include "farverbs/proto/completions.h"
#include "farverbs/proto/packet_run.h"
#include "farverbs/proto/placing.h"
#include "farverbs/proto/rc_requester.h"

namespace farverbs::proto {

using model::CompletionStatus;
using model::SendWqe;

namespace {

constexpr CompletionStatus status_of(wire::NakCode code) {
  switch (code) {
    case wire::NakCode::invalid_request:
      return CompletionStatus::kRemoteInvalidRequest;
    case wire::NakCode::remote_access_error:
      return CompletionStatus::kRemoteAccessError;
    case wire::NakCode::remote_operational_error:
      return CompletionStatus::kRemoteOperationError;
    default:
      return CompletionStatus::kBadResponse;
  }
}

constexpr uint8_t kRnrRetryForEver = 7;

}  // namespace

Duration RcRequester::retry_timeout() const {
  // 4.096 us * 2^timeout; code 0 waits for ever (IBTA vol. 1 C9-140).
  if (qp_.attributes.timeout == 0) return Duration::max();
  return Duration::nanoseconds(int64_t{4096} << qp_.attributes.timeout);
}

void RcRequester::on_response(Time now, const wire::PacketView& packet,
                              const PacketContext& context) {
  if (failed_) return;
  const PacketNumber number = packet.bth.psn.extend(unacked_);
  const wire::OpKind kind = packet.info->kind;
  const bool placed_by_state = kind == wire::OpKind::read_response && !packet.info->begins() &&
                               number == unacked_ && number < sent_end_ && is_read(head().opcode);
  if (!placed_by_state && !intact(packet, context)) {
    ++qp_.counters.dropped_packets;
    return;
  }
  switch (kind) {
    case wire::OpKind::ack:
      return on_acknowledge(now, number, packet.aeth());
    case wire::OpKind::read_response:
      return on_read_response(now, number, packet, context);
    case wire::OpKind::atomic_ack:
      return on_atomic_response(now, number, packet);
    default:
      ++qp_.counters.dropped_packets;
      return;
  }
}

void RcRequester::on_acknowledge(Time now, PacketNumber number, const wire::Aeth& aeth) {
  // A ghost: about packets that were never sent, or told before.
  if (number >= sent_end_ || number + 1 < unacked_) {
    ++qp_.counters.dropped_packets;
    return;
  }
  const wire::Syndrome syndrome(aeth.syndrome);
  switch (syndrome.kind()) {
    case wire::SyndromeKind::ack:
      take_credits(aeth);
      if (!acknowledge_until(now, number + 1)) on_loss(now);
      return;
    case wire::SyndromeKind::rnr_nak:
      return on_not_ready(now, number, syndrome.value());
    case wire::SyndromeKind::nak:
      return on_refusal(now, number, syndrome.nak_code());
    case wire::SyndromeKind::reserved:
      ++qp_.counters.dropped_packets;
      return;
  }
}

void RcRequester::on_not_ready(Time now, PacketNumber number, uint8_t timer_code) {
  ++qp_.counters.rnr_naks_received;
  if (!reach(now, number)) return;
  if (!in_flight() || !rnr_deadline_.is_never()) return;  // heard already
  const uint8_t most = qp_.attributes.rnr_retry;
  if (most != kRnrRetryForEver && rnr_retries_ >= most) {
    return fail_head(CompletionStatus::kRnrRetryExceeded);
  }
  rnr_retries_ = static_cast<uint8_t>(std::min(rnr_retries_ + 1, 255));
  rewind(now);
  rnr_deadline_ = now + wire::rnr_delay(timer_code);
}

void RcRequester::on_refusal(Time now, PacketNumber number, wire::NakCode code) {
  if (code == wire::NakCode::psn_sequence_error) {
    ++qp_.counters.sequence_naks_received;
    if (number < unacked_) return;
    acknowledge_until(now, number);  // it tells that all before has arrived
    return on_loss(now);
  }
  if (reach(now, number)) fail_head(status_of(code));
}

// Makes `number` the oldest unacknowledged packet, which an answer about that packet implies. False
// if that can't be: stale, never sent, or a response before it is missing.
bool RcRequester::reach(Time now, PacketNumber number) {
  if (number < unacked_ || number >= sent_end_) {
    ++qp_.counters.dropped_packets;
    return false;
  }
  if (!acknowledge_until(now, number)) {
    on_loss(now);
    return false;
  }
  return !failed_;
}

// Acknowledges all before `end`. False: a READ or an atomic on the way there has not been answered,
// so its response was lost (IBTA vol. 1 section 9.7.5.1.1).
bool RcRequester::acknowledge_until(Time now, PacketNumber end) {
  while (unacked_ < end && !failed_) {
    const SendWqe& oldest = head();
    if (wants_response(oldest.opcode)) return false;
    advance(now, oldest, std::min(end, oldest.first_packet + oldest.packet_count));
  }
  return true;
}

void RcRequester::advance(Time now, const SendWqe& oldest, PacketNumber end) {
  const PacketNumber flown = std::min(end, cursor_);
  if (unacked_ < flown) {
    const uint64_t from = unacked_ - oldest.first_packet;
    const uint64_t to = flown - oldest.first_packet;
    if (is_read(oldest.opcode)) {
      feedback_.read_bytes_arrived += response_bytes(oldest.length, from, to, mtu());
    } else {
      feedback_.acked_bytes +=
          request_bytes(oldest, static_cast<uint32_t>(from), static_cast<uint32_t>(to), mtu());
    }
  }
  unacked_ = end;
  cursor_ = std::max(cursor_, unacked_);
  retries_ = rnr_retries_ = repairs_ = 0;
  repair_deadline_ = Time::never();
  // An old acknowledgement may pass what an RNR NAK took back; then there is nothing to wait for.
  rnr_deadline_ = Time::never();
  retry_deadline_ = in_flight() ? now + retry_timeout() : Time::never();
  RoundTrips::Probe probe;
  if (round_trips_.take(unacked_, probe)) {
    round_trips_.measured(now - probe.sent);
    feedback_.has_rtt = true;
    feedback_.rtt = now - probe.sent;
    feedback_.probe_sent = probe.sent;
    feedback_.probe_delivered = probe.delivered;
  }
  while (outstanding_count_ > 0 && outstanding_[outstanding_head_].end <= unacked_) {
    outstanding_head_ = static_cast<uint8_t>((outstanding_head_ + 1) % outstanding_size_);
    --outstanding_count_;
    if (outstanding_sent_ > 0) --outstanding_sent_;
  }
  complete_finished();
}

void RcRequester::complete_finished() {
  while (qp_.send_queue.head() < qp_.send_queue.tail() && !failed_) {
    const SendWqe& oldest = head();
    if (!oldest.started || unacked_ < oldest.first_packet + oldest.packet_count) break;
    if (qp_.send_queue.head() == error_index_) break;
    if (wants_response(oldest.opcode)) --open_responses_;
    if (!finish_oldest_send(qp_, CompletionStatus::kSuccess)) failed_ = true;
  }
  settle_local_error();
}

void RcRequester::take_credits(const wire::Aeth& aeth) {
  const uint8_t code = wire::Syndrome(aeth.syndrome).value();
  has_credit_limit_ = code != wire::kNoCredit && config_.end_to_end_credits;
  credit_limit_ = aeth.msn + wire::credits_of(code);
}

// --- READ and atomic responses
// ----------------------------------------------------------------------

void RcRequester::on_read_response(Time now, PacketNumber number, const wire::PacketView& packet,
                                   const PacketContext& context) {
  if (!reach(now, number)) return;
  const SendWqe& request = head();
  const uint64_t offset = (number - request.first_packet) * mtu();
  if (!is_read(request.opcode)) {
    ++qp_.counters.dropped_packets;
    return;
  }
  const bool checked = packet.info->begins() || context.unchecked == nullptr;
  const auto damaged = [&] {
    if (checked || intact(packet, context)) return false;
    ++qp_.counters.dropped_packets;
    return true;
  };
  const uint64_t length = std::min<uint64_t>(mtu(), request.length - offset);
  if (packet.payload().size() != length) {
    if (!damaged()) fail_head(CompletionStatus::kBadResponse);
    return;
  }
  TargetPieces pieces;
  if (target_of_head().find(request.sges(), offset, length, qp_.memory, qp_.pd, model::kLocalWrite,
                            pieces) != model::MemoryVerdict::kOk) {
    if (!damaged()) fail_head(CompletionStatus::kLocalProtectionError);
    return;
  }
  switch (place(packet, context, checked, pieces.view())) {
    case Placed::kDone:
      break;
    case Placed::kDamaged:
      ++qp_.counters.dropped_packets;
      return;
    case Placed::kFault:
      if (!damaged()) fail_head(CompletionStatus::kLocalProtectionError);
      return;
  }
  if (packet.has(wire::Extension::aeth)) take_credits(packet.aeth());
  measure_read(now, number);
  ++qp_.counters.received_packets;
  qp_.counters.received_payload_bytes += length;
  advance(now, request, number + 1);
}

SgeWalker& RcRequester::target_of_head() {
  if (target_index_ != qp_.send_queue.head()) {
    target_.reset();
    target_index_ = qp_.send_queue.head();
  }
  return target_;
}

// Of one wire request, and neither its first nor its last response, which measure_read() is for.
size_t RcRequester::on_run(Time now, const ReceivedRun& run) {
  if (failed_ || outstanding_count_ == 0 || run.bytes.size() < 2 * run.segment_size) return 0;
  const Outstanding& asked = outstanding(0);
  if (unacked_ <= asked.begin || unacked_ + 1 >= asked.end || !is_read(head().opcode)) return 0;
  const SendWqe& request = head();
  const uint64_t offset = (unacked_ - request.first_packet) * mtu();
  const std::span<std::byte> piece = target_of_head().rest_of_element(
      request.sges(), offset, qp_.memory, qp_.pd, model::kLocalWrite);
  const uint64_t most = std::min<uint64_t>(asked.end - 1 - unacked_, piece.size() / mtu());
  const size_t taken =
      take_run(run, qp_, wire::Opcode::rc_read_response_middle, Psn(unacked_), piece.data(), most)
          .packets;
  if (taken == 0) return 0;
  qp_.counters.received_packets += taken;
  qp_.counters.received_payload_bytes += taken * mtu();
  advance(now, request, unacked_ + taken);
  return taken;
}

// The first response of a wire request tells the round trip; at its last one all that came
// meanwhile is counted, which tells the rate.
void RcRequester::measure_read(Time now, PacketNumber number) {
  if (outstanding_count_ == 0) return;
  Outstanding& request = outstanding(0);
  if (request.again || number < request.begin) return;
  if (number == request.begin) request.rtt = now - request.sent;
  if (number + 1 != request.end || request.rtt == Duration{}) return;
  feedback_.has_read_rtt = true;
  feedback_.read_rtt = request.rtt;
  feedback_.read_probe_sent = request.sent;
  feedback_.read_probe_delivered = request.delivered;
  round_trips_.measured(request.rtt);
}

void RcRequester::on_atomic_response(Time now, PacketNumber number,
                                     const wire::PacketView& packet) {
  if (!reach(now, number)) return;
  const SendWqe& request = head();
  if (!is_atomic(request.opcode)) {
    ++qp_.counters.dropped_packets;
    return;
  }
  // The value stands in memory in this host's order (IBTA vol. 1 section 9.4.5).
  const uint64_t original = packet.atomic_ack_eth().original;
  const auto* bytes = reinterpret_cast<const std::byte*>(&original);
  SgeWalker walker;
  TargetPieces pieces;
  if (walker.find(request.sges(), 0, sizeof original, qp_.memory, qp_.pd, model::kLocalWrite,
                  pieces) != model::MemoryVerdict::kOk) {
    return fail_head(CompletionStatus::kLocalProtectionError);
  }
  const bool there = guarded([&] {
    for (const std::span<std::byte> piece : pieces.view()) {
      std::memcpy(piece.data(), bytes, piece.size());
      bytes += piece.size();
    }
  });
  if (!there) return fail_head(CompletionStatus::kLocalProtectionError);
  take_credits(packet.aeth());
  ++qp_.counters.received_packets;
  advance(now, request, number + 1);
}

// --- Loss
// -------------------------------------------------------------------------------------------

void RcRequester::on_loss(Time now) {
  if (failed_ || !in_flight()) return;  // taken back already
  if (rewound_ && rewound_at_ == unacked_) {
    // What was under way when this loss was seen first keeps telling of it. It is news only when
    // what was sent again has had the time to be answered.
    const Duration patience = round_trips_.patience();
    if (patience == Duration{} || now - rewound_time_ < patience) return;
    if (retries_ >= qp_.attributes.retry_count) return fail_head(CompletionStatus::kRetryExceeded);
    ++retries_;
  }
  rewind(now);
}

void RcRequester::rewind(Time now) {
  take_back();
  round_trips_.forget();
  ack_next_ = true;
  rewound_ = true;
  rewound_at_ = unacked_;
  rewound_time_ = now;
}

// A responder tells of a gap once (IBTA vol. 1 C9-110): when what was sent again gets lost too,
// nobody says so, and the local ACK timeout is for peers that are dead. Having measured the round
// trip, the requester knows better when an answer is overdue. Backs off, for the path may have got
// longer.
void RcRequester::arm_repair(Time now) {
  constexpr uint8_t kMostRepairs = 6;
  constexpr Duration kLeast = Duration::milliseconds(1);
  const Duration patience = round_trips_.patience();
  if (!repair_deadline_.is_never() || patience == Duration{} || repairs_ >= kMostRepairs) return;
  repair_deadline_ = now + std::max(patience * 2, kLeast) * (int64_t{1} << repairs_);
}

void RcRequester::take_back() {
  for (uint64_t i = qp_.send_queue.head(); i < qp_.send_queue.tail() && in_flight(); ++i) {
    const SendWqe& wqe = qp_.send_queue.at(i);
    if (!wqe.started || wqe.first_packet >= cursor_) break;
    const uint64_t from = std::max(unacked_, wqe.first_packet) - wqe.first_packet;
    const uint64_t to = std::min(cursor_, wqe.first_packet + wqe.packet_count) - wqe.first_packet;
    if (to <= from) continue;
    if (is_read(wqe.opcode)) {
      feedback_.read_bytes_lost += response_bytes(wqe.length, from, to, mtu());
    } else {
      feedback_.lost_bytes +=
          request_bytes(wqe, static_cast<uint32_t>(from), static_cast<uint32_t>(to), mtu());
    }
  }
  cursor_ = unacked_;
  send_index_ = qp_.send_queue.head();
  since_request_ = 0;
  outstanding_sent_ = 0;
  retry_deadline_ = repair_deadline_ = Time::never();
}

void RcRequester::stop() {
  take_back();
  failed_ = true;
  rnr_deadline_ = Time::never();
}

void RcRequester::on_timer(Time now) {
  if (failed_) return;
  if (now >= rnr_deadline_) rnr_deadline_ = Time::never();
  if (now >= repair_deadline_) {
    repair_deadline_ = Time::never();
    if (in_flight() && now < retry_deadline_) {
      // The peer's own patience goes on: it is what tells a dead one.
      const Time patience = retry_deadline_;
      ++repairs_;
      rewind(now);
      retry_deadline_ = patience;
      return;
    }
  }
  if (now < retry_deadline_) return;
  retry_deadline_ = Time::never();
  if (!in_flight()) return;
  ++qp_.counters.timeouts;
  feedback_.timed_out = true;
  if (retries_ >= qp_.attributes.retry_count) return fail_head(CompletionStatus::kRetryExceeded);
  ++retries_;
  rewind(now);
}

void RcRequester::fail_head(CompletionStatus status) {
  take_back();
  failed_ = true;
  finish_oldest_send(qp_, status);
  rnr_deadline_ = Time::never();
}

}  // namespace farverbs::proto
