// Memory windows, as the operations of a context that the inline functions of verbs.h call.
#pragma once

#include "farverbs/abi/ibverbs/objects.h"

namespace farverbs::abi {

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);
int dealloc_mw(ibv_mw* mw);

}  // namespace farverbs::abi
