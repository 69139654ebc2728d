// Protection domains and memory regions: ibv_alloc_pd(3), ibv_reg_mr(3), ibv_rereg_mr(3).
#include "farverbs/abi/ibverbs/memory.h"

#include <cstdint>

#include "farverbs/abi/ibverbs/errors.h"
#include "farverbs/abi/ibverbs/versions.h"

namespace farverbs::abi {
namespace {

constexpr unsigned kOfferedAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                    IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED;
// Hints that change nothing here: nothing is pinned, so pages need not be huge nor stay, and order
// is never relaxed further than it is.
constexpr unsigned kHints = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;

// Of a process, on machines of 48-bit addresses; the first page is never mapped.
constexpr uint64_t kFirstAddress = 4096;
constexpr uint64_t kEndOfAddresses = uint64_t{1} << 47;

Result<uint32_t> rights_of(unsigned access) {
  if ((access & ~(kOfferedAccess | kHints)) != 0) {
    return invalid("access has unknown bits, got " + std::to_string(access));
  }
  return access & kOfferedAccess;
}

Result<Pd*> alive(ibv_pd* pd) {
  if (!is_alive(Kind::kPd, pd)) return invalid("pd is not a live protection domain");
  return &of(pd);
}

void show(Mr& mr) {
  mr.lkey = mr.region->lkey().value();
  mr.rkey = mr.region->rkey().value();
  mr.handle = mr.lkey;
}

Result<std::unique_ptr<verbs::MemoryRegion>> make_region(Pd& pd, void* address, size_t length,
                                                         uint64_t iova, unsigned access) {
  FV_ASSIGN(const uint32_t rights, rights_of(access));
  // Implicit: all memory that there is or will be, named by its addresses. Nothing is pinned, so
  // it is a region like any other; what is not mapped when it is used fails the request.
  if (address == nullptr && length == SIZE_MAX && (access & IBV_ACCESS_ON_DEMAND) != 0) {
    address = reinterpret_cast<void*>(kFirstAddress);
    length = kEndOfAddresses - kFirstAddress;
    iova = kFirstAddress;
  }
  FV_ASSIGN(verbs::MemoryRegion region, pd.domain->register_memory(address, length, rights, iova));
  return std::make_unique<verbs::MemoryRegion>(std::move(region));
}

}  // namespace

ibv_mr* register_mr(const char* call, ibv_pd* shown_pd, void* address, size_t length, uint64_t iova,
                    unsigned access) {
  auto pd = alive(shown_pd);
  if (!pd.ok()) return refuse_null(call, pd.error());
  auto region = make_region(**pd, address, length, iova, access);
  if (!region.ok()) return refuse_null(call, region.error());
  auto* mr = new Mr;
  mr->context = shown_pd->context;
  mr->pd = shown_pd;
  mr->addr = address;
  mr->length = length;
  mr->owner = (*pd)->owner;
  mr->region = std::move(*region);
  mr->access = access;
  show(*mr);
  ++(*pd)->users;
  add_handle(Kind::kMr, static_cast<ibv_mr*>(mr));
  return mr;
}

}  // namespace farverbs::abi

using namespace farverbs;
using namespace farverbs::abi;

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

extern "C" {

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  if (!is_alive(Kind::kContext, context)) {
    return refuse_null("ibv_alloc_pd", invalid("context is not that of an open device"));
  }
  Context& owner = of(context);
  auto domain = owner.soft_nic->allocate_pd();
  if (!domain.ok()) return refuse_null("ibv_alloc_pd", domain.error());
  auto* pd = new Pd;
  pd->context = context;
  pd->owner = owner.self;
  pd->domain = std::make_shared<verbs::ProtectionDomain>(std::move(*domain));
  add_handle(Kind::kPd, static_cast<ibv_pd*>(pd));
  return pd;
}

int ibv_dealloc_pd(ibv_pd* pd) {
  if (!is_alive(Kind::kPd, pd)) {
    return refuse("ibv_dealloc_pd", invalid("pd is not a live protection domain"));
  }
  if (const int users = of(pd).users.load(); users != 0) {
    return refuse("ibv_dealloc_pd", Error{EBUSY, "pd is used by " + std::to_string(users) +
                                                     " objects; destroy them first"});
  }
  if (!remove_handle(Kind::kPd, pd)) return EINVAL;
  if (of(pd).parent != nullptr) --of(pd).parent->users;
  if (of(pd).thread_users != nullptr) --*of(pd).thread_users;
  delete &of(pd);
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t length, int access) {
  return register_mr("ibv_reg_mr", pd, address, length, reinterpret_cast<uint64_t>(address),
                     static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, size_t length, uint64_t iova, int access) {
  return register_mr("ibv_reg_mr_iova", pd, address, length, iova, static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t length, uint64_t iova,
                         unsigned int access) {
  return register_mr("ibv_reg_mr", pd, address, length, iova, access);
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd*, uint64_t, size_t, uint64_t, int, int) {
  return refuse_null("ibv_reg_dmabuf_mr",
                     Error{EOPNOTSUPP, "memory of other devices cannot be registered"});
}

int ibv_rereg_mr(ibv_mr* shown, int flags, ibv_pd* pd, void* address, size_t length, int access) {
  const auto fail = [](const Error& error) {
    errno = refuse("ibv_rereg_mr", error);
    return static_cast<int>(IBV_REREG_MR_ERR_INPUT);
  };
  if (!is_alive(Kind::kMr, shown)) return fail(invalid("mr is not a live memory region"));
  if (flags == 0 || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0) {
    return fail(invalid("flags must name what changes, got " + std::to_string(flags)));
  }
  Mr& mr = of(shown);
  ibv_pd* new_pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0 ? pd : mr.pd;
  auto domain = alive(new_pd);
  if (!domain.ok()) return fail(domain.error());
  if (new_pd->context != mr.context) return fail(invalid("pd is another device's"));
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const unsigned rights =
      (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? static_cast<unsigned>(access) : mr.access;
  void* new_address = moves ? address : mr.addr;
  const size_t new_length = moves ? length : mr.length;
  const uint64_t iova = moves ? reinterpret_cast<uint64_t>(address) : mr.region->address();
  if (flags == IBV_REREG_MR_CHANGE_ACCESS) {  // peers go on using its keys
    auto offered = rights_of(rights);
    if (!offered.ok()) return fail(offered.error());
    if (auto changed = mr.region->change_access(*offered); !changed.ok()) {
      return fail(changed.error());
    }
    mr.access = rights;
    return 0;
  }
  // The new region first, so that the old one is as it was if this fails. Its keys are new, too.
  auto region = make_region(**domain, new_address, new_length, iova, rights);
  if (!region.ok()) return fail(region.error());
  if (auto gone = mr.region->deregister(); !gone.ok()) return fail(gone.error());
  mr.region = std::move(*region);
  if (new_pd != mr.pd) {
    --of(mr.pd).users;
    ++of(new_pd).users;
  }
  mr.pd = new_pd;
  mr.addr = new_address;
  mr.length = new_length;
  mr.access = rights;
  show(mr);
  return 0;
}

int ibv_dereg_mr(ibv_mr* shown) {
  if (!is_alive(Kind::kMr, shown)) {
    return refuse("ibv_dereg_mr", invalid("mr is not a live memory region"));
  }
  Mr& mr = of(shown);
  if (auto gone = mr.region->deregister(); !gone.ok()) return refuse("ibv_dereg_mr", gone.error());
  if (!remove_handle(Kind::kMr, shown)) return EINVAL;
  --of(mr.pd).users;
  if (mr.device_memory != nullptr) --*mr.device_memory;
  delete &mr;
  return 0;
}

ibv_pd* ibv_import_pd(ibv_context*, uint32_t) {
  return refuse_null("ibv_import_pd", Error{EOPNOTSUPP, "objects are not shared by processes"});
}

void ibv_unimport_pd(ibv_pd*) {}

ibv_mr* ibv_import_mr(ibv_pd*, uint32_t) {
  return refuse_null("ibv_import_mr", Error{EOPNOTSUPP, "objects are not shared by processes"});
}

void ibv_unimport_mr(ibv_mr*) {}

ibv_dm* ibv_import_dm(ibv_context*, uint32_t) {
  return refuse_null("ibv_import_dm", Error{EOPNOTSUPP, "objects are not shared by processes"});
}

void ibv_unimport_dm(ibv_dm*) {}

}  // extern "C"

FV_DEFAULT_VERSION(ibv_alloc_pd);
FV_DEFAULT_VERSION(ibv_dealloc_pd);
FV_DEFAULT_VERSION(ibv_dereg_mr);
FV_DEFAULT_VERSION(ibv_reg_mr);
