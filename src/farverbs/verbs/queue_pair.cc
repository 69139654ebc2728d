#include <algorithm>

#include "farverbs/verbs/state.h"

namespace farverbs::verbs {
namespace {

Result<void> check_capability(const char* name, uint32_t value, uint32_t limit) {
  if (value <= limit) return {};
  return invalid(std::string(name) + " must be at most " + std::to_string(limit) + ", got " +
                 std::to_string(value));
}

}  // namespace

namespace detail {

QpHandleState::~QpHandleState() {
  if (qp == nullptr) return;
  shard->with_loop([this](engine::Loop& loop, Time now) {
    loop.destroy_qp(now, qp);
    for (const IpAddress& group : groups) pd->device->addresses_port->leave(group);
  });
}

}  // namespace detail

Result<QueuePair> ProtectionDomain::create_qp(const QueuePairInit& init) {
  detail::DeviceState& device = *state_->device;
  const DeviceAttributes& limits = device.attributes;
  const QpCapabilities& caps = init.capabilities;
  if (init.send_cq == nullptr) return invalid("send_cq is missing");
  if (init.receive_cq == nullptr) return invalid("receive_cq is missing");
  FV_TRY(check_capability("max_send_wr", caps.max_send_wr, limits.max_qp_wr));
  FV_TRY(check_capability("max_recv_wr", caps.max_recv_wr, limits.max_qp_wr));
  FV_TRY(check_capability("max_send_sge", caps.max_send_sge, limits.max_sge));
  FV_TRY(check_capability("max_recv_sge", caps.max_recv_sge, limits.max_sge));
  FV_TRY(check_capability("max_inline_data", caps.max_inline_data, limits.max_inline_data));

  auto handle = std::make_shared<detail::QpHandleState>();
  handle->pd = state_;
  handle->send_cq = init.send_cq->state_;
  handle->receive_cq = init.receive_cq->state_;
  if (init.srq != nullptr) handle->srq = init.srq->state_;
  handle->shard = device.shards[device.next_shard.fetch_add(1) % device.shards.size()].get();
  handle->first_psn = Psn(device.entropy.next());

  model::QpInit qp;
  qp.type = init.type;
  qp.send_cq = handle->send_cq->queue.get();
  qp.receive_cq = handle->receive_cq->queue.get();
  qp.srq = handle->srq != nullptr ? handle->srq->queue.get() : nullptr;
  qp.capabilities = caps;
  qp.signal_all = init.signal_all;
  qp.pd = state_->id;
  qp.context = init.context;
  auto created = handle->shard->with_loop(
      [&, events = init.events != nullptr ? init.events : &device.events](
          engine::Loop& loop, Time) { return loop.create_qp(qp, events); });
  if (!created.ok()) return std::move(created).error();
  handle->qp = *created;
  return QueuePair(std::move(handle));
}

Qpn QueuePair::qpn() const { return state_->qp->pair.qp().qpn; }
QpType QueuePair::type() const { return state_->qp->pair.qp().type; }
QpState QueuePair::state() const { return state_->qp->pair.qp().state.load(); }

Result<void> QueuePair::modify(const QpAttributes& attributes, uint32_t mask) {
  return state_->shard->with_loop([&](engine::Loop& loop, Time now) {
    return loop.modify(now, *state_->qp, attributes, mask);
  });
}

QpAttributes QueuePair::query() const {
  return state_->shard->with_loop([&](engine::Loop&, Time) {
    QpAttributes attributes = state_->qp->pair.qp().attributes;
    attributes.state = attributes.current_state = state_->qp->pair.qp().state.load();
    return attributes;
  });
}

QpCounters QueuePair::counters() const {
  return state_->shard->with_loop([&](engine::Loop&, Time) {
    const model::QpCounters& c = state_->qp->pair.qp().counters;
    return QpCounters{c.sent_packets,
                      c.sent_payload_bytes,
                      c.received_packets,
                      c.received_payload_bytes,
                      c.retransmitted_packets,
                      c.retransmitted_bytes,
                      c.timeouts,
                      c.sequence_naks_sent,
                      c.sequence_naks_received,
                      c.rnr_naks_sent,
                      c.rnr_naks_received,
                      c.duplicates_received,
                      c.dropped_packets};
  });
}

QpAddress QueuePair::address() const {
  const detail::DeviceState& device = *state_->pd->device;
  QpAddress address;
  address.gid = device.options.address.to_gid();
  address.udp_port = device.options.udp_port;
  address.qpn = qpn();
  address.psn = state_->first_psn;
  address.path_mtu = device.max_path_mtu;
  const bool far = type() == QpType::kRc && device.options.transport != Transport::kStandard;
  address.far_version = far ? detail::kFarVersion : 0;
  return address;
}

Result<void> QueuePair::connect(const QpAddress& peer, const ConnectOptions& options) {
  using namespace model;
  const QpType kind = type();
  if (model::is_datagram(kind))
    return invalid("connect is for RC and UC; use activate_datagrams for UD");
  QpAttributes a;
  a.state = QpState::kInit;
  a.access_flags = options.remote_access;
  FV_TRY(modify(a, kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccessFlags));

  const bool able = address().far_version != 0 && peer.far_version != 0;
  if (options.transport == Transport::kFar && !able) {
    return Error{EPROTONOSUPPORT,
                 "the far transport was asked for, but this device or the peer does not offer it"};
  }
  const bool far = able && options.transport != Transport::kStandard;
  FV_TRY(state_->shard->with_loop([&](engine::Loop&, Time) {
    return far ? state_->qp->pair.use_far() : state_->qp->pair.use_standard();
  }));

  a.state = QpState::kRtr;
  a.path_mtu = std::min(peer.path_mtu, state_->pd->device->max_path_mtu);
  a.destination_qpn = peer.qpn;
  a.rq_psn = peer.psn;
  a.address_vector.destination_gid = peer.gid;
  a.address_vector.udp_port = peer.udp_port;
  a.address_vector.traffic_class = marked(options.traffic_class, options.traffic);
  a.address_vector.service_level =
      options.service_level != 0 ? options.service_level : service_level_of(options.traffic);
  a.max_dest_rd_atomic = options.max_rd_atomic;
  a.min_rnr_timer = options.min_rnr_timer;
  uint32_t mask = kAttrState | kAttrAddressVector | kAttrPathMtu | kAttrDestinationQpn | kAttrRqPsn;
  if (kind == QpType::kRc) mask |= kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
  FV_TRY(modify(a, mask));

  a.state = QpState::kRts;
  a.sq_psn = state_->first_psn;
  a.timeout = options.timeout;
  a.retry_count = options.retry_count;
  a.rnr_retry = options.rnr_retry;
  a.max_rd_atomic = options.max_rd_atomic;
  mask = kAttrState | kAttrSqPsn;
  if (kind == QpType::kRc) {
    mask |= kAttrTimeout | kAttrRetryCount | kAttrRnrRetry | kAttrMaxRdAtomic;
  }
  return modify(a, mask);
}

Transport QueuePair::transport() const {
  return state_->shard->with_loop([&](engine::Loop&, Time) {
    return state_->qp->pair.far() ? Transport::kFar : Transport::kStandard;
  });
}

Result<void> QueuePair::activate_datagrams(uint32_t qkey) {
  using namespace model;
  QpAttributes a;
  a.state = QpState::kInit;
  a.qkey = qkey;
  FV_TRY(modify(a, kAttrState | kAttrPkeyIndex | kAttrPort | kAttrQkey));
  a.state = QpState::kRtr;
  FV_TRY(modify(a, kAttrState));
  a.state = QpState::kRts;
  a.sq_psn = state_->first_psn;
  return modify(a, kAttrState | kAttrSqPsn);
}

Result<void> QueuePair::post_send(const SendWorkRequest& request) {
  FV_TRY(state_->qp->pair.post_send(request));
  state_->shard->posted(*state_->qp, 1);
  return {};
}

Result<void> QueuePair::post_send(std::span<const SendWorkRequest> requests, size_t* posted) {
  size_t n = 0;
  Result<void> result;
  for (const SendWorkRequest& request : requests) {
    result = state_->qp->pair.post_send(request);
    if (!result.ok()) break;
    ++n;
  }
  if (posted != nullptr) *posted = n;
  if (n > 0) state_->shard->posted(*state_->qp, n);
  return result;
}

Result<void> QueuePair::attach_multicast(const Gid& gid) {
  const IpAddress group = IpAddress::from_gid(gid);
  if (type() != QpType::kUd) return invalid("only a UD QP can be in a multicast group");
  if (!group.is_multicast()) return invalid(group.to_string() + " is no multicast address");
  const auto& device = *state_->pd->device;
  if (device.addresses_port == nullptr) {
    return Error{EOPNOTSUPP, "the device was opened without more_gids"};
  }
  return state_->shard->with_loop([&](engine::Loop& loop, Time) -> Result<void> {
    std::vector<IpAddress>& groups = state_->groups;
    if (std::find(groups.begin(), groups.end(), group) != groups.end()) return {};
    FV_TRY(device.addresses_port->join(group, device.interface.index));
    groups.push_back(group);
    loop.attach(*state_->qp, group);
    return {};
  });
}

Result<void> QueuePair::detach_multicast(const Gid& gid) {
  const IpAddress group = IpAddress::from_gid(gid);
  return state_->shard->with_loop([&](engine::Loop& loop, Time) -> Result<void> {
    if (!loop.detach(*state_->qp, group)) {
      return invalid("the QP is not attached to " + group.to_string());
    }
    std::erase(state_->groups, group);
    state_->pd->device->addresses_port->leave(group);
    return {};
  });
}

uint32_t QueuePair::send_room() const {
  const model::SendQueue& queue = state_->qp->pair.qp().send_queue;
  // The head first: it never passes a tail that is read later.
  const uint64_t head = queue.head();
  return queue.capacity() - static_cast<uint32_t>(queue.tail() - head);
}

Result<void> QueuePair::post_receive(const ReceiveWorkRequest& request) {
  return post_receive(std::span(&request, 1));
}

Result<void> QueuePair::post_receive(std::span<const ReceiveWorkRequest> requests, size_t* posted) {
  size_t n = 0;
  Result<void> result;
  for (const ReceiveWorkRequest& request : requests) {
    result = state_->qp->pair.post_receive(request);
    if (!result.ok()) break;
    ++n;
  }
  if (posted != nullptr) *posted = n;
  // In the error state a receive is flushed at once.
  if (n > 0 && state() == QpState::kErr) state_->shard->posted(*state_->qp, n);
  return result;
}

}  // namespace farverbs::verbs
