// Memory regions: what registering device memory shares with the plain calls.
#pragma once

#include "farverbs/abi/ibverbs/objects.h"

namespace farverbs::abi {

// Null with errno set; `call` is named in the reason.
ibv_mr* register_mr(const char* call, ibv_pd* shown_pd, void* address, size_t length, uint64_t iova,
                    unsigned access);

}  // namespace farverbs::abi
