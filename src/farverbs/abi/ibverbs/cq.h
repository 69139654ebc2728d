// Completion queues, plain: what the extended ones (cq_ex.cc) and a context's operations share.
#pragma once

#include "farverbs/abi/ibverbs/objects.h"

namespace farverbs::abi {

Result<Cq*> create_cq(ibv_context* context, uint32_t capacity, void* cq_context,
                      ibv_comp_channel* channel, uint32_t vector);
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* init);

// Operations of a context.
int poll_cq(ibv_cq* cq, int count, ibv_wc* completions);
int req_notify_cq(ibv_cq* cq, int solicited_only);
int query_rt_values(ibv_context* context, ibv_values_ex* values);

}  // namespace farverbs::abi
