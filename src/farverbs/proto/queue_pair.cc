#include "farverbs/proto/queue_pair.h"

#include <string>

#include "farverbs/proto/rc_machine.h"
#include "farverbs/proto/uc_machine.h"
#include "farverbs/proto/ud_machine.h"
#include "farverbs/wire/cm_messages.h"

namespace farverbs::proto {

using model::QpState;
using model::QpType;

namespace {

// Both members of the default partition are full ones, but only one of two needs to be: the low 15
// bits must agree (IBTA vol. 1 section 10.9.3).
constexpr uint16_t kPkeyBase = 0x7FFF;

Error wrong_state(const char* what, QpState state, const char* allowed) {
  return invalid(std::string(what) + ": the QP is in " + model::to_string(state) +
                 ", it must be in " + allowed);
}

}  // namespace

template <typename F>
auto QueuePair::with_machine(F&& f) {
  return rc_ != nullptr ? f(*rc_) : uc_ != nullptr ? f(*uc_) : f(*ud_);
}
template <typename F>
auto QueuePair::with_machine(F&& f) const {
  return const_cast<QueuePair*>(this)->with_machine(
      [&](const auto& machine) { return f(machine); });
}

QueuePair::QueuePair(const model::QpInit& init, Qpn qpn, model::MemoryTable& memory,
                     model::AsyncEventSink* events, const TransportConfig& config)
    : qp_(init, qpn, memory, events), config_(config) {
  switch (init.type) {
    case QpType::kRc:
      rc_ = std::make_unique<RcMachine>(qp_, config_);
      break;
    case QpType::kUc:
      uc_ = std::make_unique<UcMachine>(qp_, config_);
      break;
    case QpType::kUd:
    case QpType::kGsi:
      ud_ = std::make_unique<UdMachine>(qp_, config_);
      break;
  }
  qp_.send_cq->users.fetch_add(1, std::memory_order_relaxed);
  qp_.receive_cq->users.fetch_add(1, std::memory_order_relaxed);
  if (qp_.srq != nullptr) qp_.srq->users.fetch_add(1, std::memory_order_relaxed);
}

QueuePair::~QueuePair() {
  qp_.send_cq->users.fetch_sub(1, std::memory_order_relaxed);
  qp_.receive_cq->users.fetch_sub(1, std::memory_order_relaxed);
  if (qp_.srq != nullptr) qp_.srq->users.fetch_sub(1, std::memory_order_relaxed);
}

Result<void> QueuePair::modify(Time now, const model::QpAttributes& attributes, uint32_t mask,
                               const model::QpLimits& limits) {
  const QpState from = qp_.state.load(std::memory_order_relaxed);
  FV_TRY(model::check_modify(qp_.type, from, attributes, mask, limits));
  model::apply_attributes(qp_.attributes, attributes, mask);
  // A datagram has no path MTU of its own: the port's it is.
  if (is_datagram(qp_.type)) qp_.attributes.path_mtu = limits.max_path_mtu;
  // QP1's is what it is, whatever is asked for (C9-53).
  if (qp_.type == QpType::kGsi) qp_.attributes.qkey = wire::kGsiQkey;
  if ((mask & model::kAttrState) == 0) return {};
  const QpState to = attributes.state;
  qp_.state.store(to, std::memory_order_relaxed);
  with_machine([&](auto& machine) { machine.on_state(now, from, to); });
  if (to == QpState::kReset) forget();
  return {};
}

Result<void> QueuePair::use_far() {
  const QpState state = qp_.state.load(std::memory_order_relaxed);
  if (rc_ == nullptr) return invalid("use_far: only an RC QP has the far transport");
  if (state != QpState::kInit) return wrong_state("use_far", state, "INIT");
  rc_->use_far();
  return {};
}

Result<void> QueuePair::use_standard() {
  const QpState state = qp_.state.load(std::memory_order_relaxed);
  if (rc_ == nullptr) return {};
  if (state != QpState::kInit) return wrong_state("use_standard", state, "INIT");
  rc_->use_standard();
  return {};
}

bool QueuePair::far() const { return rc_ != nullptr && rc_->far(); }
bool QueuePair::may_write_standard() const { return rc_ == nullptr || rc_->may_write_standard(); }
bool QueuePair::sends_far() const { return rc_ != nullptr && rc_->sends_far(); }

void QueuePair::forget() {
  qp_.send_queue.clear();
  qp_.receive_queue.clear();
  qp_.send_cq->purge(qp_.qpn);
  qp_.receive_cq->purge(qp_.qpn);
  const model::QpCapabilities capabilities = qp_.attributes.capabilities;
  qp_.attributes = model::QpAttributes{};
  qp_.attributes.capabilities = capabilities;
  qp_.counters = model::QpCounters{};
}

Result<void> QueuePair::post_send(const model::SendWorkRequest& request) {
  const QpState state = qp_.state.load(std::memory_order_relaxed);
  if (state == QpState::kReset || state == QpState::kInit || state == QpState::kRtr) {
    return wrong_state("post_send", state, "RTS");
  }
  if (is_datagram(qp_.type)) {
    uint64_t length = 0;
    for (const model::ScatterGatherElement& sge : request.sges) length += sge.length;
    const uint32_t most = model::bytes_of(qp_.attributes.path_mtu);
    if (length > most) {
      return invalid("length of the sges is " + std::to_string(length) +
                     " bytes, a datagram carries " + std::to_string(most) + " at most");
    }
  }
  return qp_.send_queue.post(qp_.type, request);
}

Result<void> QueuePair::post_receive(const model::ReceiveWorkRequest& request) {
  const QpState state = qp_.state.load(std::memory_order_relaxed);
  if (state == QpState::kReset) return wrong_state("post_receive", state, "INIT or later");
  if (qp_.srq != nullptr) {
    return invalid("post_receive: the QP takes its receives from an SRQ, post them there");
  }
  return qp_.receive_queue.post(request);
}

void QueuePair::on_packet(Time now, const wire::PacketView& packet, const PacketContext& context) {
  if ((packet.bth.pkey & kPkeyBase) != (wire::kDefaultPkey & kPkeyBase)) {
    ++qp_.counters.dropped_packets;
    return;
  }
  if (packet.info->service == wire::Service::cnp) {
    ++qp_.counters.congestion_notifications;
    return;
  }
  with_machine([&](auto& machine) { machine.on_packet(now, packet, context); });
}

size_t QueuePair::on_run(Time now, const ReceivedRun& run) {
  return rc_ != nullptr ? rc_->on_run(now, run) : 0;
}

void QueuePair::on_work(Time now) {
  with_machine([&](auto& machine) { machine.on_work(now); });
}

void QueuePair::on_timer(Time now) {
  with_machine([&](auto& machine) { machine.on_timer(now); });
}

TransmitResult QueuePair::poll_transmit(const TransmitContext& context) {
  return with_machine([&](auto& machine) { return machine.poll_transmit(context); });
}

std::optional<Endpoint> QueuePair::write_aside(wire::TxBurst& burst) {
  return rc_ != nullptr ? rc_->write_aside(burst) : std::nullopt;
}

bool QueuePair::wants_transmit() const {
  return with_machine([](const auto& machine) { return machine.wants_transmit(); });
}

bool QueuePair::wants_respond() const { return rc_ != nullptr && rc_->wants_respond(); }

bool QueuePair::ack_pending() const {
  return with_machine([](const auto& machine) { return machine.ack_pending(); });
}

Time QueuePair::next_timer() const {
  return with_machine([](const auto& machine) { return machine.next_timer(); });
}

bool QueuePair::take_feedback(Feedback& told) { return rc_ != nullptr && rc_->take_feedback(told); }

const model::AddressVector* QueuePair::next_flow() const {
  return ud_ != nullptr ? ud_->next_flow() : &qp_.attributes.address_vector;
}

void QueuePair::fail(Time now) {
  with_machine([&](auto& machine) { machine.fail(now); });
}

bool QueuePair::trim(Time now) { return rc_ != nullptr && rc_->trim(now); }

QueuePair::Footprint QueuePair::footprint() const {
  Footprint footprint;
  footprint.ring_bytes = qp_.send_queue.memory_bytes() + qp_.receive_queue.memory_bytes();
  footprint.total_bytes =
      sizeof *this + footprint.ring_bytes +
      with_machine([](const auto& machine) { return sizeof machine + machine.memory_bytes(); });
  return footprint;
}

}  // namespace farverbs::proto
