// QPs and shared receive queues of identifiers: rdma_create_qp(3), rdma_create_srq(3),
// rdma_init_qp_attr(3), and the states that a connection takes its QP through.
#include <cerrno>
#include <cstring>

#include <rdma/rdma_verbs.h>

#include "farverbs/abi/rdmacm/library.h"

namespace farverbs::rdmacm {
namespace {

constexpr uint8_t kMinRnrTimer = 12;  // 0.64 ms
constexpr int kRemoteAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                              IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

bool is_reliable(const Id& id) { return id.qp_type != IBV_QPT_UC; }

void for_init(const Id& id, ibv_qp_attr& attr, int& mask) {
  attr.pkey_index = 0;
  attr.port_num = id.port_num != 0 ? id.port_num : 1;
  mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  if (id.is_datagram()) {
    attr.qkey = RDMA_UDP_QKEY;
    mask |= IBV_QP_QKEY;
  } else {
    attr.qp_access_flags = kRemoteAccess;
    mask |= IBV_QP_ACCESS_FLAGS;
  }
}

void for_rtr(const Id& id, ibv_qp_attr& attr, int& mask) {
  mask = IBV_QP_STATE;
  if (id.is_datagram()) return;
  const Gid gid = id.path.remote.to_gid();
  std::memcpy(attr.ah_attr.grh.dgid.raw, gid.data(), gid.size());
  attr.ah_attr.grh.sgid_index = id.gid_index;
  attr.ah_attr.grh.hop_limit = id.path.hop_limit != 0 ? id.path.hop_limit : 64;
  attr.ah_attr.grh.traffic_class = id.path.traffic_class;
  attr.ah_attr.grh.flow_label = id.path.flow_label;
  attr.ah_attr.sl = id.path.service_level;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  // What the REQ said, whichever end sent it.
  attr.path_mtu = static_cast<ibv_mtu>(id.passive ? id.peer.path_mtu : id.own.path_mtu);
  attr.dest_qp_num = id.peer.qpn.value();
  // An end says at which PSN the other shall begin to send (IBTA vol. 1, 12.7.22).
  attr.rq_psn = id.own.starting_psn.value();
  mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (!is_reliable(id)) return;
  attr.max_dest_rd_atomic = id.responder_resources;
  attr.min_rnr_timer = kMinRnrTimer;
  mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

void for_rts(const Id& id, ibv_qp_attr& attr, int& mask) {
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  attr.sq_psn = id.is_datagram() ? 0 : id.peer.starting_psn.value();
  if (id.is_datagram() || !is_reliable(id)) return;
  attr.timeout = id.passive && !id.has_ack_timeout ? id.peer.ack_timeout : id.own.ack_timeout;
  attr.retry_cnt = id.passive ? id.peer.retry_count : id.own.retry_count;
  attr.rnr_retry = id.peer.rnr_retry_count;
  attr.max_rd_atomic = id.initiator_depth;
  mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
}

int modify(ibv_qp* qp, ibv_qp_attr& attr, int mask, ibv_qp_state state) {
  attr.qp_state = state;
  const int failed = ibv_modify_qp(qp, &attr, mask);
  return failed == 0 ? 0 : fail(failed);
}

int to_init(Id& id, ibv_qp* qp) {
  ibv_qp_attr attr{};
  int mask = 0;
  for_init(id, attr, mask);
  if (modify(qp, attr, mask, IBV_QPS_INIT) != 0) return -1;
  if (!id.is_datagram()) return 0;
  // Datagrams need no peer to be agreed on.
  if (modify(qp, attr, IBV_QP_STATE, IBV_QPS_RTR) != 0) return -1;
  for_rts(id, attr, mask);
  return modify(qp, attr, mask, IBV_QPS_RTS);
}

// Completion queues for who brings none.
int create_cqs(Id& id, uint32_t send, uint32_t receive) {
  const auto make = [&](uint32_t size, ibv_comp_channel*& channel, ibv_cq*& cq, bool& own) {
    if (size == 0) return true;
    channel = ibv_create_comp_channel(id.verbs);
    if (channel == nullptr) return false;
    cq = ibv_create_cq(id.verbs, static_cast<int>(size), &id, channel, 0);
    if (cq == nullptr) {
      ibv_destroy_comp_channel(channel);
      channel = nullptr;
    }
    own = cq != nullptr;
    return own;
  };
  return make(send, id.send_cq_channel, id.send_cq, id.own_send_cq) &&
                 make(receive, id.recv_cq_channel, id.recv_cq, id.own_recv_cq)
             ? 0
             : -1;
}

void destroy_cqs(Id& id) {
  const auto destroy = [](ibv_comp_channel*& channel, ibv_cq*& cq, bool& own) {
    if (!own) return;
    ibv_destroy_cq(cq);
    if (channel != nullptr) ibv_destroy_comp_channel(channel);
    cq = nullptr;
    channel = nullptr;
    own = false;
  };
  destroy(id.send_cq_channel, id.send_cq, id.own_send_cq);
  destroy(id.recv_cq_channel, id.recv_cq, id.own_recv_cq);
}

// Of what both kinds of attributes have; `create` makes the QP.
template <typename Attributes, typename Create>
int create_qp(Id& id, ibv_pd* pd, Attributes& attr, Create create) {
  if (id.qp != nullptr || attr.qp_type != id.qp_type) return fail(EINVAL);
  if (pd == nullptr) pd = id.nic->pd;
  if (pd == nullptr || pd->context != id.verbs) return fail(EINVAL);
  const auto differ = [](auto* own, auto* asked) {
    return own != nullptr && asked != nullptr && own != asked;
  };
  if (differ(id.recv_cq, attr.recv_cq) || differ(id.send_cq, attr.send_cq) ||
      differ(id.srq, attr.srq)) {
    return fail(EINVAL);
  }
  const Attributes asked = attr;
  if (attr.recv_cq == nullptr) attr.recv_cq = id.recv_cq;
  if (attr.send_cq == nullptr) attr.send_cq = id.send_cq;
  if (attr.srq == nullptr && id.srq != nullptr) attr.srq = id.srq;
  // A queue of no requests still wants a completion queue.
  const auto at_least_one = [](uint32_t n) { return n == 0 ? 1 : n; };
  if (create_cqs(id, attr.send_cq != nullptr ? 0 : at_least_one(attr.cap.max_send_wr),
                 attr.recv_cq != nullptr ? 0 : at_least_one(attr.cap.max_recv_wr)) != 0) {
    const int code = errno;
    destroy_cqs(id);
    return fail(code);
  }
  if (attr.send_cq == nullptr) attr.send_cq = id.send_cq;
  if (attr.recv_cq == nullptr) attr.recv_cq = id.recv_cq;
  ibv_qp* qp = create(pd);
  const int code = qp == nullptr ? errno : to_init(id, qp) != 0 ? errno : 0;
  if (code != 0) {
    if (qp != nullptr) ibv_destroy_qp(qp);
    destroy_cqs(id);
    attr = asked;
    return fail(code);
  }
  id.pd = pd;
  id.qp = qp;
  return 0;
}

}  // namespace

Id* with_device(rdma_cm_id* id) {
  Library& library = Library::get();
  const std::lock_guard lock(library.mutex);
  if (!library.alive(id) || of(id)->nic == nullptr) return nullptr;
  Nic& nic = *of(id)->nic;
  if (nic.pd == nullptr) nic.pd = ibv_alloc_pd(nic.context);
  id->verbs = nic.context;
  return of(id);
}

int to_ready(Id& id) {
  ibv_qp_attr attr{};
  int mask = 0;
  // Attributes of INIT that the application, or nobody, has set.
  for_init(id, attr, mask);
  if (modify(id.qp, attr, mask, IBV_QPS_INIT) != 0) return -1;
  for_rtr(id, attr, mask);
  if (modify(id.qp, attr, mask, IBV_QPS_RTR) != 0) return -1;
  for_rts(id, attr, mask);
  return modify(id.qp, attr, mask, IBV_QPS_RTS);
}

int to_error(Id& id) {
  ibv_qp_attr attr{};
  return modify(id.qp, attr, IBV_QP_STATE, IBV_QPS_ERR);
}

void release_qp(Id& id) {
  if (id.qp != nullptr) ibv_destroy_qp(id.qp);
  id.qp = nullptr;
  destroy_cqs(id);
}

}  // namespace farverbs::rdmacm

using namespace farverbs;
using namespace farverbs::rdmacm;

extern "C" {

int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* qp_init_attr) {
  Id* owner = with_device(id);
  if (owner == nullptr || qp_init_attr == nullptr) return fail(EINVAL);
  return create_qp(*owner, pd, *qp_init_attr,
                   [&](ibv_pd* domain) { return ibv_create_qp(domain, qp_init_attr); });
}

int rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* qp_init_attr) {
  Id* owner = with_device(id);
  if (owner == nullptr || qp_init_attr == nullptr) return fail(EINVAL);
  ibv_pd* pd = (qp_init_attr->comp_mask & IBV_QP_INIT_ATTR_PD) != 0 ? qp_init_attr->pd : nullptr;
  return create_qp(*owner, pd, *qp_init_attr, [&](ibv_pd* domain) {
    qp_init_attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
    qp_init_attr->pd = domain;
    return ibv_create_qp_ex(owner->verbs, qp_init_attr);
  });
}

void rdma_destroy_qp(rdma_cm_id* id) {
  if (Id* owner = with_device(id); owner != nullptr && owner->qp != nullptr) release_qp(*owner);
}

int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* qp_attr, int* qp_attr_mask) {
  Id* owner = with_device(id);
  if (owner == nullptr || qp_attr == nullptr || qp_attr_mask == nullptr) return fail(EINVAL);
  switch (qp_attr->qp_state) {
    case IBV_QPS_INIT:
      for_init(*owner, *qp_attr, *qp_attr_mask);
      return 0;
    case IBV_QPS_RTR:
      for_rtr(*owner, *qp_attr, *qp_attr_mask);
      return 0;
    case IBV_QPS_RTS:
      for_rts(*owner, *qp_attr, *qp_attr_mask);
      return 0;
    default:
      return fail(EINVAL);
  }
}

int rdma_create_srq(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* attr) {
  Id* owner = with_device(id);
  if (owner == nullptr || attr == nullptr || owner->srq != nullptr) return fail(EINVAL);
  if (pd == nullptr) pd = owner->pd != nullptr ? owner->pd : owner->nic->pd;
  if (pd == nullptr || pd->context != owner->verbs) return fail(EINVAL);
  ibv_srq* srq = ibv_create_srq(pd, attr);
  if (srq == nullptr) return -1;
  owner->srq = srq;
  owner->pd = pd;
  return 0;
}

int rdma_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attr) {
  Id* owner = with_device(id);
  if (owner == nullptr || attr == nullptr || owner->srq != nullptr) return fail(EINVAL);
  const bool has_pd = (attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) != 0 && attr->pd != nullptr;
  if (!has_pd) {
    attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
    attr->pd = owner->pd != nullptr ? owner->pd : owner->nic->pd;
  }
  if (attr->pd == nullptr || attr->pd->context != owner->verbs) return fail(EINVAL);
  ibv_srq* srq = ibv_create_srq_ex(owner->verbs, attr);
  if (srq == nullptr) return -1;
  owner->srq = srq;
  owner->pd = attr->pd;
  return 0;
}

void rdma_destroy_srq(rdma_cm_id* id) {
  Id* owner = with_device(id);
  if (owner == nullptr || owner->srq == nullptr) return;
  ibv_destroy_srq(owner->srq);
  owner->srq = nullptr;
}

}  // extern "C"
