// Identifiers, and the devices that there are: rdma_create_id(3), rdma_destroy_id(3),
// rdma_get_devices(3).
#include <cerrno>
#include <cstdlib>

#include "farverbs/abi/rdmacm/library.h"

using namespace farverbs;
using namespace farverbs::rdmacm;

namespace farverbs::rdmacm {

int create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space ps,
              ibv_qp_type qp_type) {
  if (id == nullptr) return fail(EINVAL);
  Library& library = Library::get();
  const std::lock_guard lock(library.mutex);
  if (channel != nullptr && !library.alive(channel)) return fail(EINVAL);
  if (const auto agent = library.agent(); !agent.ok()) return fail(agent.error());
  Channel* used = channel != nullptr ? of(channel) : library.new_channel();
  if (used == nullptr) return -1;
  Id* made = library.new_id(used, context, ps, qp_type);
  made->synchronous = channel == nullptr;
  *id = made;
  return 0;
}

}  // namespace farverbs::rdmacm

extern "C" {

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                   rdma_port_space ps) {
  switch (ps) {
    case RDMA_PS_TCP:
    case RDMA_PS_IB:
      return create_id(channel, id, context, ps, IBV_QPT_RC);
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB:
      return create_id(channel, id, context, ps, IBV_QPT_UD);
  }
  return fail(EINVAL);
}

int rdma_destroy_id(rdma_cm_id* id) {
  Library& library = Library::get();
  std::unique_lock lock(library.mutex);
  if (!library.alive(id)) return fail(EINVAL);
  Id* gone = of(id);
  while (!gone->groups.empty()) {
    const std::shared_ptr<Group> group = gone->groups.front();
    gone->groups.pop_front();
    if (group->attached && gone->qp != nullptr) ibv_detach_mcast(gone->qp, &group->gid, 0);
  }
  if (gone->synchronous && gone->event != nullptr && library.alive(gone->event)) {
    library.acknowledge(of(gone->event));
    gone->event = nullptr;
  }
  library.delete_id(lock, gone);
  return 0;
}

ibv_context** rdma_get_devices(int* num_devices) {
  Library& library = Library::get();
  const std::lock_guard lock(library.mutex);
  library.nics.open_all();
  const auto& nics = library.nics.all();
  auto** list = static_cast<ibv_context**>(std::calloc(nics.size() + 1, sizeof(ibv_context*)));
  if (list == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  for (size_t i = 0; i < nics.size(); ++i) list[i] = nics[i]->context;
  if (num_devices != nullptr) *num_devices = static_cast<int>(nics.size());
  if (nics.empty()) {
    std::free(list);
    errno = ENODEV;
    return nullptr;
  }
  return list;
}

void rdma_free_devices(ibv_context** list) { std::free(list); }

}  // extern "C"
