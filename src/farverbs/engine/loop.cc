#include "farverbs/engine/loop.h"

#include <algorithm>
#include <string>

namespace farverbs::engine {
namespace {

// Less than a sender in full flow puts in a burst.
constexpr size_t kSmallBurst = 16 * 1024;

}  // namespace

Loop::Loop(io::Port& port, model::MemoryTable& memory, Entropy& entropy, const LoopConfig& config,
           uint8_t slot)
    : port_(port), memory_(memory), entropy_(entropy), config_(config), qps_(slot, entropy) {
  config_.transport.secret = entropy.next();
  burst_storage_.resize(port.limits().max_burst_bytes);
  begin_burst();
}

Loop::~Loop() {
  std::vector<LoopQp*> left;
  for_each_qp([&](LoopQp& qp) { left.push_back(&qp); });
  for (LoopQp* qp : left) destroy_qp(Time(), qp);
}

Result<LoopQp*> Loop::create_qp(const model::QpInit& init, model::AsyncEventSink* events) {
  if (qps_.full()) return Error{ENOMEM, "all QP numbers of this packet loop are taken"};
  const Qpn qpn = qps_.draw();
  auto* qp = new LoopQp(init, qpn, memory_, events, config_.transport);
  qps_.insert(qpn, qp);
  return qp;
}

void Loop::pay_acks(Time now, LoopQp& qp) {
  if (!qp.pair.ack_pending() || qp.path == nullptr) return;
  bursts_left_ = config_.send_bursts_per_step;
  transmit_qp(now, qp, false);
  flush_burst(now);
}

void Loop::destroy_qp(Time now, LoopQp* qp) {
  take_rung(now);
  pay_acks(now, *qp);
  // Forgets everything: its completions are purged, its bytes leave the path's flight.
  model::QpAttributes reset;
  reset.state = model::QpState::kReset;
  (void)qp->pair.modify(now, reset, model::kAttrState, config_.limits);
  settle(now, *qp);
  leave_path(*qp);
  std::erase_if(members_, [&](const auto& member) { return member.second == qp; });
  TurnList::remove_if_linked(*qp);
  decltype(owing_)::remove_if_linked(*qp);
  timers_.remove(qp->timer);
  qps_.erase(qp->pair.qp().qpn);
  delete qp;
}

Result<void> Loop::check_source(const model::AddressVector& av) const {
  const uint8_t source = av.source_gid_index;
  const std::string field = "address_vector.source_gid_index " + std::to_string(source);
  if (!port_.has_source(source)) return invalid(field + " is none of the device's addresses");
  if (!same_family(port_.local_at(source).address, IpAddress::from_gid(av.destination_gid))) {
    return invalid(field + " is of another IP version than destination_gid");
  }
  return {};
}

Result<void> Loop::modify(Time now, LoopQp& qp, const model::QpAttributes& attributes,
                          uint32_t mask) {
  if ((mask & model::kAttrAddressVector) != 0) FV_TRY(check_source(attributes.address_vector));
  // A receiver that has what it waited for and hangs up must not leave the sender in doubt.
  const bool ends = (mask & model::kAttrState) != 0 && (attributes.state == model::QpState::kErr ||
                                                        attributes.state == model::QpState::kReset);
  if (ends) pay_acks(now, qp);
  FV_TRY(qp.pair.modify(now, attributes, mask, config_.limits));
  const model::AddressVector* av =
      model::is_datagram(qp.pair.qp().type) ? nullptr : qp.pair.next_flow();
  const model::QpState state = qp.pair.qp().state.load();
  if (state == model::QpState::kReset || av == nullptr) {
    settle(now, qp);
    leave_path(qp);
  } else if ((mask & model::kAttrAddressVector) != 0) {
    leave_path(qp);
    TurnList::remove_if_linked(qp);
    qp.path = &path_for(*av, qp.pair.far());
    qp.traffic = qp.path->traffic;
    ++qp.path->users;
  }
  settle(now, qp);
  return {};
}

void Loop::fail(Time now, LoopQp& qp) {
  qp.pair.fail(now);
  settle(now, qp);
}

// --- Receiving ---

bool Loop::step(Time now, StepKind kind) {
  ++counters_.steps;
  const size_t received = receive(now);
  if (management_ != nullptr && now >= management_->next_retry()) {
    management_->retry(now);
    answer_management(now);
  }
  run_timers(now);
  take_rung(now);
  // In the midst of a stream one acknowledgement can say what several would.
  if (!drained_) kind = StepKind::kPolling;
  const bool moved = transmit(now, kind) || received > 0;
  if (moved) {
    quiet_at_ = now + proto::kQuiet;
    tidy_due_ = std::min(tidy_due_, quiet_at_);
  }
  if (now >= tidy_due_) tidy(now);
  return moved;
}

bool Loop::step_transmit(Time now, StepKind kind) {
  ++counters_.steps;
  take_rung(now);
  return transmit(now, kind);
}

void Loop::tidy(Time now) {
  bool again = false;
  for_each_qp([&](LoopQp& qp) { again |= qp.pair.trim(now); });
  quiet_at_ = tidy_due_ = again ? now + proto::kQuiet : Time::never();
}

size_t Loop::receive(Time now) {
  size_t total = 0;
  while (total < config_.receive_bursts_per_step) {
    const size_t n = port_.receive(received_);
    if (n > 0) streaming_ = received_[0].bytes.size() >= kSmallBurst;
    for (size_t i = 0; i < n; ++i) on_burst(now, received_[i]);
    total += n;
    // A lone small burst is mostly the last; who sleeps on the port is woken if it was not.
    drained_ = n == 0 || (n == 1 && received_[0].bytes.size() < kSmallBurst);
    if (drained_) break;
  }
  return total;
}

void Loop::on_burst(Time now, const io::RxBurst& burst) {
  // The QP checks the ICRC, mostly in one pass with placing the payload.
  ReceiveFlow& flow = receive_flow(burst);
  proto::PacketContext context{
      burst.source, burst.destination, burst.traffic_class, &flow.icrc, 0, &flow.identifications};
  LoopQp* qp = nullptr;
  for (size_t at = 0; at < burst.bytes.size(); at += burst.segment_size) {
    auto datagram = burst.bytes.subspan(at, std::min(burst.segment_size, burst.bytes.size() - at));
    if (const size_t joined = wire::joined_acknowledgement(datagram); joined != 0) {
      qp = deliver(now, wire::parse(datagram.first(joined)), context, qp);
      datagram = datagram.subspan(joined);
    }
    const wire::ParseResult packet = wire::parse(datagram);
    qp = deliver(now, packet, context, qp);
    // Segments of one send are numbered from 0, and mostly arrive as one burst.
    context.expected_ip_id = flow.identifications.next();
    if (qp == nullptr || packet->info->ends()) continue;
    const size_t next = std::min(at + burst.segment_size, burst.bytes.size());
    const size_t taken =
        qp->pair.on_run(now, {burst.bytes.subspan(next), burst.segment_size, context});
    if (taken == 0) continue;
    at += taken * burst.segment_size;
    context.expected_ip_id = flow.identifications.next();
  }
  if (qp != nullptr) settle(now, *qp);
}

LoopQp* Loop::deliver(Time now, const wire::ParseResult& packet,
                      const proto::PacketContext& context, LoopQp* before) {
  LoopQp* qp = before;
  if (!packet.ok()) {
    ++counters_.malformed_packets;
    qp = nullptr;
  } else if (qp == nullptr || qp->pair.qp().qpn != packet->bth.dest_qp) {
    qp = qps_.find(packet->bth.dest_qp);
  }
  if (before != nullptr && qp != before) settle(now, *before);
  if (qp != nullptr) {
    qp->pair.on_packet(now, *packet, context);
  } else if (packet.ok()) {
    if (packet->bth.dest_qp == kManagementQpn && management_ != nullptr) {
      on_management(now, *packet, context);
    } else if (packet->bth.dest_qp == kMulticastQpn && !members_.empty()) {
      on_multicast(now, *packet, context);
    } else {
      ++counters_.unknown_qpn;
    }
  }
  return qp;
}

Loop::ReceiveFlow& Loop::receive_flow(const io::RxBurst& burst) {
  const size_t index =
      (burst.source.address.hash() ^ burst.source.port ^ (burst.destination.address.hash() << 1)) %
      receive_flows_.size();
  ReceiveFlow& flow = receive_flows_[index];
  if (!flow.known || flow.source != burst.source || flow.destination != burst.destination) {
    flow.source = burst.source;
    flow.destination = burst.destination;
    flow.icrc = wire::IcrcFlow::roce_v2(burst.source, burst.destination);
    flow.identifications = {};
    flow.known = true;
  }
  return flow;
}

void Loop::run_timers(Time now) {
  while (TimerEntry* entry = timers_.pop_expired(now)) {
    auto& qp = *static_cast<LoopQp*>(entry->owner);
    qp.pair.on_timer(now);
    settle(now, qp);
  }
}

// --- New work ---

void Loop::ring(LoopQp& qp) {
  if (qp.rung.exchange(true, std::memory_order_seq_cst)) return;
  LoopQp* head = rung_.load(std::memory_order_relaxed);
  do {
    qp.next_rung = head;
  } while (!rung_.compare_exchange_weak(head, &qp, std::memory_order_seq_cst));
}

void Loop::take_rung(Time now) {
  LoopQp* qp = rung_.exchange(nullptr, std::memory_order_seq_cst);
  while (qp != nullptr) {
    LoopQp* next = qp->next_rung;
    // From here on a new post rings again, and what was posted before is seen by on_work.
    qp->rung.store(false, std::memory_order_seq_cst);
    qp->pair.on_work(now);
    settle(now, *qp);
    qp = next;
  }
}

void Loop::settle(Time now, LoopQp& qp) {
  for (proto::Feedback told; qp.pair.take_feedback(told);) {
    if (qp.path == nullptr) continue;
    credit(now, *qp.path, told);
    if (told.moved) follow(qp);
    wake_waiting(*qp.path);
    if (told.aside) send_aside(qp);
  }
  if (qp.pair.wants_transmit()) activate(qp);
  if (!qp.pair.ack_pending()) {
    decltype(owing_)::remove_if_linked(qp);
  } else if (!qp.ack_link.linked()) {
    qp.ack_owed_since = now;
    owing_.push_back(qp);
  }
  timers_.set(qp.timer, qp.pair.next_timer());
}

void Loop::credit(Time now, Path& path, const proto::Feedback& feedback) {
  if (feedback.far) {
    if (feedback.probe_arrived_bytes != 0) path.mtu.on_arrived(now, feedback.probe_arrived_bytes);
    if (feedback.probe_lost) path.mtu.on_lost(now);
    if (feedback.black_hole) path.mtu.on_black_hole(now);
    path.far.take_back_far(now, feedback);
    if (path.urgent()) {
      uint64_t& urgent = path.line->urgent_inflight;
      urgent -=
          std::min(urgent, feedback.acked_bytes + feedback.lost_bytes + feedback.withdrawn_bytes);
    }
    if (feedback.timed_out) {
      path.far.time_out(now);
      path.line->bursts_since_timeout = 0;
    }
    return;
  }
  if (feedback.acked_bytes != 0 || feedback.lost_bytes != 0 || feedback.has_rtt) {
    path.requests.take_back(now, {feedback.acked_bytes, feedback.lost_bytes, feedback.has_rtt,
                                  feedback.rtt, feedback.probe_sent, feedback.probe_delivered});
  }
  if (feedback.read_bytes_arrived != 0 || feedback.read_bytes_lost != 0 || feedback.has_read_rtt) {
    path.reads.take_back(
        now, {feedback.read_bytes_arrived, feedback.read_bytes_lost, feedback.has_read_rtt,
              feedback.read_rtt, feedback.read_probe_sent, feedback.read_probe_delivered});
  }
  if (feedback.timed_out) {
    path.requests.time_out(now);
    path.reads.time_out(now);
  }
}

void Loop::activate(LoopQp& qp) {
  if (!qp.turn_link.linked()) {
    turns_of(qp).fresh.push_back(qp);
    note_demand(qp, true);
  } else if (qp.waits && qp.pair.wants_respond()) {
    // A response needs no room; its requests keep waiting in turn with those of others.
    TurnList::remove(qp);
    qp.waits = false;
    turns_of(qp).steady.push_back(qp);
  }
}

void Loop::note_demand(LoopQp& qp, bool demands) {
  if (qp.path == nullptr || qp.demands == demands || (demands && !qp.pair.far())) return;
  qp.demands = demands;
  qp.path->line->demanding += demands ? 1 : -1;
}

Time Loop::next_deadline() const {
  auto& self = const_cast<Loop&>(*this);
  if (port_blocked_) return std::min(port_retry_, timers_.next());
  if (has_work()) return Time();
  for (const Turns& turns : turns_) {
    if (!turns.empty()) return Time();
  }
  Time earliest = std::min(timers_.next(), quiet_at_);
  if (management_ != nullptr) earliest = std::min(earliest, management_->next_retry());
  if (LoopQp* owing = self.owing_.front()) {
    earliest = std::min(earliest, owing->ack_owed_since + config_.ack_delay);
  }
  if (Path* paced = self.paced_.front()) earliest = std::min(earliest, paced->paced_until);
  return earliest;
}

}  // namespace farverbs::engine
