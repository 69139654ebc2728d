// Device memory (ibv_alloc_dm(3)): memory that is named by offsets and reached by copies of whole
// 32-bit words.
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "farverbs/abi/ibverbs/domains.h"
#include "farverbs/abi/ibverbs/errors.h"
#include "farverbs/abi/ibverbs/memory.h"

namespace farverbs::abi {
namespace {

struct Dm : ibv_dm {
  ContextRef owner;
  std::unique_ptr<std::byte, void (*)(void*)> memory{nullptr, std::free};
  uint64_t length = 0;
  std::shared_ptr<std::atomic<int>> users = std::make_shared<std::atomic<int>>(0);
};

std::atomic<uint64_t> allocated{0};

bool inside(const Dm& dm, uint64_t offset, uint64_t length) {
  return offset <= dm.length && length <= dm.length - offset;
}

bool is_reachable(const Dm& dm, uint64_t offset, uint64_t length) {
  return inside(dm, offset, length) && offset % 4 == 0 && length % 4 == 0;
}

int memcpy_to_dm(ibv_dm* shown, uint64_t offset, const void* from, size_t length) {
  const auto& dm = *static_cast<Dm*>(shown);
  if (!is_reachable(dm, offset, length)) return EINVAL;
  std::memcpy(dm.memory.get() + offset, from, length);
  return 0;
}

int memcpy_from_dm(void* to, ibv_dm* shown, uint64_t offset, size_t length) {
  const auto& dm = *static_cast<Dm*>(shown);
  if (!is_reachable(dm, offset, length)) return EINVAL;
  std::memcpy(to, dm.memory.get() + offset, length);
  return 0;
}

}  // namespace

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr) {
  constexpr const char* kCall = "ibv_alloc_dm";
  if (attr == nullptr || !is_alive(Kind::kContext, context)) {
    return refuse_null(kCall, invalid("context or attr is missing"));
  }
  if (attr->comp_mask != 0 || attr->length == 0 || attr->log_align_req > 12) {
    return refuse_null(kCall, invalid("length must not be 0, log_align_req at most 12"));
  }
  if (attr->length > kDeviceMemoryBytes ||
      allocated.fetch_add(attr->length) > kDeviceMemoryBytes - attr->length) {
    if (attr->length <= kDeviceMemoryBytes) allocated -= attr->length;
    return refuse_null(kCall, Error{ENOMEM, "there are " + std::to_string(kDeviceMemoryBytes) +
                                                " bytes of device memory in all"});
  }
  constexpr size_t kPage = 4096;
  auto dm = std::make_unique<Dm>();
  const size_t rounded = (attr->length + kPage - 1) & ~(kPage - 1);
  dm->memory.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, rounded)));
  if (dm->memory == nullptr) {
    allocated -= attr->length;
    return refuse_null(kCall, Error{ENOMEM, "no memory"});
  }
  std::memset(dm->memory.get(), 0, rounded);
  dm->context = context;
  dm->memcpy_to_dm = memcpy_to_dm;
  dm->memcpy_from_dm = memcpy_from_dm;
  dm->comp_mask = 0;
  dm->handle = 0;
  dm->owner = of(context).self;
  dm->length = attr->length;
  add_handle(Kind::kDm, static_cast<ibv_dm*>(dm.get()));
  return dm.release();
}

int free_dm(ibv_dm* shown) {
  if (!is_alive(Kind::kDm, shown)) return refuse("ibv_free_dm", invalid("dm is not alive"));
  auto* dm = static_cast<Dm*>(shown);
  if (dm->users->load() != 0) {
    return refuse("ibv_free_dm", Error{EBUSY, "memory regions lie in it; deregister them first"});
  }
  if (!remove_handle(Kind::kDm, shown)) return EINVAL;
  allocated -= dm->length;
  delete dm;
  return 0;
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* shown, uint64_t offset, size_t length, unsigned access) {
  constexpr const char* kCall = "ibv_reg_dm_mr";
  if (!is_alive(Kind::kDm, shown)) return refuse_null(kCall, invalid("dm is not alive"));
  auto& dm = *static_cast<Dm*>(shown);
  if (!inside(dm, offset, length)) {
    return refuse_null(kCall, invalid("offset and length are not inside the device memory"));
  }
  if ((access & IBV_ACCESS_ZERO_BASED) == 0) {
    return refuse_null(kCall, invalid("access must have IBV_ACCESS_ZERO_BASED: device memory has "
                                      "no addresses but offsets"));
  }
  ibv_mr* mr = register_mr(kCall, pd, dm.memory.get() + offset, length, 0, access);
  if (mr == nullptr) return nullptr;
  mr->addr = nullptr;
  of(mr).device_memory = dm.users;
  ++*dm.users;
  return mr;
}

}  // namespace farverbs::abi
