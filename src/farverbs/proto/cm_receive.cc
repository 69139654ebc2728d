// What the connection manager's agent does with the messages that come.
#include "farverbs/proto/cm_agent.h"

#include <algorithm>

namespace farverbs::proto {

using wire::CmAttribute;
using wire::CmReject;
using wire::CmRejected;

namespace {

// What MRA promises: 4.096 us * 2^24, 69 s.
constexpr uint8_t kServiceTimeout = 24;
constexpr unsigned kMostTimeoutCode = 31;

template <size_t N>
void copy_all(CmPrivateData& to, const wire::CmBytes<N>& from, size_t begin = 0) {
  to.size = static_cast<uint8_t>(N - begin);
  std::copy(from.begin() + static_cast<ptrdiff_t>(begin), from.end(), to.bytes.begin());
}

// Of the IP header before the application's private data; nothing for one of another version.
std::optional<wire::CmIpHeader> ip_header_of(std::span<const std::byte> private_data) {
  const auto header = wire::parse_header<wire::CmIpHeader>(private_data.data());
  if (header.version != 0 || (header.ip_version != 4 && header.ip_version != 6)) {
    return std::nullopt;
  }
  return header;
}

}  // namespace

void CmAgent::on_request(Time now, uint64_t listener, const CmPath& path,
                         std::span<const std::byte> mad) {
  const std::optional<wire::MadHeader> header = wire::cm_header(mad);
  ++counters_.received;
  if (!header) {
    ++counters_.dropped;
  } else if (header->attribute == static_cast<uint16_t>(CmAttribute::req)) {
    on_req(now, listener, path, *header, wire::cm_body<wire::CmReq>(mad));
  } else if (header->attribute == static_cast<uint16_t>(CmAttribute::sidr_req)) {
    on_sidr_req(now, listener, path, *header, wire::cm_body<wire::CmSidrReq>(mad));
  } else {
    ++counters_.dropped;
  }
}

void CmAgent::on_message(Time now, const CmPath& path, std::span<const std::byte> mad) {
  const std::optional<wire::MadHeader> header = wire::cm_header(mad);
  ++counters_.received;
  if (!header) {
    ++counters_.dropped;
    return;
  }
  switch (static_cast<CmAttribute>(header->attribute)) {
    case CmAttribute::rep:
      return on_rep(now, path, *header, wire::cm_body<wire::CmRep>(mad));
    case CmAttribute::rtu:
      return on_rtu(now, path, *header, wire::cm_body<wire::CmRtu>(mad));
    case CmAttribute::rej:
      return on_rej(now, path, wire::cm_body<wire::CmRej>(mad));
    case CmAttribute::mra:
      return on_mra(now, path, wire::cm_body<wire::CmMra>(mad));
    case CmAttribute::dreq:
      return on_dreq(now, path, *header, wire::cm_body<wire::CmDreq>(mad));
    case CmAttribute::drep:
      return on_drep(now, path, wire::cm_body<wire::CmDrep>(mad));
    case CmAttribute::lap:
      return on_lap(path, *header, wire::cm_body<wire::CmLap>(mad));
    case CmAttribute::sidr_rep:
      return on_sidr_rep(now, path, wire::cm_body<wire::CmSidrRep>(mad));
    case CmAttribute::req:
    case CmAttribute::sidr_req:
    case CmAttribute::apr:
      ++counters_.dropped;
  }
}

// --- Requests ---

CmAgent::Connection* CmAgent::admit(uint64_t listener, const CmPath& path) {
  const auto found = listeners_.find(listener);
  // A listener that does not listen yet stays silent: the request will come again.
  if (found == listeners_.end()) {
    ++counters_.dropped;
    return nullptr;
  }
  if (found->second.pending >= found->second.backlog || half_open_ >= config_.most_half_open ||
      connections_.size() >= config_.most_connections) {
    ++counters_.overflowed;
    return nullptr;
  }
  Connection& c = create(path);
  c.listener = listener;
  return &c;
}

void CmAgent::on_req(Time now, uint64_t listener, const CmPath& path, const wire::MadHeader& header,
                     const wire::CmReq& req) {
  const PeerKey key{path.remote, req.local_comm_id};
  if (const auto again = by_remote_id_.find(key); again != by_remote_id_.end()) {
    return on_req_again(*find(again->second));
  }
  const auto ip = ip_header_of(req.private_data);
  if (!ip || req.transport == static_cast<uint8_t>(wire::CmTransport::rd)) {
    ++counters_.dropped;
    return;
  }
  // A QP that asks anew has lost its old connection, however that came about.
  const PeerKey qp{path.remote, req.local_qpn.value()};
  if (const auto old = by_remote_qpn_.find(qp); old != by_remote_qpn_.end()) {
    if (Connection* c = find(old->second); c->state == State::kEstablished) {
      end(now, *c, true);
    }
  }
  Connection* c = admit(listener, path);
  if (c == nullptr) return;
  c->path.traffic_class = req.primary_traffic_class;
  c->path.hop_limit = req.primary_hop_limit;
  c->path.service_level = req.primary_sl;
  c->path.flow_label = req.primary_flow_label;
  c->remote_id = req.local_comm_id;
  c->remote_qpn = req.local_qpn.value();
  c->service_id = req.service_id;
  c->transaction = header.transaction;
  c->marked = header.attribute_modifier == kMark;
  by_remote_id_[key] = c->id;
  if (c->remote_qpn > kManagementQpn.value()) by_remote_qpn_[qp] = c->id;
  set_state(*c, State::kReqReceived);
  CmEvent& event = tell(CmEventType::kRequest, *c);
  event.listener = listener;
  event.remote_port = ip->port;
  CmEnd& peer = event.peer;
  peer.qpn = req.local_qpn;
  peer.starting_psn = Psn(req.starting_psn);
  peer.responder_resources = req.responder_resources;
  peer.initiator_depth = req.initiator_depth;
  peer.flow_control = req.flow_control;
  peer.retry_count = req.retry_count;
  peer.rnr_retry_count = req.rnr_retry_count;
  peer.srq = req.srq;
  peer.path_mtu = req.path_mtu;
  peer.ack_timeout = req.primary_ack_timeout;
  peer.transport = req.transport;
  peer.extended_transport = req.extended_transport;
  peer.guid = req.local_ca_guid;
  copy_all(event.private_data, req.private_data, wire::CmIpHeader::kSize);
}

void CmAgent::on_req_again(const Connection& c) {
  if (c.state == State::kRepSent) {
    ++counters_.repeated;
    send(c, c.message);
  } else if (c.state == State::kReqReceived) {
    wire::CmMra mra;
    mra.local_comm_id = c.id;
    mra.remote_comm_id = c.remote_id;
    mra.message = static_cast<uint8_t>(CmRejected::req);
    mra.service_timeout = kServiceTimeout;
    send(c, make_cm_mad(CmAttribute::mra, c.transaction, mra));
  }
}

void CmAgent::on_sidr_req(Time now, uint64_t listener, const CmPath& path,
                          const wire::MadHeader& header, const wire::CmSidrReq& req) {
  (void)now;
  const PeerKey key{path.remote, req.request_id};
  if (const auto again = by_remote_id_.find(key); again != by_remote_id_.end()) {
    const Connection& c = *find(again->second);
    if (c.state == State::kSidrAnswered) send(c, c.message);
    return;
  }
  const auto ip = ip_header_of(req.private_data);
  if (!ip) {
    ++counters_.dropped;
    return;
  }
  Connection* c = admit(listener, path);
  if (c == nullptr) return;
  c->datagram = true;
  c->remote_id = req.request_id;
  c->service_id = req.service_id;
  c->transaction = header.transaction;
  by_remote_id_[key] = c->id;
  set_state(*c, State::kSidrReceived);
  CmEvent& event = tell(CmEventType::kRequest, *c);
  event.listener = listener;
  event.remote_port = ip->port;
  copy_all(event.private_data, req.private_data, wire::CmIpHeader::kSize);
}

// --- Answers ---

void CmAgent::on_rep(Time now, const CmPath& path, const wire::MadHeader& header,
                     const wire::CmRep& rep) {
  Connection* c = find_from(rep.remote_comm_id, path);
  if (c == nullptr || !c->active || (c->remote_id != 0 && c->remote_id != rep.local_comm_id)) {
    ++counters_.dropped;
    return tell_unknown(path, header, rep.local_comm_id, CmRejected::rep);
  }
  switch (c->state) {
    case State::kReqSent:
      break;
    case State::kRepReceived: {
      wire::CmMra mra;
      mra.local_comm_id = c->id;
      mra.remote_comm_id = c->remote_id;
      mra.message = static_cast<uint8_t>(CmRejected::rep);
      mra.service_timeout = kServiceTimeout;
      send(*c, make_cm_mad(CmAttribute::mra, c->transaction, mra));
      return;
    }
    case State::kEstablished:
      c->heard = now;
      send(*c, c->message);  // the RTU
      return;
    default:
      ++counters_.dropped;
      if (c->state == State::kClosed) {
        tell_unknown(path, header, rep.local_comm_id, CmRejected::rep);
      }
      return;
  }
  c->remote_id = rep.local_comm_id;
  c->remote_qpn = rep.local_qpn.value();
  c->marked = header.attribute_modifier == kMark;
  set_timer(*c, Time::never());
  set_state(*c, State::kRepReceived);
  CmEvent& event = tell(CmEventType::kReply, *c);
  CmEnd& peer = event.peer;
  peer.qpn = rep.local_qpn;
  peer.starting_psn = Psn(rep.starting_psn);
  peer.responder_resources = rep.responder_resources;
  peer.initiator_depth = rep.initiator_depth;
  peer.flow_control = rep.flow_control;
  peer.rnr_retry_count = rep.rnr_retry_count;
  peer.srq = rep.srq;
  peer.guid = rep.local_ca_guid;
  copy_all(event.private_data, rep.private_data);
}

void CmAgent::on_rtu(Time now, const CmPath& path, const wire::MadHeader& header,
                     const wire::CmRtu& rtu) {
  Connection* c = find_from(rtu.remote_comm_id, path);
  if (c == nullptr || c->active || c->remote_id != rtu.local_comm_id) {
    ++counters_.dropped;
    if (header.attribute_modifier == kMark) {
      tell_unknown(path, header, rtu.local_comm_id, CmRejected::other);
    }
    return;
  }
  if (c->state == State::kRepSent) {
    (void)on_data(now, c->id);
  } else if (c->state == State::kEstablished) {
    c->heard = now;
  } else {
    ++counters_.dropped;
    return;
  }
  if (header.attribute_modifier == kMark) send(*c, c->message);
}

void CmAgent::on_rej(Time now, const CmPath& path, const wire::CmRej& rej) {
  Connection* c = find_from(rej.remote_comm_id, path);
  if (c == nullptr ||
      (rej.local_comm_id != 0 && c->remote_id != 0 && rej.local_comm_id != c->remote_id)) {
    ++counters_.dropped;
    return;
  }
  switch (c->state) {
    case State::kReqSent:
    case State::kRepReceived:
    case State::kRepSent: {
      CmEvent& event = tell(CmEventType::kRejected, *c);
      event.reason = rej.reason;
      copy_all(event.private_data, rej.private_data);
      close(*c);
      return;
    }
    case State::kEstablished:
    case State::kDreqSent:
      // The peer knows nothing of this connection (any more).
      return end(now, *c, true);
    default:
      ++counters_.dropped;
  }
}

void CmAgent::on_mra(Time now, const CmPath& path, const wire::CmMra& mra) {
  Connection* c = find_from(mra.remote_comm_id, path);
  if (c == nullptr || (c->state != State::kReqSent && c->state != State::kRepSent)) {
    ++counters_.dropped;
    return;
  }
  if (c->state == State::kReqSent) c->remote_id = mra.local_comm_id;
  const Duration service = Duration::nanoseconds(
      int64_t{4096} << std::min<unsigned>(mra.service_timeout, kMostTimeoutCode));
  c->give_up = std::max(c->give_up, now + service + response_time());
  // The peer has it. It is asked again now and then all the same, because it may die meanwhile.
  c->interval = response_time();
  set_timer(*c, now + c->interval);
}

void CmAgent::on_sidr_rep(Time, const CmPath& path, const wire::CmSidrRep& rep) {
  Connection* c = find_from(rep.request_id, path);
  if (c == nullptr || c->state != State::kSidrSent) {
    ++counters_.dropped;
    return;
  }
  const bool valid = rep.status == static_cast<uint8_t>(wire::SidrStatus::valid);
  CmEvent& event = tell(valid ? CmEventType::kReply : CmEventType::kRejected, *c);
  event.reason = rep.status;
  event.peer.qpn = rep.qpn;
  event.peer.qkey = rep.qkey;
  copy_all(event.private_data, rep.private_data);
  close(*c);
}

void CmAgent::tell_unknown(const CmPath& path, const wire::MadHeader& header, uint32_t peer,
                           CmRejected message) {
  wire::CmRej rej;
  rej.remote_comm_id = peer;
  rej.message = static_cast<uint8_t>(message);
  rej.reason = static_cast<uint16_t>(CmReject::invalid_communication_id);
  outgoing_.push_back({path, make_cm_mad(CmAttribute::rej, header.transaction, rej)});
}

// --- The end ---

void CmAgent::on_dreq(Time now, const CmPath& path, const wire::MadHeader& header,
                      const wire::CmDreq& dreq) {
  // Answered whatever is known of the connection, so that who asks comes to an end.
  outgoing_.push_back(
      {path, make_cm_mad(CmAttribute::drep, header.transaction,
                         wire::CmDrep{dreq.remote_comm_id, dreq.local_comm_id, {}})});
  Connection* c = find_from(dreq.remote_comm_id, path);
  if (c == nullptr || c->remote_id != dreq.local_comm_id) return;
  if (c->state == State::kRepSent) {
    // It would not disconnect what it had not taken for connected: the RTU was lost.
    (void)on_data(now, c->id);
  }
  if (c->state == State::kEstablished || c->state == State::kDreqSent) end(now, *c, false);
}

void CmAgent::on_drep(Time now, const CmPath& path, const wire::CmDrep& drep) {
  Connection* c = find_from(drep.remote_comm_id, path);
  if (c == nullptr || c->state != State::kDreqSent) {
    ++counters_.dropped;
    return;
  }
  end(now, *c, false);
}

void CmAgent::on_lap(const CmPath& path, const wire::MadHeader& header, const wire::CmLap& lap) {
  wire::CmApr apr;
  apr.local_comm_id = lap.remote_comm_id;
  apr.remote_comm_id = lap.local_comm_id;
  apr.status = wire::CmApr::kStatusUnsupported;
  outgoing_.push_back({path, make_cm_mad(CmAttribute::apr, header.transaction, apr)});
}

}  // namespace farverbs::proto
