// Queue pairs: what the plain and the extended calls and a context's operations share.
#pragma once

#include "farverbs/abi/ibverbs/objects.h"

namespace farverbs::abi {

Result<Qp*> create_qp(ibv_pd* pd, ibv_qp_init_attr& init);
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* init);

// Operations of a context.
int post_send(ibv_qp* qp, ibv_send_wr* requests, ibv_send_wr** bad);
int post_recv(ibv_qp* qp, ibv_recv_wr* requests, ibv_recv_wr** bad);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* requests, ibv_recv_wr** bad);

}  // namespace farverbs::abi
