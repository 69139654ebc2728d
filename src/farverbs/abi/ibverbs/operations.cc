// The operations of a context, which the inline functions of verbs.h call. What is not offered
// stays null: those functions answer EOPNOTSUPP then.
#include "farverbs/abi/ibverbs/attributes.h"
#include "farverbs/abi/ibverbs/cq.h"
#include "farverbs/abi/ibverbs/devices.h"
#include "farverbs/abi/ibverbs/domains.h"
#include "farverbs/abi/ibverbs/qp.h"
#include "farverbs/abi/ibverbs/windows.h"

namespace farverbs::abi {
namespace {

// In the child of a fork: what the parent made cannot be used there.
int refuse_poll(ibv_cq*, int, ibv_wc*) { return -1; }
int refuse_notify(ibv_cq*, int) { return EINVAL; }
int refuse_send(ibv_qp*, ibv_send_wr* requests, ibv_send_wr** bad) {
  if (bad != nullptr) *bad = requests;
  return EINVAL;
}
int refuse_recv(ibv_qp*, ibv_recv_wr* requests, ibv_recv_wr** bad) {
  if (bad != nullptr) *bad = requests;
  return EINVAL;
}
int refuse_srq_recv(ibv_srq*, ibv_recv_wr* requests, ibv_recv_wr** bad) {
  if (bad != nullptr) *bad = requests;
  return EINVAL;
}
int refuse_bind(ibv_qp*, ibv_mw*, ibv_mw_bind*) { return EINVAL; }
int refuse_dealloc(ibv_mw*) { return EINVAL; }

}  // namespace

void set_operations(Context& context) {
  ibv_context_ops& ops = context.context.ops;
  ops.poll_cq = poll_cq;
  ops.req_notify_cq = req_notify_cq;
  ops.post_send = post_send;
  ops.post_recv = post_recv;
  ops.post_srq_recv = post_srq_recv;
  ops.alloc_mw = alloc_mw;
  ops.bind_mw = bind_mw;
  ops.dealloc_mw = dealloc_mw;
  context.query_port = query_port;
  context.query_device_ex = query_device_ex;
  context.create_cq_ex = create_cq_ex;
  context.query_rt_values = query_rt_values;
  context.create_qp_ex = create_qp_ex;
  context.alloc_td = alloc_td;
  context.dealloc_td = dealloc_td;
  context.alloc_parent_domain = alloc_parent_domain;
  context.alloc_dm = alloc_dm;
  context.free_dm = free_dm;
  context.reg_dm_mr = reg_dm_mr;
  context.advise_mr = advise_mr;
}

void revoke_operations(Context& context) {
  ibv_context_ops& ops = context.context.ops;
  ops = {};
  ops.poll_cq = refuse_poll;
  ops.req_notify_cq = refuse_notify;
  ops.post_send = refuse_send;
  ops.post_recv = refuse_recv;
  ops.post_srq_recv = refuse_srq_recv;
  ops.bind_mw = refuse_bind;
  ops.dealloc_mw = refuse_dealloc;
  context.sz = 0;  // no extended operations
}

}  // namespace farverbs::abi
