#include "farverbs/engine/loop.h"

#include <algorithm>
#include <limits>
#include <string>

namespace farverbs::engine {
namespace {

// How long a port without room is left alone.
constexpr Duration kPortRetry = Duration::microseconds(50);
constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max() / 2;
// Turns of QPs in one step, whatever they send: arrivals are looked at again afterwards.
constexpr size_t kTurnsPerStep = 4096;
// Less than a sender in full flow puts in a burst.
constexpr size_t kSmallBurst = 16 * 1024;
// A round trip without routers in between.
constexpr Duration kNear = Duration::milliseconds(1);
// What is asked of a pacer at a time.
constexpr uint64_t kPacedBytes = 64 * 1024;
// Packets of higher classes for each one of a class that never gets its turn: 5 % are its own.
constexpr uint32_t kPassedOverPerPacket = 19;

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

// --- Transmitting ---

bool Loop::transmit(Time now, StepKind kind) {
  const uint64_t before = port_.counters().sent_bursts;
  bursts_left_ = config_.send_bursts_per_step;
  if (port_blocked_ && !flush_burst(now)) return false;
  release_paced(now);
  for (size_t turns = 0; turns < kTurnsPerStep && bursts_left_ > 0 && !port_blocked_; ++turns) {
    LoopQp* qp = next_turn();
    if (qp == nullptr) break;
    const model::TrafficClass traffic = qp->traffic;
    count_turn(traffic, transmit_qp(now, *qp, kind == StepKind::kPolling));
  }
  transmit_acks(now, kind);
  if (!port_blocked_) flush_burst(now);
  return port_.counters().sent_bursts != before;
}

LoopQp* Loop::next_turn() {
  for (size_t i = turns_.size(); --i > 0;) {
    if (turns_[i].passed_over < kPassedOverPerPacket * config_.quantum_packets) continue;
    if (LoopQp* qp = turns_[i].pop()) return qp;
  }
  for (Turns& turns : turns_) {
    if (LoopQp* qp = turns.pop()) return qp;
  }
  return nullptr;
}

void Loop::count_turn(model::TrafficClass traffic, uint32_t packets) {
  const auto own = static_cast<size_t>(traffic);
  uint32_t& passed_over = turns_[own].passed_over;
  passed_over -= std::min(passed_over, packets * kPassedOverPerPacket);
  const uint32_t most = 2 * kPassedOverPerPacket * config_.quantum_packets;
  for (size_t i = own + 1; i < turns_.size(); ++i) {
    Turns& turns = turns_[i];
    turns.passed_over = turns.empty() ? 0 : std::min(turns.passed_over + packets, most);
  }
}

void Loop::transmit_acks(Time now, StepKind kind) {
  for (size_t turns = 0; turns < kTurnsPerStep && !port_blocked_; ++turns) {
    LoopQp* qp = owing_.front();
    if (qp == nullptr) break;
    if (kind == StepKind::kPolling && now - qp->ack_owed_since < config_.ack_delay) break;
    owing_.remove(*qp);
    transmit_qp(now, *qp, false);
  }
}

Path* Loop::flow_of(LoopQp& qp) {
  if (!model::is_datagram(qp.pair.qp().type)) return qp.path;
  const model::AddressVector* av = qp.pair.next_flow();
  return av != nullptr ? &path_for(*av, false) : nullptr;
}

proto::TransmitContext Loop::offer(Time now, const LoopQp& qp, Path& path, bool far, bool& paced) {
  proto::TransmitContext context;
  context.now = now;
  context.burst = &burst_;
  context.icrc = &path.icrc;
  context.delivered_bytes = path.requests.delivered();
  context.read_delivered_bytes = path.reads.delivered();
  context.max_packets = qp.credit;
  context.request_allowance = context.read_allowance = kUnlimited;
  paced = false;
  if (far) {
    cc::Pacer& pacer = path.far_pacer();
    pacer.set_rate(now, path.far_rate());
    const uint64_t pace = pacer.available(now, kPacedBytes);
    context.request_allowance = std::min(path.far_room(), pace);
    context.paced = paced = pace < path.far_room();
    context.mark = path.far.mark(now);
    context.datagram_bytes = path.mtu.datagram_bytes();
    context.probe_bytes = path.mtu.probe(now);
    context.join_acks = true;
    if (burst_.empty()) burst_sideways_ = goes_sideways(path);
  }
  // Not even when one joins a burst of packets that say they do.
  if (qp.pair.may_write_standard()) burst_sideways_ = false;
  context.side_port = burst_sideways_;
  if (far) return context;
  if (qp.pair.qp().type == model::QpType::kRc) {
    path.pacer.set_rate(now, path.requests.rate());
    const uint64_t pace = path.pacer.available(now, kPacedBytes);
    context.request_allowance = std::min(path.requests.room(), pace);
    context.read_allowance = path.reads.room();
    paced = pace < path.requests.room();
  }
  return context;
}

void Loop::charge(Time now, const LoopQp& qp, Path& path, bool far,
                  const proto::TransmitContext& context, const proto::TransmitResult& result) {
  if (far) {
    if (result.probed) path.mtu.on_probe_sent(now, context.probe_bytes);
    path.far.add(now, result.request_bytes);
    path.far_pacer().on_sent(now, result.request_bytes);
    if (path.urgent()) {
      path.line->urgent_inflight += result.request_bytes;
      path.line->pacer.charge(now, result.request_bytes);
    }
    return;
  }
  // What nobody acknowledges (UC, UD) would never leave the flight.
  if (qp.pair.qp().type != model::QpType::kRc) return;
  path.requests.add(now, result.request_bytes);
  path.reads.add(now, result.read_bytes);
  path.pacer.on_sent(now, result.request_bytes);
}

uint32_t Loop::transmit_qp(Time now, LoopQp& qp, bool defer_acks) {
  TurnList::remove_if_linked(qp);
  TurnList* const steady = &turns_of(qp).steady;
  uint32_t packets = 0;
  // A turn that was cut short goes on.
  if (qp.credit == 0) qp.credit = config_.quantum_packets * qp.weight;
  TurnList* next_list = nullptr;
  while (Path* path = flow_of(qp)) {
    const uint8_t slot = qp.path != nullptr ? qp.pair.qp().attributes.destination_qpn.slot() : 0;
    if (!begin_flow(now, *path, slot)) {
      next_list = steady;
      break;
    }
    const bool far = qp.pair.sends_far();
    bool paced = false;
    proto::TransmitContext context = offer(now, qp, *path, far, paced);
    context.defer_acks = defer_acks;
    const proto::TransmitResult result = qp.pair.poll_transmit(context);
    charge(now, qp, *path, far, context, result);
    packets += result.packets;
    qp.credit -= std::min(qp.credit, result.packets);
    if (result.status == proto::TransmitStatus::kBurstFull) {
      const bool sent = flush_burst(now);
      if (sent && bursts_left_ > 0 && qp.credit > 0) continue;
      next_list = steady;
    } else if (result.status == proto::TransmitStatus::kQuantum) {
      next_list = steady;
    } else if (result.status == proto::TransmitStatus::kWindow) {
      // The request allowance is used up, or else it was a READ that found no room.
      const bool for_requests = result.request_bytes >= context.request_allowance;
      next_list = far            ? &path->waiting_far.qps
                  : for_requests ? &path->waiting_requests.qps
                                 : &path->waiting_reads.qps;
      if (paced && (far ? path->far_room() : path->requests.room()) > 0) {
        path->paced_until = (far ? path->far_pacer() : path->pacer).next(now, kPacedBytes);
        if (!path->paced_link.linked()) paced_.push_back(*path);
      }
    } else {
      qp.credit = 0;
      note_demand(qp, false);
      // What others still have to send on the same line limits them, not this QP.
      if (!far) {
        path->requests.mark_application_limited();
      } else if (path->line->demanding == 0) {
        path->far.mark_application_limited();
      }
    }
    break;
  }
  const Path* const before = qp.path;
  settle(now, qp);
  // It may have changed paths: what the old one waits for is nothing to it.
  if (qp.path != before && next_list != nullptr) next_list = steady;
  end_turn(qp, next_list);
  return packets;
}

void Loop::forget_woken(const LoopQp& qp) {
  if (qp.path == nullptr) return;
  for (Path::Waiting* waiting : qp.path->waiting()) {
    if (waiting->woken == &qp) waiting->woken = nullptr;
  }
}

void Loop::end_turn(LoopQp& qp, TurnList* next_list) {
  Path* path = qp.path;
  forget_woken(qp);
  TurnList* const steady = &turns_of(qp).steady;
  const bool blocked = next_list != nullptr && next_list != steady;
  // Whoever used its turn up stands behind those that wait for room on the same path.
  if (path != nullptr && next_list == steady && qp.credit == 0) {
    TurnList& waiting = (qp.pair.sends_far() ? path->waiting_far : path->waiting_requests).qps;
    if (!waiting.empty()) next_list = &waiting;
  }
  if (next_list != nullptr) {
    // settle may have put it among the fresh ones; its place is where this turn ended: first if it
    // has credit left, last otherwise.
    TurnList::remove_if_linked(qp);
    qp.waits = next_list != steady;
    if (qp.credit > 0) {
      next_list->push_front(qp);
    } else {
      next_list->push_back(qp);
    }
  }
  // Room that this QP had no use for goes to those that wait: no feedback may come to wake them.
  if (path != nullptr && !blocked) wake_waiting(*path);
}

bool Loop::begin_flow(Time now, Path& path, uint8_t slot) {
  if ((burst_path_ != &path || burst_slot_ != slot) && !flush_burst(now)) return false;
  burst_path_ = &path;
  burst_slot_ = slot;
  return true;
}

void Loop::begin_burst() {
  const std::span<std::byte> staging = port_.staging();
  burst_.reset(staging.empty() ? std::span(burst_storage_) : staging,
               port_.limits().max_datagrams_per_burst);
  burst_sideways_ = false;
}

// To near peers, where the system call is most of the cost. What a translator on the way, if there
// is one, shall remember, is the port that is answered to: that sends now and then, and whenever
// nobody has answered lately, because where those packets come from may be news.
bool Loop::goes_sideways(Path& path) {
  constexpr uint32_t kBurstsForEachFromOwnPort = 64;
  FarLine& line = *path.line;
  const Duration rtt = line.min_rtt();
  if (rtt <= Duration() || rtt >= kNear) return false;
  const uint32_t n = ++line.bursts_since_timeout;
  return n > kBurstsForEachFromOwnPort && n % kBurstsForEachFromOwnPort != 0;
}

bool Loop::flush_burst(Time now) {
  if (burst_.empty()) return true;
  io::TxFlow flow = burst_path_->flow;
  flow.any_port = burst_sideways_;
  if (port_.send(flow, burst_) == io::SendStatus::kWouldBlock) {
    port_blocked_ = true;
    port_retry_ = now + kPortRetry;
    return false;
  }
  // A burst that was too big or failed is a loss like any other; the port has counted it.
  port_blocked_ = false;
  port_retry_ = Time::never();
  begin_burst();
  bursts_left_ -= std::min(bursts_left_, 1u);
  return true;
}

// At once, and alone: it goes elsewhere than what has gathered. A port without room loses it, as a
// network does; it is sent again.
void Loop::send_aside(LoopQp& qp) {
  std::array<std::byte, 64> storage;
  wire::TxBurst burst;
  for (;;) {
    burst.reset(storage, 1);
    const std::optional<Endpoint> to = qp.pair.write_aside(burst);
    if (!to.has_value()) return;
    io::TxFlow flow = qp.path->flow;
    flow.destination = *to;
    (void)port_.send(flow, burst);
  }
}

void Loop::wake_waiting(Path& path) {
  wake(path.waiting_requests, path.requests.room());
  wake(path.waiting_reads, path.reads.room());
  for (Path* sibling : path.line->paths) wake(sibling->waiting_far, sibling->far_room());
}

void Loop::wake(Path::Waiting& waiting, uint64_t room) {
  if (waiting.woken != nullptr || !waiting.flight.worth_waking(room)) return;
  LoopQp* qp = waiting.qps.pop_front();
  if (qp == nullptr) return;
  waiting.woken = qp;
  qp->waits = false;
  turns_of(*qp).steady.push_back(*qp);
}

void Loop::release_paced(Time now) {
  for (size_t n = paths_.size(); n > 0; --n) {
    Path* path = paced_.front();
    if (path == nullptr) break;
    paced_.remove(*path);
    if (path->paced_until <= now) {
      wake_waiting(*path);
    } else {
      paced_.push_back(*path);
    }
  }
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
