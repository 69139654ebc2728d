// Send requests of programs (struct ibv_send_wr) as those of the verbs room.
#pragma once

#include "farverbs/abi/ibverbs/objects.h"

namespace farverbs::abi {

static_assert(sizeof(ibv_sge) == sizeof(verbs::ScatterGatherElement) &&
                  offsetof(ibv_sge, addr) == offsetof(verbs::ScatterGatherElement, address) &&
                  offsetof(ibv_sge, length) == offsetof(verbs::ScatterGatherElement, length) &&
                  offsetof(ibv_sge, lkey) == offsetof(verbs::ScatterGatherElement, lkey),
              "scatter-gather lists are handed on as they are");
static_assert(IBV_SEND_FENCE == static_cast<int>(model::kFence) &&
              IBV_SEND_SIGNALED == static_cast<int>(model::kSignaled) &&
              IBV_SEND_SOLICITED == static_cast<int>(model::kSolicited) &&
              IBV_SEND_INLINE == static_cast<int>(model::kInline));

// What the result points to belongs to the request. Gives an errno value.
int translate_send(ibv_qp_type type, const ibv_send_wr& from, verbs::SendWorkRequest& to);
int translate_bind(ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info& info,
                   verbs::SendWorkRequest& to);

}  // namespace farverbs::abi
