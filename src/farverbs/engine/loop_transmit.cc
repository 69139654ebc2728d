// Whose turn it is, what it may send, and how that leaves: bursts, windows and pacing of the paths.
#include <algorithm>
#include <array>
#include <limits>

#include "farverbs/engine/loop.h"

namespace farverbs::engine {
namespace {

// How long a port without room is left alone.
constexpr Duration kPortRetry = Duration::microseconds(50);
constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max() / 2;
// Turns of QPs in one step, whatever they send: arrivals are looked at again afterwards.
constexpr size_t kTurnsPerStep = 4096;
// A round trip without routers in between.
constexpr Duration kNear = Duration::milliseconds(1);
// What is asked of a pacer at a time.
constexpr uint64_t kPacedBytes = 64 * 1024;
// Packets of higher classes for each one of a class that never gets its turn: 5 % are its own.
constexpr uint32_t kPassedOverPerPacket = 19;

}  // namespace

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
  } else if (qp.pair.qp().type == model::QpType::kRc) {
    path.pacer.set_rate(now, path.requests.rate());
    const uint64_t pace = path.pacer.available(now, kPacedBytes);
    context.request_allowance = std::min(path.requests.room(), pace);
    context.read_allowance = path.reads.room();
    paced = pace < path.requests.room();
  }
  // Not even when one joins a burst of packets that say they do.
  if (qp.pair.may_write_standard()) burst_sideways_ = false;
  context.side_port = burst_sideways_;
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

}  // namespace farverbs::engine
