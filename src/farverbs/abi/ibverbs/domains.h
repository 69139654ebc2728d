// Parent and thread domains, device memory, advice: operations of a context that the inline
// functions of verbs.h call.
#pragma once

#include "farverbs/abi/ibverbs/objects.h"

namespace farverbs::abi {

struct Td : ibv_td {
  ContextRef owner;
  std::atomic<int> users{0};
};

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* init);
int dealloc_td(ibv_td* td);
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr);

// Of this process like all other memory, but counted.
inline constexpr uint64_t kDeviceMemoryBytes = uint64_t{256} << 10;
ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr);
int free_dm(ibv_dm* dm);
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length, unsigned access);

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* list,
              uint32_t count);

}  // namespace farverbs::abi
