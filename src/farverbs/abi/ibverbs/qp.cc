// Queue pairs: ibv_create_qp(3), ibv_modify_qp(3), ibv_query_qp(3), ibv_destroy_qp(3).
#include "farverbs/abi/ibverbs/qp.h"

#include <algorithm>

#include "farverbs/abi/ibverbs/address.h"
#include "farverbs/abi/ibverbs/devices.h"
#include "farverbs/abi/ibverbs/errors.h"
#include "farverbs/abi/ibverbs/events.h"
#include "farverbs/abi/ibverbs/versions.h"

namespace farverbs::abi {
namespace {

// Programs exist that ask for no inline data and send some (rdma_xclient).
constexpr uint32_t kLeastInline = 256;

static_assert(static_cast<int>(model::QpState::kReset) == IBV_QPS_RESET &&
              static_cast<int>(model::QpState::kInit) == IBV_QPS_INIT &&
              static_cast<int>(model::QpState::kRtr) == IBV_QPS_RTR &&
              static_cast<int>(model::QpState::kRts) == IBV_QPS_RTS &&
              static_cast<int>(model::QpState::kSqd) == IBV_QPS_SQD &&
              static_cast<int>(model::QpState::kSqe) == IBV_QPS_SQE &&
              static_cast<int>(model::QpState::kErr) == IBV_QPS_ERR);
constexpr bool same(model::QpAttributeMask ours, ibv_qp_attr_mask theirs) {
  return static_cast<unsigned>(ours) == static_cast<unsigned>(theirs);
}
static_assert(same(model::kAttrState, IBV_QP_STATE) && same(model::kAttrAddressVector, IBV_QP_AV) &&
              same(model::kAttrSqPsn, IBV_QP_SQ_PSN) &&
              same(model::kAttrCapabilities, IBV_QP_CAP) &&
              same(model::kAttrDestinationQpn, IBV_QP_DEST_QPN));

// What a connection manager sends with; verbs.h has no name for the kernel's number.
constexpr int kGsi = 1;

Result<verbs::QpType> type_of(ibv_qp_type type) {
  if (static_cast<int>(type) == kGsi) return verbs::QpType::kGsi;
  switch (type) {
    case IBV_QPT_RC:
      return verbs::QpType::kRc;
    case IBV_QPT_UC:
      return verbs::QpType::kUc;
    case IBV_QPT_UD:
      return verbs::QpType::kUd;
    case IBV_QPT_RAW_PACKET:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
    case IBV_QPT_DRIVER:
      break;
  }
  return Error{EOPNOTSUPP,
               "qp_type " + std::to_string(type) + " is not offered; RC, UC and UD are"};
}

// Programs choose their timeouts for hardware, which answers at once; a peer's process may have to
// wait for a processor. The interval may be up to four times what its code says (IBTA vol. 1
// C9-141), so short ones are taken for that.
uint8_t patient(uint8_t timeout) {
  constexpr uint8_t kLong = 16;  // 268 ms
  return timeout == 0 || timeout >= kLong ? timeout : std::min<uint8_t>(timeout + 2, kLong);
}

verbs::QpCapabilities granted(const ibv_qp_cap& asked, bool has_srq) {
  verbs::QpCapabilities caps;
  caps.max_send_wr = asked.max_send_wr;
  caps.max_recv_wr = has_srq ? 0 : asked.max_recv_wr;
  caps.max_send_sge = std::max(asked.max_send_sge, 1u);
  caps.max_recv_sge = std::max(asked.max_recv_sge, 1u);
  caps.max_inline_data = std::max(asked.max_inline_data, kLeastInline);
  return caps;
}

ibv_qp_cap to_public(const verbs::QpCapabilities& caps) {
  return {caps.max_send_wr, caps.max_recv_wr, caps.max_send_sge, caps.max_recv_sge,
          caps.max_inline_data};
}

// Both queues may be the same.
void count_users(const ibv_qp_init_attr& init, Pd& pd, int change) {
  pd.users += change;
  of(init.send_cq).users += change;
  of(init.recv_cq).users += change;
  if (init.srq != nullptr) of(init.srq).users += change;
}

Result<void> check_queues(const ibv_pd* pd, const ibv_qp_init_attr& init) {
  if (!is_alive(Kind::kPd, pd)) return invalid("pd is not alive");
  if (!is_alive(Kind::kCq, init.send_cq)) return invalid("send_cq is not alive");
  if (!is_alive(Kind::kCq, init.recv_cq)) return invalid("recv_cq is not alive");
  if (init.srq != nullptr && !is_alive(Kind::kSrq, init.srq)) return invalid("srq is not alive");
  const ibv_context* context = pd->context;
  if (init.send_cq->context != context || init.recv_cq->context != context ||
      (init.srq != nullptr && init.srq->context != context)) {
    return invalid("pd, send_cq, recv_cq and srq must be of one context");
  }
  return {};
}

Result<verbs::QpAttributes> to_attributes(const Qp& qp, const ibv_qp_attr& attr, int mask) {
  verbs::QpAttributes a;
  if ((mask & IBV_QP_STATE) != 0) {
    if (attr.qp_state > IBV_QPS_ERR) return invalid("qp_state is unknown");
    a.state = static_cast<verbs::QpState>(attr.qp_state);
  }
  if ((mask & IBV_QP_CUR_STATE) != 0) {
    if (attr.cur_qp_state > IBV_QPS_ERR) return invalid("cur_qp_state is unknown");
    a.current_state = static_cast<verbs::QpState>(attr.cur_qp_state);
  }
  if ((mask & IBV_QP_AV) != 0) {
    FV_ASSIGN(a.address_vector, to_vector(*qp.owner, attr.ah_attr));
  }
  a.enable_sqd_notify = attr.en_sqd_async_notify != 0;
  // Of the rights of a region, programs give a QP these too, where they mean nothing.
  constexpr unsigned kOfRegionsOnly = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB |
                                      IBV_ACCESS_ZERO_BASED | IBV_ACCESS_RELAXED_ORDERING;
  a.access_flags = attr.qp_access_flags & ~kOfRegionsOnly;
  a.pkey_index = attr.pkey_index;
  a.port_number = attr.port_num;
  a.qkey = attr.qkey;
  a.path_mtu = static_cast<verbs::PathMtu>(attr.path_mtu);
  a.timeout = patient(attr.timeout);
  a.retry_count = attr.retry_cnt;
  a.rnr_retry = attr.rnr_retry;
  a.min_rnr_timer = attr.min_rnr_timer;
  a.max_rd_atomic = attr.max_rd_atomic;
  a.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  a.rq_psn = Psn(attr.rq_psn);
  a.sq_psn = Psn(attr.sq_psn);
  a.destination_qpn = Qpn(attr.dest_qp_num);
  a.capabilities = qp.pair->query().capabilities;
  return a;
}

}  // namespace

Result<Qp*> create_qp(ibv_pd* pd, ibv_qp_init_attr& init) {
  FV_TRY(check_queues(pd, init));
  FV_ASSIGN(const verbs::QpType type, type_of(init.qp_type));
  auto qp = std::make_unique<Qp>();
  ibv_qp& shown = *to_public(*qp);
  qp->owner = of(pd).owner;
  qp->element.object = &shown;
  verbs::QueuePairInit wanted;
  wanted.type = type;
  wanted.send_cq = of(init.send_cq).queue.get();
  wanted.receive_cq = of(init.recv_cq).queue.get();
  wanted.srq = init.srq != nullptr ? of(init.srq).queue.get() : nullptr;
  wanted.capabilities = granted(init.cap, init.srq != nullptr);
  wanted.signal_all = init.sq_sig_all != 0;
  wanted.context = &qp->element;
  wanted.events = &qp->owner->async;
  FV_ASSIGN(verbs::QueuePair pair, of(pd).domain->create_qp(wanted));
  // Datagrams come to whatever address their sender knows.
  if (type == verbs::QpType::kUd || type == verbs::QpType::kGsi) use_all_gids(*qp->owner);
  init.cap = to_public(wanted.capabilities);
  shown.context = pd->context;
  shown.qp_context = init.qp_context;
  shown.pd = pd;
  shown.send_cq = init.send_cq;
  shown.recv_cq = init.recv_cq;
  shown.srq = init.srq;
  shown.handle = shown.qp_num = pair.qpn().value();
  shown.state = IBV_QPS_RESET;
  shown.qp_type = init.qp_type;
  ::pthread_mutex_init(&shown.mutex, nullptr);
  ::pthread_cond_init(&shown.cond, nullptr);
  qp->init = init;
  qp->pair = std::make_unique<verbs::QueuePair>(std::move(pair));
  count_users(init, of(pd), 1);
  add_handle(Kind::kQp, &shown);
  return qp.release();
}

}  // namespace farverbs::abi

using namespace farverbs;
using namespace farverbs::abi;

extern "C" {

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  if (init == nullptr) return refuse_null("ibv_create_qp", invalid("qp_init_attr is null"));
  auto qp = abi::create_qp(pd, *init);
  if (!qp.ok()) return refuse_null("ibv_create_qp", qp.error());
  return to_public(**qp);
}

int ibv_modify_qp(ibv_qp* shown, ibv_qp_attr* attr, int mask) {
  if (attr == nullptr || !is_alive(Kind::kQp, shown)) {
    return refuse("ibv_modify_qp", invalid("qp is not alive, or attr is missing"));
  }
  Qp& qp = of(shown);
  auto attributes = to_attributes(qp, *attr, mask);
  if (!attributes.ok()) return refuse("ibv_modify_qp", attributes.error());
  auto modified = qp.pair->modify(*attributes, static_cast<uint32_t>(mask));
  if (!modified.ok()) return refuse("ibv_modify_qp", modified.error());
  if ((mask & IBV_QP_TIMEOUT) != 0) qp.timeout = attr->timeout;
  if ((mask & IBV_QP_STATE) != 0) shown->state = attr->qp_state;
  return 0;
}

int ibv_query_qp(ibv_qp* shown, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) {
  if (attr == nullptr || init == nullptr || !is_alive(Kind::kQp, shown)) {
    return refuse("ibv_query_qp", invalid("qp is not alive, or attr or init_attr is missing"));
  }
  const Qp& qp = of(shown);
  const verbs::QpAttributes a = qp.pair->query();
  *attr = {};
  attr->qp_state = attr->cur_qp_state = static_cast<ibv_qp_state>(a.state);
  attr->path_mtu = static_cast<ibv_mtu>(a.path_mtu);
  attr->path_mig_state = IBV_MIG_MIGRATED;
  attr->qkey = a.qkey;
  attr->rq_psn = a.rq_psn.value();
  attr->sq_psn = a.sq_psn.value();
  attr->dest_qp_num = a.destination_qpn.value();
  attr->qp_access_flags = a.access_flags;
  attr->cap = qp.init.cap;
  attr->ah_attr = to_public(a.address_vector);
  attr->pkey_index = a.pkey_index;
  attr->en_sqd_async_notify = a.enable_sqd_notify ? 1 : 0;
  attr->max_rd_atomic = a.max_rd_atomic;
  attr->max_dest_rd_atomic = a.max_dest_rd_atomic;
  attr->min_rnr_timer = a.min_rnr_timer;
  attr->port_num = a.port_number;
  attr->timeout = qp.timeout;
  attr->retry_cnt = a.retry_count;
  attr->rnr_retry = a.rnr_retry;
  *init = qp.init;
  shown->state = attr->qp_state;
  return 0;
}

int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, uint32_t) { return 0; }

int ibv_destroy_qp(ibv_qp* shown) {
  if (!is_alive(Kind::kQp, shown)) return refuse("ibv_destroy_qp", invalid("qp is not alive"));
  Qp& qp = of(shown);
  if (!remove_handle(Kind::kQp, shown)) return EINVAL;
  // No packet can raise an event of it any more once the pair has gone.
  qp.pair.reset();
  const uint32_t taken = qp.owner->async.end(qp.element);
  wait_for_acknowledgements(shown->mutex, shown->cond, shown->events_completed, taken);
  count_users(qp.init, of(shown->pd), -1);
  delete &qp;
  return 0;
}

// Extended connection establishment: vendors' hints, of which there are none.
int ibv_query_ece(ibv_qp* qp, ibv_ece* ece) {
  if (ece == nullptr || !is_alive(Kind::kQp, qp)) return EINVAL;
  *ece = {};
  return 0;
}

int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) {
  if (ece == nullptr || !is_alive(Kind::kQp, qp)) return EINVAL;
  if (ece->comp_mask != 0) return EINVAL;
  return ece->vendor_id == 0 && ece->options == 0 ? 0 : EOPNOTSUPP;
}

}  // extern "C"

FV_DEFAULT_VERSION(ibv_create_qp);
FV_DEFAULT_VERSION(ibv_destroy_qp);
FV_DEFAULT_VERSION(ibv_modify_qp);
FV_DEFAULT_VERSION(ibv_query_qp);
