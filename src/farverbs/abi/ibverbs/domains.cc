// ibv_alloc_td(3), ibv_alloc_parent_domain(3), ibv_advise_mr(3).
#include "farverbs/abi/ibverbs/domains.h"

#include <sys/mman.h>
#include <unistd.h>

#include "farverbs/abi/ibverbs/errors.h"

namespace farverbs::abi {

// A promise that objects made in it are used by one thread; nothing is gained from it here.
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* init) {
  if (!is_alive(Kind::kContext, context)) {
    return refuse_null("ibv_alloc_td", invalid("context is not that of an open device"));
  }
  if (init == nullptr || init->comp_mask != 0) {
    return refuse_null("ibv_alloc_td", invalid("init_attr is missing, or has unknown bits"));
  }
  auto* td = new Td;
  td->context = context;
  td->owner = of(context).self;
  add_handle(Kind::kTd, static_cast<ibv_td*>(td));
  return td;
}

int dealloc_td(ibv_td* td) {
  if (!is_alive(Kind::kTd, td)) return refuse("ibv_dealloc_td", invalid("td is not alive"));
  if (static_cast<Td*>(td)->users.load() != 0) {
    return refuse("ibv_dealloc_td", Error{EBUSY, "parent domains use the thread domain"});
  }
  if (!remove_handle(Kind::kTd, td)) return EINVAL;
  delete static_cast<Td*>(td);
  return 0;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
  constexpr const char* kCall = "ibv_alloc_parent_domain";
  if (attr == nullptr || !is_alive(Kind::kContext, context)) {
    return refuse_null(kCall, invalid("context or attr is missing"));
  }
  if (!is_alive(Kind::kPd, attr->pd) || attr->pd->context != context ||
      of(attr->pd).parent != nullptr) {
    return refuse_null(kCall, invalid("pd must be a plain protection domain of the context"));
  }
  if (attr->td != nullptr && !is_alive(Kind::kTd, attr->td)) {
    return refuse_null(kCall, invalid("td is not alive"));
  }
  constexpr uint32_t kKnown = IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  if ((attr->comp_mask & ~kKnown) != 0) {
    return refuse_null(kCall, Error{EOPNOTSUPP, "allocators are not offered: queues are ours"});
  }
  Pd& parent = of(attr->pd);
  auto* pd = new Pd;
  pd->context = context;
  pd->handle = parent.handle;
  pd->owner = parent.owner;
  pd->domain = parent.domain;
  pd->parent = &parent;
  ++parent.users;
  if (attr->td != nullptr) {
    pd->thread_users = &static_cast<Td*>(attr->td)->users;
    ++*pd->thread_users;
  }
  add_handle(Kind::kPd, static_cast<ibv_pd*>(pd));
  return pd;
}

// Nothing has to be faulted in before it is used; what may still be on a disk is asked for.
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* list,
              uint32_t count) {
  if (!is_alive(Kind::kPd, pd) || (list == nullptr && count != 0)) return EINVAL;
  if (advice > IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return EOPNOTSUPP;
  if ((flags & ~static_cast<uint32_t>(IBV_ADVISE_MR_FLAG_FLUSH)) != 0) return EINVAL;
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t begin = list[i].addr & ~(page - 1);
    const uint64_t length = list[i].addr + list[i].length - begin;
    if (::madvise(reinterpret_cast<void*>(begin), length, MADV_WILLNEED) != 0 &&
        (errno == ENOMEM || errno == EFAULT)) {
      return EFAULT;
    }
  }
  return 0;
}

}  // namespace farverbs::abi
