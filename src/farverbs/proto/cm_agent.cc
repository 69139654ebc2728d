#include "farverbs/proto/cm_agent.h"

#include <algorithm>
#include <string>
#include <vector>

namespace farverbs::proto {

using wire::CmAttribute;
using wire::CmReject;
using wire::CmRejected;
using wire::Mad;

namespace {

constexpr unsigned kAgentShift = 20;  // io/slot_names.h: 12 bits of agent above 20 random ones
// What an address header's source and destination look like for IPv4.
Gid address_bytes(const IpAddress& address) {
  Gid bytes{};
  if (address.is_v6()) return address.bytes();
  store_be(bytes.data() + 12, address.v4_value());
  return bytes;
}

template <size_t N>
void copy_private(wire::CmBytes<N>& to, std::span<const std::byte> from, size_t at = 0) {
  std::copy(from.begin(), from.end(), to.begin() + static_cast<ptrdiff_t>(at));
}

Error too_long(size_t size, size_t most) {
  return invalid("private data has " + std::to_string(size) + " bytes, " + std::to_string(most) +
                 " at most fit");
}
Error out_of_place(const char* what) {
  return invalid(std::string("the connection is not in a state for ") + what);
}

wire::CmIpHeader ip_header(const CmConnect& request) {
  wire::CmIpHeader header;
  header.ip_version = request.path.local.is_v4() ? 4 : 6;
  header.port = request.source_port;
  header.source = address_bytes(request.path.local);
  header.destination = address_bytes(request.path.remote);
  return header;
}

}  // namespace

Duration CmAgent::response_time() const {
  return Duration::nanoseconds(int64_t{4096} << config_.response_timeout);
}

// --- Connections ---

CmAgent::Connection* CmAgent::find(uint32_t id) {
  const auto found = connections_.find(id);
  return found != connections_.end() ? &found->second : nullptr;
}

CmAgent::Connection* CmAgent::find_from(uint32_t id, const CmPath& path) {
  // An identifier can be guessed; a source address besides is harder to forge.
  Connection* c = find(id);
  return c != nullptr && c->path.remote == path.remote ? c : nullptr;
}

uint32_t CmAgent::draw_id() {
  for (;;) {
    const auto low = static_cast<uint32_t>(entropy_.next() & ((1u << kAgentShift) - 1));
    const uint32_t id = (uint32_t{config_.agent} << kAgentShift) | low;
    if (id != 0 && !connections_.contains(id)) return id;
  }
}

CmAgent::Connection& CmAgent::create(const CmPath& path) {
  const uint32_t id = draw_id();
  Connection& c = connections_[id];
  c.id = id;
  c.path = path;
  return c;
}

void CmAgent::set_timer(Connection& c, Time at) {
  if (!c.timer.is_never()) timers_.erase({c.timer, c.id});
  c.timer = at;
  if (!at.is_never()) timers_.insert({at, c.id});
}

void CmAgent::set_state(Connection& c, State state) {
  const bool was_waiting = c.state == State::kReqReceived || c.state == State::kSidrReceived;
  const bool waits = state == State::kReqReceived || state == State::kSidrReceived;
  c.state = state;
  if (const auto listener = listeners_.find(c.listener);
      listener != listeners_.end() && !c.active && was_waiting != waits) {
    listener->second.pending += waits ? 1 : size_t{0} - 1;
  }
  const bool half_open = waits || state == State::kRepSent;
  if (half_open != c.half_open) half_open_ += half_open ? 1 : size_t{0} - 1;
  c.half_open = half_open;
}

void CmAgent::forget_peer(const Connection& c) {
  if (c.active) return;
  const auto found = by_remote_id_.find({c.path.remote, c.remote_id});
  if (found != by_remote_id_.end() && found->second == c.id) by_remote_id_.erase(found);
  forget_qpn(c);
}

void CmAgent::forget_qpn(const Connection& c) {
  const auto found = by_remote_qpn_.find({c.path.remote, c.remote_qpn});
  if (found != by_remote_qpn_.end() && found->second == c.id) by_remote_qpn_.erase(found);
}

void CmAgent::erase(Connection& c) {
  forget_peer(c);
  set_timer(c, Time::never());
  set_state(c, State::kClosed);
  connections_.erase(c.id);
}

void CmAgent::close(Connection& c) {
  set_state(c, State::kClosed);
  set_timer(c, Time::never());
  forget_peer(c);
  if (c.orphan) erase(c);
}

CmEvent& CmAgent::tell(CmEventType type, const Connection& c) {
  CmEvent& event = events_.emplace_back();
  event.type = type;
  event.id = c.id;
  event.datagram = c.datagram;
  event.service_id = c.service_id;
  event.path = c.path;
  return event;
}

void CmAgent::end(Time now, Connection& c, bool timed_out) {
  if (!c.orphan) tell(CmEventType::kDisconnected, c).timed_out = timed_out;
  // Its REQ is still known, so that a late copy of it is not taken for a new one.
  set_state(c, State::kTimeWait);
  forget_qpn(c);
  set_timer(c, now + config_.timewait);
}

// --- Sending ---

void CmAgent::send(const Connection& c, const Mad& mad) { outgoing_.push_back({c.path, mad}); }

void CmAgent::send_until_answered(Time now, Connection& c, const Mad& mad, Duration give_up) {
  c.message = mad;
  c.give_up = now + give_up;
  c.interval = config_.first_retry;
  set_timer(c, now + c.interval);
  send(c, mad);
}

void CmAgent::repeat(Time now, Connection& c) {
  ++counters_.repeated;
  send(c, c.message);
  c.interval = std::min(c.interval * 2, std::max(config_.longest_retry, c.interval));
  set_timer(c, std::min(now + c.interval, c.give_up));
}

void CmAgent::send_rejection(const Connection& c, CmRejected message, CmReject reason,
                             std::span<const std::byte> private_data) {
  wire::CmRej rej;
  // Of a request that was never answered the peer knows no identifier of ours.
  rej.local_comm_id = message == CmRejected::req ? 0 : c.id;
  rej.remote_comm_id = c.remote_id;
  rej.message = static_cast<uint8_t>(message);
  rej.reason = static_cast<uint16_t>(reason);
  copy_private(rej.private_data, private_data);
  send(c, make_cm_mad(CmAttribute::rej, c.transaction, rej));
}

std::optional<CmOutgoing> CmAgent::poll_transmit() {
  if (outgoing_.empty()) return std::nullopt;
  CmOutgoing first = std::move(outgoing_.front());
  outgoing_.pop_front();
  return first;
}

std::optional<CmEvent> CmAgent::poll_event() {
  if (events_.empty()) return std::nullopt;
  CmEvent first = std::move(events_.front());
  events_.pop_front();
  return first;
}

// --- Commands ---

void CmAgent::listen(uint64_t listener, size_t backlog) { listeners_[listener].backlog = backlog; }

void CmAgent::stop_listening(Time now, uint64_t listener) {
  std::vector<uint32_t> waiting;
  for (const auto& [id, c] : connections_) {
    if (!c.active && c.listener == listener &&
        (c.state == State::kReqReceived || c.state == State::kSidrReceived)) {
      waiting.push_back(id);
    }
  }
  for (const uint32_t id : waiting) destroy(now, id);
  listeners_.erase(listener);
}

Result<uint32_t> CmAgent::connect(Time now, const CmConnect& request) {
  const size_t most = request.datagram ? wire::kSidrReqUserBytes : wire::kCmReqUserBytes;
  if (request.private_data.size() > most) return too_long(request.private_data.size(), most);
  if (connections_.size() >= config_.most_connections) {
    return Error{ENOMEM, "too many connections; destroy some first"};
  }
  Connection& c = create(request.path);
  c.active = true;
  c.datagram = request.datagram;
  c.service_id = request.service_id;
  c.transaction = entropy_.next();
  std::array<std::byte, wire::CmIpHeader::kSize> header;
  emit_header(ip_header(request), header.data());
  const Duration give_up = response_time() * (config_.max_retries + 1);
  if (request.datagram) {
    wire::CmSidrReq req;
    req.request_id = c.id;
    req.service_id = request.service_id;
    copy_private(req.private_data, header);
    copy_private(req.private_data, request.private_data, header.size());
    set_state(c, State::kSidrSent);
    send_until_answered(now, c, make_cm_mad(CmAttribute::sidr_req, c.transaction, req), give_up);
    return c.id;
  }
  const CmEnd& end = request.end;
  wire::CmReq req;
  req.local_comm_id = c.id;
  req.service_id = request.service_id;
  req.local_ca_guid = end.guid;
  req.local_qpn = end.qpn;
  req.responder_resources = end.responder_resources;
  req.initiator_depth = end.initiator_depth;
  req.remote_response_timeout = req.local_response_timeout = config_.response_timeout;
  req.transport = end.transport;
  req.extended_transport = end.extended_transport;
  req.flow_control = end.flow_control;
  req.starting_psn = end.starting_psn.value();
  req.retry_count = end.retry_count;
  req.rnr_retry_count = end.rnr_retry_count;
  req.path_mtu = end.path_mtu;
  req.max_cm_retries = config_.max_retries;
  req.srq = end.srq;
  req.primary_local_gid = request.path.local.to_gid();
  req.primary_remote_gid = request.path.remote.to_gid();
  req.primary_flow_label = request.path.flow_label;
  req.primary_traffic_class = request.path.traffic_class;
  req.primary_hop_limit = request.path.hop_limit;
  req.primary_sl = request.path.service_level;
  req.primary_ack_timeout = end.ack_timeout;
  copy_private(req.private_data, header);
  copy_private(req.private_data, request.private_data, header.size());
  set_state(c, State::kReqSent);
  send_until_answered(now, c, make_cm_mad(CmAttribute::req, c.transaction, req, kMark), give_up);
  return c.id;
}

Result<void> CmAgent::accept(Time now, uint32_t id, const CmEnd& end,
                             std::span<const std::byte> private_data) {
  Connection* c = find(id);
  if (c == nullptr || c->state != State::kReqReceived) return out_of_place("accept");
  if (private_data.size() > wire::CmRep::kPrivateBytes) {
    return too_long(private_data.size(), wire::CmRep::kPrivateBytes);
  }
  wire::CmRep rep;
  rep.local_comm_id = c->id;
  rep.remote_comm_id = c->remote_id;
  rep.local_qpn = end.qpn;
  rep.starting_psn = end.starting_psn.value();
  rep.responder_resources = end.responder_resources;
  rep.initiator_depth = end.initiator_depth;
  rep.target_ack_delay = 15;
  rep.flow_control = end.flow_control;
  rep.rnr_retry_count = end.rnr_retry_count;
  rep.srq = end.srq;
  rep.local_ca_guid = end.guid;
  copy_private(rep.private_data, private_data);
  set_state(*c, State::kRepSent);
  send_until_answered(now, *c, make_cm_mad(CmAttribute::rep, c->transaction, rep, kMark),
                      response_time() * (config_.max_retries + 1));
  return {};
}

Result<void> CmAgent::reject(Time now, uint32_t id, CmReject reason,
                             std::span<const std::byte> private_data) {
  Connection* c = find(id);
  if (c != nullptr && c->state == State::kSidrReceived) {
    return answer_datagram(now, id, wire::SidrStatus::rejected, {}, private_data);
  }
  if (private_data.size() > wire::CmRej::kPrivateBytes) {
    return too_long(private_data.size(), wire::CmRej::kPrivateBytes);
  }
  if (c != nullptr && c->state == State::kReqReceived) {
    send_rejection(*c, CmRejected::req, reason, private_data);
  } else if (c != nullptr && c->state == State::kRepReceived) {
    send_rejection(*c, CmRejected::rep, reason, private_data);
  } else {
    return out_of_place("reject");
  }
  close(*c);
  return {};
}

Result<void> CmAgent::answer_datagram(Time now, uint32_t id, wire::SidrStatus status,
                                      const CmEnd& end, std::span<const std::byte> private_data) {
  Connection* c = find(id);
  if (c == nullptr || c->state != State::kSidrReceived) return out_of_place("an answer");
  if (private_data.size() > wire::CmSidrRep::kPrivateBytes) {
    return too_long(private_data.size(), wire::CmSidrRep::kPrivateBytes);
  }
  wire::CmSidrRep rep;
  rep.request_id = c->remote_id;
  rep.status = static_cast<uint8_t>(status);
  rep.service_id = c->service_id;
  if (status == wire::SidrStatus::valid) {
    rep.qpn = end.qpn;
    rep.qkey = end.qkey;
  }
  copy_private(rep.private_data, private_data);
  c->message = make_cm_mad(CmAttribute::sidr_rep, c->transaction, rep);
  send(*c, c->message);
  set_state(*c, State::kSidrAnswered);
  // Kept for a request that comes again because this answer was lost.
  set_timer(*c, now + response_time() * 4);
  return {};
}

Result<void> CmAgent::establish(Time now, uint32_t id) {
  Connection* c = find(id);
  if (c == nullptr || c->state != State::kRepReceived) return out_of_place("establish");
  c->message = make_cm_mad(CmAttribute::rtu, c->transaction, wire::CmRtu{c->id, c->remote_id, {}});
  send(*c, c->message);
  set_state(*c, State::kEstablished);
  c->heard = now;
  watch(now, *c);
  return {};
}

Result<void> CmAgent::on_data(Time now, uint32_t id) {
  Connection* c = find(id);
  if (c == nullptr) return out_of_place("data");
  if (c->state == State::kEstablished) return {};
  if (c->state != State::kRepSent) return out_of_place("data");
  set_state(*c, State::kEstablished);
  c->heard = now;
  tell(CmEventType::kEstablished, *c);
  watch(now, *c);
  return {};
}

Result<void> CmAgent::disconnect(Time now, uint32_t id) {
  Connection* c = find(id);
  if (c == nullptr) return out_of_place("disconnect");
  if (c->state == State::kTimeWait || c->state == State::kDreqSent) return {};  // under way already
  if (c->state != State::kEstablished && c->state != State::kRepSent) {
    return out_of_place("disconnect");
  }
  const wire::CmDreq dreq{c->id, c->remote_id, Qpn(c->remote_qpn), 0, {}};
  set_state(*c, State::kDreqSent);
  send_until_answered(now, *c, make_cm_mad(CmAttribute::dreq, entropy_.next(), dreq),
                      config_.disconnect_give_up);
  return {};
}

void CmAgent::destroy(Time now, uint32_t id) {
  Connection* c = find(id);
  if (c == nullptr || c->orphan) return;
  std::erase_if(events_, [&](const CmEvent& event) { return event.id == id; });
  switch (c->state) {
    case State::kReqReceived:
    case State::kSidrReceived:
    case State::kRepReceived:
      (void)reject(now, id, CmReject::consumer_defined, {});
      c = find(id);
      if (c == nullptr || c->state == State::kClosed) break;
      c->orphan = true;  // an answered SIDR_REQ stays for a while
      return;
    case State::kReqSent:
      // Known only if it has sent an MRA.
      if (c->remote_id != 0) send_rejection(*c, CmRejected::other, CmReject::timeout, {});
      break;
    case State::kRepSent:
    case State::kEstablished:
      (void)disconnect(now, id);
      c->orphan = true;
      return;
    case State::kDreqSent:
    case State::kSidrAnswered:
    case State::kTimeWait:
      c->orphan = true;
      return;
    case State::kSidrSent:
    case State::kClosed:
      break;
  }
  if (c != nullptr) erase(*c);
}

void CmAgent::shut_down(Time now) {
  std::vector<uint32_t> all;
  for (const auto& [id, c] : connections_) all.push_back(id);
  for (const uint32_t id : all) destroy(now, id);
}

// --- Time ---

void CmAgent::on_timer(Time now) {
  while (!timers_.empty() && timers_.begin()->first <= now) {
    Connection& c = *find(timers_.begin()->second);
    set_timer(c, Time::never());
    switch (c.state) {
      case State::kReqSent:
      case State::kRepSent:
      case State::kDreqSent:
      case State::kSidrSent:
        if (now >= c.give_up) {
          give_up(now, c);
        } else {
          repeat(now, c);
        }
        break;
      case State::kEstablished:
        watch(now, c);
        break;
      case State::kTimeWait:
        if (!c.orphan) tell(CmEventType::kTimewaitExit, c);
        close(c);
        break;
      case State::kSidrAnswered:
        close(c);
        break;
      case State::kReqReceived:
      case State::kRepReceived:
      case State::kSidrReceived:
      case State::kClosed:
        break;
    }
  }
}

void CmAgent::give_up(Time now, Connection& c) {
  if (c.state == State::kDreqSent) return end(now, c, true);
  if (c.state == State::kReqSent && c.remote_id != 0) {
    send_rejection(c, CmRejected::other, CmReject::timeout, {});
  }
  if (c.state == State::kRepSent) send_rejection(c, CmRejected::rep, CmReject::timeout, {});
  tell(CmEventType::kUnreachable, c);
  close(c);
}

// The passive end asks first, so that one question keeps both informed.
void CmAgent::watch(Time now, Connection& c) {
  if (!c.marked) return set_timer(c, Time::never());
  const Duration silence = now - c.heard;
  if (silence >= config_.gone_after) return end(now, c, true);
  const Duration patience = c.active ? config_.ask_after * 3 / 2 : config_.ask_after;
  if (silence < patience) return set_timer(c, c.heard + patience);
  if (c.active) {
    send(c,
         make_cm_mad(CmAttribute::rtu, c.transaction, wire::CmRtu{c.id, c.remote_id, {}}, kMark));
  } else {
    send(c, c.message);  // the REP
  }
  // More often than before: on a bad line questions and answers are lost, too.
  set_timer(c, now + config_.ask_after / 5);
}

}  // namespace farverbs::proto
