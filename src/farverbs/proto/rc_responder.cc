#include "farverbs/proto/rc_responder.h"

#include <algorithm>
#include <atomic>

#include "farverbs/base/fault_guard.h"
#include "farverbs/proto/completions.h"
#include "farverbs/proto/packet_run.h"
#include "farverbs/proto/placing.h"

namespace farverbs::proto {

using model::AsyncEventType;
using model::CompletionStatus;
using model::MemoryVerdict;
using wire::NakCode;
using wire::OpKind;

namespace {

constexpr uint32_t kMostBytes = uint32_t{1} << 31;

}  // namespace

void RcResponder::start() { expected_ = first_packet_number(qp_.attributes.rq_psn); }

void RcResponder::reset() {
  inbound_.reset();
  expected_ = nak_number_ = 0;
  msn_ = unacknowledged_ = 0;
  nak_pending_ = silent_ = ack_owed_ = ack_now_ = failed_ = false;
  failure_event_ = AsyncEventType::kDeviceFatal;
  resources_.reset();
  resource_head_ = resource_count_ = resource_size_ = pending_ = 0;
}

size_t RcResponder::memory_bytes() const {
  return resource_size_ * sizeof(Resource) + inbound_.memory_bytes();
}

// --- The steps
// --------------------------------------------------------------------------------------

const RcResponder::Step RcResponder::kSteps[7] = {
    &RcResponder::check_psn,       &RcResponder::check_opcode_sequence,
    &RcResponder::check_operation, &RcResponder::check_resources,
    &RcResponder::check_length,    &RcResponder::check_rkey,
    &RcResponder::execute,
};

void RcResponder::on_request(Time now, const wire::PacketView& packet,
                             const PacketContext& context) {
  if (failed_) {
    ++qp_.counters.dropped_packets;
    return;
  }
  Arrival arrival{now, packet, context, packet.bth.psn.extend(expected_)};
  // Only the next packet of a message in progress has a place that no header chooses. One that
  // would take a receive, or a key away, is checked before as well.
  const bool placed_by_state =
      arrival.number == expected_ && inbound_.continues(arrival) && packet.info->extensions == 0;
  if (!placed_by_state || context.unchecked == nullptr) {
    if (!intact(packet, context)) {
      ++qp_.counters.dropped_packets;
      return;
    }
    arrival.checked = true;
  }
  Verdict verdict = Verdict::kContinue;
  for (const Step step : kSteps) {
    verdict = (this->*step)(arrival);
    if (verdict != Verdict::kContinue) break;
  }
  conclude(arrival, verdict);
}

Verdict RcResponder::check_psn(Arrival& arrival) {
  if (arrival.number == expected_) return Verdict::kContinue;
  return arrival.number < expected_ ? Verdict::kDuplicate : Verdict::kGap;
}

Verdict RcResponder::check_opcode_sequence(Arrival& arrival) {
  if (!is_read_or_atomic(arrival)) return inbound_.check_opcode_sequence(arrival);
  return inbound_.idle() ? Verdict::kContinue : Verdict::kInvalidRequest;
}

Verdict RcResponder::check_operation(Arrival& arrival) {
  if (!is_read_or_atomic(arrival)) return inbound_.check_operation(arrival);
  const uint32_t right = is_atomic(arrival.kind()) ? model::kRemoteAtomic : model::kRemoteRead;
  return (qp_.attributes.access_flags & right) != 0 ? Verdict::kContinue : Verdict::kInvalidRequest;
}

uint8_t RcResponder::resource_limit() const {
  const uint8_t most = qp_.attributes.max_dest_rd_atomic;
  return resource_size_ == 0 ? most : std::min(most, resource_size_);
}

Verdict RcResponder::check_resources(Arrival& arrival) {
  if (!is_read_or_atomic(arrival)) return inbound_.check_resources(arrival);
  if (resource_limit() == 0) return Verdict::kInvalidRequest;
  if (resource_count_ < resource_limit()) return Verdict::kContinue;
  // The oldest makes room if its requester has had its answer. If only a replay is under way,
  // whoever asks for more than the limit allows has done with it.
  return resource(0).pending && !resource(0).answered ? Verdict::kInvalidRequest
                                                      : Verdict::kContinue;
}

Verdict RcResponder::check_length(Arrival& arrival) {
  if (arrival.kind() == OpKind::read_request) {
    return arrival.packet.reth().length <= kMostBytes ? Verdict::kContinue
                                                      : Verdict::kInvalidRequest;
  }
  if (is_atomic(arrival.kind())) {
    return arrival.packet.atomic_eth().address % 8 == 0 ? Verdict::kContinue
                                                        : Verdict::kInvalidRequest;
  }
  return inbound_.check_length(arrival);
}

Verdict RcResponder::check_rkey(Arrival& arrival) {
  if (!is_read_or_atomic(arrival)) return inbound_.check_rkey(arrival);
  if (is_atomic(arrival.kind())) return Verdict::kContinue;  // looked up where it is carried out
  const wire::Reth reth = arrival.packet.reth();
  return qp_.memory.resolve(reth.rkey, qp_.pd, model::kRemoteRead, reth.address, reth.length, true,
                            qp_.qpn)
                     .verdict == MemoryVerdict::kOk
             ? Verdict::kContinue
             : Verdict::kAccessError;
}

Verdict RcResponder::execute(Arrival& arrival) {
  if (is_atomic(arrival.kind())) return execute_atomic(arrival);
  if (arrival.kind() == OpKind::read_request) {
    const wire::Reth reth = arrival.packet.reth();
    Resource& read = add_resource();
    read.first = expected_;
    read.packets = static_cast<uint32_t>(packets_for(reth.length, mtu()));
    read.length = reth.length;
    read.address = reth.address;
    read.key = reth.rkey;
    read.kind = OpKind::read_request;
    answer(read, read.first, read.first + read.packets);
    expected_ += read.packets;
    ++qp_.counters.received_packets;
    accept(arrival);
    return Verdict::kDone;
  }
  const Verdict placed = inbound_.place(arrival);
  if (placed != Verdict::kContinue) return placed;
  const Verdict finished = inbound_.finish(arrival);
  if (finished != Verdict::kDone) return finished;
  ++expected_;
  accept(arrival);
  return Verdict::kDone;
}

Verdict RcResponder::execute_atomic(Arrival& arrival) {
  const wire::AtomicEth request = arrival.packet.atomic_eth();
  const model::MemoryAccess found = qp_.memory.resolve(
      request.rkey, qp_.pd, model::kRemoteAtomic, request.address, sizeof(uint64_t), true, qp_.qpn);
  if (found.verdict != MemoryVerdict::kOk) return Verdict::kAccessError;
  // A region may begin anywhere in this process's memory, whatever its peers call the address.
  if (reinterpret_cast<uintptr_t>(found.memory) % sizeof(uint64_t) != 0) {
    return Verdict::kInvalidRequest;
  }
  auto* const word = reinterpret_cast<uint64_t*>(found.memory);
  const bool compare = arrival.kind() == OpKind::compare_swap;
  uint64_t original = request.compare;
  const bool there = guarded([&] {
    const std::atomic_ref<uint64_t> value(*word);
    if (compare) {
      value.compare_exchange_strong(original, request.swap_or_add);
    } else {
      original = value.fetch_add(request.swap_or_add);
    }
  });
  if (!there) return Verdict::kOperationalError;
  Resource& atomic = add_resource();
  atomic.first = expected_;
  atomic.packets = 1;
  atomic.original = original;
  atomic.kind = arrival.kind();
  answer(atomic, expected_, expected_ + 1);
  ++expected_;
  ++qp_.counters.received_packets;
  accept(arrival);
  return Verdict::kDone;
}

// The expected packet was carried out.
void RcResponder::accept(const Arrival& arrival) {
  silent_ = false;
  nak_pending_ = false;                               // what it complained of has come after all
  if (arrival.ends()) msn_ = (msn_ + 1) & 0xFF'FFFF;  // READs and atomics are "only" packets
  if (is_read_or_atomic(arrival)) return;             // their response acknowledges
  owe_acknowledgement(1, arrival.packet.bth.ack_request);
}

void RcResponder::owe_acknowledgement(size_t packets, bool asked) {
  unacknowledged_ += static_cast<uint32_t>(packets);
  if (asked) ack_owed_ = true;
  if (unacknowledged_ >= config_.ack_every_packets) ack_owed_ = ack_now_ = true;
}

size_t RcResponder::on_run(const ReceivedRun& run) {
  if (failed_ || run.bytes.size() < 2 * run.segment_size) return 0;
  const Inbound::Continuation place = inbound_.continuation();
  if (place.packets == 0) return 0;
  const RunTaken taken =
      take_run(run, qp_, place.opcode, Psn(expected_), place.memory, place.packets);
  if (taken.packets == 0) return 0;
  inbound_.placed(taken.packets);
  expected_ += taken.packets;
  silent_ = nak_pending_ = false;
  owe_acknowledgement(taken.packets, taken.ack_request);
  return taken.packets;
}

// --- Verdicts
// ---------------------------------------------------------------------------------------

void RcResponder::conclude(Arrival& arrival, Verdict verdict) {
  if (verdict == Verdict::kDone) return;
  // No answer to a packet that may not be what was sent.
  if (verdict != Verdict::kDamaged && !arrival.checked &&
      !intact(arrival.packet, arrival.context)) {
    verdict = Verdict::kDamaged;
  }
  switch (verdict) {
    case Verdict::kContinue:
    case Verdict::kDone:
      return;
    case Verdict::kDamaged:
      ++qp_.counters.dropped_packets;
      return;
    case Verdict::kDuplicate:
      return on_duplicate(arrival);
    case Verdict::kGap:
      return on_gap();
    case Verdict::kNotReady:
      return on_not_ready(arrival);
    case Verdict::kInvalidRequest:
      return refuse(arrival.number, NakCode::invalid_request, AsyncEventType::kQpRequestError);
    case Verdict::kAccessError:
      return refuse(arrival.number, NakCode::remote_access_error, AsyncEventType::kQpAccessError);
    case Verdict::kOperationalError:
      return refuse(arrival.number, NakCode::remote_operational_error, AsyncEventType::kQpFatal);
    case Verdict::kReceiveTooSmall:
      inbound_.fail_receive(CompletionStatus::kLocalLengthError);
      return refuse(arrival.number, NakCode::invalid_request, AsyncEventType::kDeviceFatal);
    case Verdict::kReceiveProtection:
      inbound_.fail_receive(CompletionStatus::kLocalProtectionError);
      return refuse(arrival.number, NakCode::remote_operational_error,
                    AsyncEventType::kDeviceFatal);
    case Verdict::kCompletionOverflow:
      return refuse(arrival.number, NakCode::remote_operational_error, AsyncEventType::kQpFatal);
  }
}

void RcResponder::on_duplicate(const Arrival& arrival) {
  ++qp_.counters.duplicates_received;
  if (!is_read_or_atomic(arrival)) {
    ack_owed_ = ack_now_ = true;  // again, and with the newest number (IBTA vol. 1 C9-105)
    return;
  }
  Resource* known = find_resource(arrival.number);
  if (known == nullptr || known->kind != arrival.kind()) {
    ++qp_.counters.dropped_packets;
    return;
  }
  if (known->kind == OpKind::read_request) return replay_read(*known, arrival);
  answer(*known, known->first, known->end);
}

// A READ is asked for again, in whole or from a later packet on. It must be the same memory.
void RcResponder::replay_read(Resource& read, const Arrival& arrival) {
  const wire::Reth reth = arrival.packet.reth();
  const uint64_t offset = (arrival.number - read.first) * mtu();
  if (reth.rkey != read.key || reth.address != read.address + offset ||
      reth.length > read.length - std::min<uint64_t>(offset, read.length)) {
    ++qp_.counters.dropped_packets;
    return;
  }
  answer(read, arrival.number, arrival.number + packets_for(reth.length, mtu()));
}

void RcResponder::on_gap() {
  if (silent_) {
    ++qp_.counters.dropped_packets;
    return;
  }
  silent_ = true;
  nak_pending_ = true;
  nak_ = wire::Syndrome::nak(NakCode::psn_sequence_error);
  nak_number_ = expected_;
  ++qp_.counters.sequence_naks_sent;
}

void RcResponder::on_not_ready(const Arrival& arrival) {
  silent_ = true;
  nak_pending_ = true;
  nak_ = wire::Syndrome::rnr_nak(qp_.attributes.min_rnr_timer);
  nak_number_ = arrival.number;
  ++qp_.counters.rnr_naks_sent;
}

void RcResponder::refuse(PacketNumber number, NakCode code, AsyncEventType event) {
  failed_ = true;
  failure_event_ = event;
  nak_pending_ = true;
  nak_ = wire::Syndrome::nak(code);
  nak_number_ = number;
}

void RcResponder::flush() {
  inbound_.fail_receive(CompletionStatus::kWorkRequestFlushed);
  inbound_.drop_message();
  flush_receives(qp_, inbound_.scratch());
}

// --- READs and atomics that were accepted
// -----------------------------------------------------------

RcResponder::Resource& RcResponder::add_resource() {
  if (resource_size_ == 0) {
    resource_size_ = qp_.attributes.max_dest_rd_atomic;
    resources_ = std::make_unique<Resource[]>(resource_size_);
  }
  while (resource_count_ >= resource_limit()) {
    if (resource(0).pending) --pending_;
    resource_head_ = static_cast<uint8_t>((resource_head_ + 1) % resource_size_);
    --resource_count_;
  }
  Resource& added = resource(resource_count_++);
  added = Resource{};
  return added;
}

RcResponder::Resource* RcResponder::find_resource(PacketNumber number) {
  for (size_t i = resource_count_; i-- > 0;) {
    Resource& r = resource(i);
    if (number >= r.first) return number < r.first + r.packets ? &r : nullptr;
  }
  return nullptr;
}

RcResponder::Resource* RcResponder::first_pending() {
  for (size_t i = 0; i < resource_count_ && pending_ > 0; ++i) {
    if (resource(i).pending) return &resource(i);
  }
  return nullptr;
}

void RcResponder::answer(Resource& resource, PacketNumber begin, PacketNumber end) {
  if (!resource.pending) ++pending_;
  resource.pending = true;
  resource.begin = resource.next = begin;
  resource.end = end;
}

}  // namespace farverbs::proto
