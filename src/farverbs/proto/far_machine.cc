#include "farverbs/proto/far_machine.h"

#include <algorithm>
#include <utility>

#include "farverbs/proto/placing.h"

namespace farverbs::proto {

using wire::OpKind;

namespace {

// Until a round trip has been measured.
constexpr Duration kFirstProbeTimeout = Duration::milliseconds(400);
// Shorter waits are scheduling, not loss.
constexpr Duration kLeastProbeTimeout = Duration::milliseconds(5);
// A line that was dark for some seconds is found to be back within the first, or two round trips;
// after that within the second.
constexpr Duration kBriskProbeTimeout = Duration::milliseconds(250);
constexpr Duration kBriskFor = Duration::seconds(10);
constexpr Duration kMostProbeTimeout = Duration::seconds(2);
// With a request open and nothing in flight it is the peer's turn; after so long it is asked.
constexpr Duration kLeastPatience = Duration::seconds(1);
constexpr Duration kLocalRoundTrip = Duration::milliseconds(1);
constexpr Duration kLeastGiveUp = Duration::seconds(1);
// Timeouts in a row after which full packets are suspected, and the controller is told.
constexpr uint32_t kSuspectTimeouts = 2;
constexpr uint32_t kToldTimeouts = 3;
// What is sent at a probe timeout: two packets, since one may be lost again.
constexpr uint32_t kProbePackets = 2;
constexpr uint8_t kCongestionExperienced = 3;
// Address translators may forget who was silent for 30 s; who was not used for a minute need not be
// remembered.
constexpr Duration kKeepalive = Duration::seconds(25);
constexpr Duration kUseCounts = Duration::seconds(60);

// Far packets have a check of their own, which covers no address and no identification.
PacketContext far_context(const PacketContext& context) {
  PacketContext far = context;
  if (context.unchecked != nullptr) far.unchecked = &far_icrc();
  far.identifications = nullptr;
  return far;
}

}  // namespace

void FarMachine::start_responder() {
  arrivals_.start(first_packet_number(qp_.attributes.rq_psn));
  responder_.start();
}

void FarMachine::start_sending() {
  // The peer knows both numbers, but not the secret.
  const uint64_t seed = config_.secret ^ uint64_t { qp_.qpn.value() } << 40 ^
                        uint64_t { qp_.attributes.sq_psn.value() } << 16;
  sent_.start(first_packet_number(qp_.attributes.sq_psn), seed);
  sending_ = true;
}

void FarMachine::start_requester() { requester_.start(); }

size_t FarMachine::memory_bytes() const {
  return sent_.memory_bytes() + requester_.memory_bytes() + responder_.memory_bytes() +
         arrivals_.memory_bytes() + response_resends_.memory_bytes() +
         (move_ != nullptr ? sizeof(FarMove) : 0) +
         (protector_ != nullptr ? protector_->memory_bytes() : 0) +
         (restorer_ != nullptr ? restorer_->memory_bytes() : 0);
}

bool FarMachine::trim(Time now) {
  if (now - std::max(last_arrival_, sent_.last_sent()) < kQuiet) return true;
  sent_.trim();
  requester_.trim();
  responder_.trim();
  if (response_resends_.empty()) response_resends_.release();
  if (move_ != nullptr && move_->idle(now)) move_.reset();
  restorer_.reset();
  if (protector_ != nullptr) protector_->release();
  return sent_.in_flight() > 0;
}

bool FarMachine::take_feedback(Feedback& told) {
  if (!feedback_.any()) return false;
  told = std::exchange(feedback_, {});
  told.far = true;
  return true;
}

void FarMachine::stop() {
  feedback_.lost_bytes += sent_.take_back();
  requester_.stop();
  response_resends_.clear();
  forced_ = timeouts_ = 0;
  probe_wanted_ = gave_up_ = false;
  move_.reset();
  protector_.reset();
  restorer_.reset();
  last_use_ = Time();
  arrivals_.hold();
}

void FarMachine::reset() {
  stop();
  sending_ = false;
  arrivals_.start(0);
  requester_.reset();
  responder_.reset();
  told_status_ = wire::FarStatus::ok;
  marks_told_ = 0;
  restored_ = restored_told_ = 0;
  peer_restores_ = false;
}

void FarMachine::flush() { responder_.flush(); }

// --- Arrivals ---

void FarMachine::on_packet(Time now, const wire::PacketView& packet, const PacketContext& context) {
  const PacketContext far = far_context(context);
  switch (packet.info->kind) {
    case OpKind::ack:
      if (!intact(packet, far)) break;
      arrived(now);
      return on_acknowledge(now, packet, far);
    case OpKind::write:
    case OpKind::send:
    case OpKind::read_request:
    case OpKind::compare_swap:
    case OpKind::fetch_add:
    case OpKind::read_response:
    case OpKind::atomic_ack:
    case OpKind::probe:
    case OpKind::repair:
      if (on_numbered(now, packet, far)) {
        arrived(now);
        if (restorer_ != nullptr && restorer_->has_work()) restore(now, far);
        return;
      }
      break;
    case OpKind::path_challenge:
    case OpKind::path_response:
      if (on_path_packet(now, packet, far)) return;
      break;
    default:
      break;
  }
  ++qp_.counters.dropped_packets;
}

bool FarMachine::on_numbered(Time now, const wire::PacketView& packet,
                             const PacketContext& context) {
  const wire::FarBase base = packet.far_base();
  const PacketNumber number =
      extend_far_number(base.number_high, packet.bth.psn, arrivals_.greatest());
  if (!arrivals_.plausible(number)) return false;
  if (arrivals_.seen(number)) {
    ++qp_.counters.duplicates_received;
    return true;
  }
  const uint32_t executed = responder_.executed();
  switch (packet.info->kind) {
    case OpKind::probe:
      if (!intact(packet, context)) return false;
      break;
    case OpKind::repair:
      if (!intact(packet, context) || !on_repair(number, packet)) return false;
      break;
    case OpKind::read_response:
    case OpKind::atomic_ack:
      if (!sending_ || !requester_.on_response(packet, context)) return false;
      break;
    default: {
      const FarResponder::Verdict verdict = responder_.on_request(now, packet, context);
      // No receive for it: that has to be told, though nothing is acknowledged.
      if (verdict == FarResponder::Verdict::kDropped &&
          responder_.told().status == wire::FarStatus::not_ready) {
        told_status_ = wire::FarStatus::not_ready;
        arrivals_.tell_now();
      }
      if (verdict != FarResponder::Verdict::kTaken) return false;
    }
  }
  const bool congested = (context.traffic_class & 3) == kCongestionExperienced;
  const PacketNumber before = arrivals_.greatest();
  arrivals_.add(now, number, base, packet.bth.ack_request, congested);
  if (packet.info->kind != OpKind::probe) last_use_ = now;
  if (base.repairable) keep(number, packet);
  if (number > before && !base.side_port) {
    note_source(now, context, number - before, packet.bytes().size());
  }
  const wire::FarStatus status = responder_.told().status;
  if (status != told_status_ ||
      (status != wire::FarStatus::ok && executed != responder_.executed())) {
    told_status_ = status;
    arrivals_.tell_now();
  }
  return true;
}

size_t FarMachine::on_run(Time now, const ReceivedRun& run) {
  if (run.context.unchecked == nullptr) return 0;
  const PacketContext far = far_context(run.context);
  const FarResponder::RunTaken taken =
      responder_.on_run({run.bytes, run.segment_size, far}, arrivals_.greatest() + 1);
  if (taken.packets == 0) return 0;
  arrived(now);
  last_use_ = now;
  const bool congested = (far.traffic_class & 3) == kCongestionExperienced;
  arrivals_.add_run(now, taken.packets, taken.base, taken.ack_request, congested);
  if (!taken.base.side_port) note_source(now, far, 1, taken.packets * run.segment_size);
  return taken.packets;
}

bool FarMachine::proves(const wire::PacketView& packet, const PacketContext& context) const {
  const PacketContext far = far_context(context);
  const PacketNumber number =
      extend_far_number(packet.far_base().number_high, packet.bth.psn, arrivals_.greatest());
  return arrivals_.plausible(number) && intact(packet, far);
}

void FarMachine::on_packet_in_error(const wire::PacketView& packet, const PacketContext& context) {
  const PacketContext far = far_context(context);
  if (packet.info->kind != OpKind::ack && arrivals_.any() && intact(packet, far)) {
    arrivals_.tell_now();
  }
}

void FarMachine::on_acknowledge(Time now, const wire::PacketView& packet,
                                const PacketContext& context) {
  const wire::FarBase base = packet.far_base();
  const wire::FarAck ack = packet.far_ack();
  FarAcknowledged told;
  told.greatest = extend_far_number(base.number_high, packet.bth.psn, sent_.next());
  told.first_range = ack.first_range;
  told.ranges = packet.payload().first(
      std::min<size_t>(packet.payload().size(), size_t{ack.range_count} * wire::FarRange::kSize));
  told.delay = Duration::microseconds(ack.delay_us);
  const uint64_t before = feedback_.acked_bytes + feedback_.spurious_bytes;
  uint32_t acked = 0;
  const bool believed = sending_ && sent_.on_acknowledge(
                                        now, told, feedback_,
                                        [&](const FarPacket& p) {
                                          ++acked;
                                          on_acked(p);
                                        },
                                        [&](const FarPacket& p) { on_lost(p); });
  if (!believed) {
    ++qp_.counters.dropped_packets;
    return;
  }
  if (feedback_.acked_bytes + feedback_.spurious_bytes != before) {
    heard_ = now;
    timeouts_ = 0;
    forced_ = 0;
    // Numbers that were skipped make it hard to acknowledge something new by guessing.
    if (!base.side_port) note_source(now, context, 1, packet.bytes().size());
  }
  const auto marks = static_cast<int32_t>(ack.congestion_marks - marks_told_);
  if (marks > 0) {
    // At most one for each packet.
    feedback_.congestion_marks += std::min(static_cast<uint32_t>(marks), acked);
    marks_told_ = ack.congestion_marks;
  }
  note_restored(ack, acked);
  requester_.on_told(now, base.message, ack, sent_.least_rtt());
}

void FarMachine::on_acked(const FarPacket& packet) {
  switch (packet.content) {
    case FarContent::kResponse:
      // What was taken for lost is on its way again, and counts when that arrives.
      if (!packet.lost) responder_.acknowledged(packet.request, packet.length);
      break;
    case FarContent::kAtomicResponse:
      // Its value is in a header: the packet has no payload.
      if (!packet.lost) responder_.acknowledged(packet.request, sizeof(uint64_t));
      break;
    case FarContent::kMtuProbe:
      feedback_.probe_arrived_bytes = packet.offset;
      break;
    default:
      break;
  }
}

void FarMachine::on_lost(const FarPacket& packet) {
  if (packet.content == FarContent::kMtuProbe) {
    feedback_.probe_lost = true;
    return;
  }
  feedback_.lost_bytes += packet.bytes;
  if (protector_ == nullptr && peer_restores_ && protects()) {
    protector_ = std::make_unique<FarProtector>();
  }
  if (protector_ != nullptr) protector_->count(0, 1);
  switch (packet.content) {
    case FarContent::kData:
    case FarContent::kRequest:
      requester_.on_lost(packet);
      break;
    case FarContent::kResponse:
    case FarContent::kAtomicResponse:
      if (packet.length > 0 && !response_resends_.empty()) {
        Resend& newest = response_resends_.back();
        if (newest.message == packet.request && newest.offset + newest.length == packet.offset) {
          newest.length += packet.length;
          break;
        }
      }
      response_resends_.push_back({packet.request, packet.offset, packet.length});
      break;
    case FarContent::kProbe:
      probe_wanted_ = true;
      break;
    default:
      break;
  }
}

// --- Timers ---

Duration FarMachine::probe_timeout() const {
  if (!sent_.has_rtt()) return kFirstProbeTimeout;
  const Duration spread = std::max(sent_.rtt_variation() * 4, Duration::milliseconds(1));
  return std::max(sent_.smoothed_rtt() + spread + sent_.smoothed_rtt() / 8, kLeastProbeTimeout);
}

Duration FarMachine::give_up_after() const {
  const uint8_t code = qp_.attributes.timeout;
  if (code == 0) return Duration::max();
  const Duration asked = Duration::nanoseconds(int64_t{4'096} << std::min<uint8_t>(code, 31)) *
                         (qp_.attributes.retry_count + 1);
  // Next door nothing goes dark for long: what the application asked for counts. On this host
  // itself however long its processors made the round trips.
  const bool local =
      IpAddress::from_gid(qp_.attributes.address_vector.destination_gid).is_loopback() ||
      (sent_.has_rtt() && sent_.least_rtt() < kLocalRoundTrip);
  return std::max(asked, local ? kLeastGiveUp : config_.far_give_up);
}

Time FarMachine::probe_deadline() const {
  if (!sending_) return Time::never();
  if (sent_.in_flight() > 0) {
    const Duration wait = probe_timeout() * (int64_t{1} << std::min(timeouts_, 10u));
    const bool brisk = sent_.last_sent() - heard_ < kBriskFor;
    const Duration most = std::max({brisk ? kBriskProbeTimeout : kMostProbeTimeout,
                                    sent_.smoothed_rtt() * 2, probe_timeout()});
    return std::max(sent_.last_sent(), timed_out_) + std::min(wait, most);
  }
  if (ready()) return Time::never();
  Time deadline = keepalive_deadline();
  const Time quiet_since = std::max(last_arrival_, sent_.last_sent());
  if (requester_.open()) {
    deadline = std::min(deadline, quiet_since + std::max(probe_timeout() * 4, kLeastPatience));
  }
  if (responder_.awaits_more()) {
    // Perhaps the peer does not know any more where this side is; more and more rarely asked.
    const Duration rare = std::min(quiet_since - std::min(last_use_, quiet_since), kKeepalive);
    const Duration round_trips = sent_.has_rtt() ? probe_timeout() * 4 : Duration();
    deadline = std::min(deadline, quiet_since + std::max({round_trips, kLeastPatience, rare}));
  }
  return deadline;
}

// A connection that is in use stays known to the translators on its way.
Time FarMachine::keepalive_deadline() const {
  if (last_use_ == Time()) return Time::never();
  const Time at = std::max(sent_.last_sent(), last_said_) + kKeepalive;
  return at <= last_use_ + kUseCounts ? at : Time::never();
}

Time FarMachine::next_timer() const {
  return std::min({arrivals_.deadline(), sent_.loss_deadline(), requester_.next_timer(),
                   probe_deadline(), move_ != nullptr ? move_->next_timer() : Time::never()});
}

void FarMachine::on_timer(Time now) {
  arrivals_.on_timer(now);
  if (!sending_) return;
  if (now >= sent_.loss_deadline()) {
    sent_.detect_lost(now, [&](const FarPacket& p) { on_lost(p); });
  }
  requester_.on_timer(now);
  if (move_ != nullptr) {
    move_->on_timer(now);
    settle_move(now);
  }
  if (now >= probe_deadline()) on_probe_timeout(now);
}

// A packet that proved whole.
void FarMachine::arrived(Time now) {
  last_arrival_ = now;
  gave_up_ = false;
}

void FarMachine::on_probe_timeout(Time now) {
  if (sent_.in_flight() == 0) {
    probe_wanted_ = true;
    forced_ = 1;
    return;
  }
  const Duration patience = give_up_after();
  if (patience != Duration::max() && now - heard_ >= patience) {
    // A request that nobody answers fails; a responder falls silent until it hears from its peer.
    if (requester_.open()) {
      feedback_.lost_bytes += sent_.take_back();
      return requester_.fail_oldest(model::CompletionStatus::kRetryExceeded);
    }
    sent_.give_up_all([&](const FarPacket& p) { on_lost(p); });
    gave_up_ = true;
    probe_wanted_ = false;
    timeouts_ = forced_ = 0;
    return;
  }
  ++timeouts_;
  timed_out_ = now;
  ++qp_.counters.timeouts;
  sent_.give_up_oldest([&](const FarPacket& p) { on_lost(p); });
  forced_ = kProbePackets;
  if (timeouts_ == kSuspectTimeouts) feedback_.black_hole = true;
  if (timeouts_ == kToldTimeouts) feedback_.timed_out = true;
}

}  // namespace farverbs::proto
