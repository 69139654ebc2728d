// Multicast groups of datagram identifiers: rdma_join_multicast(3), rdma_leave_multicast(3). A
// group between IP addresses is joined by the device when the QP is attached (IGMP, MLD); nobody
// else is asked.
#include <cerrno>
#include <cstring>

#include "farverbs/abi/rdmacm/library.h"

namespace farverbs::rdmacm {
namespace {

constexpr uint32_t kMulticastQpn = 0xFF'FFFF;

int join(rdma_cm_id* id, const sockaddr* address, void* context) {
  const auto group_address = to_endpoint(address);
  if (!group_address) return fail(EINVAL);
  Library& library = Library::get();
  {
    const std::lock_guard lock(library.mutex);
    if (!library.alive(id)) return fail(EINVAL);
    Id& member = *of(id);
    if (member.nic == nullptr || !member.is_datagram() || !group_address->address.is_multicast()) {
      return fail(EINVAL);
    }
    auto group = std::make_shared<Group>();
    group->address = to_sockaddr(*group_address);
    const Gid gid = group_address->address.to_gid();
    std::memcpy(group->gid.raw, gid.data(), gid.size());
    group->context = context;
    member.groups.push_back(group);
    Event* event = library.push(member, RDMA_CM_EVENT_MULTICAST_JOIN);
    event->group = group;
    rdma_ud_param& ud = event->param.ud;
    ud.private_data = context;
    ud.qp_num = kMulticastQpn;
    ud.qkey = RDMA_UDP_QKEY;
    ud.ah_attr.grh.dgid = group->gid;
    ud.ah_attr.grh.sgid_index = member.gid_index;
    ud.ah_attr.grh.hop_limit = 1;
    ud.ah_attr.grh.traffic_class = member.has_tos ? member.tos : uint8_t{0};
    ud.ah_attr.is_global = 1;
    ud.ah_attr.port_num = 1;
  }
  return complete(of(id));
}

}  // namespace
}  // namespace farverbs::rdmacm

using namespace farverbs;
using namespace farverbs::rdmacm;

extern "C" {

int rdma_join_multicast(rdma_cm_id* id, sockaddr* addr, void* context) {
  return join(id, addr, context);
}

int rdma_join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex* mc_join_attr, void* context) {
  if (mc_join_attr == nullptr || (mc_join_attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS) == 0 ||
      mc_join_attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED ||
      ((mc_join_attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS) != 0 &&
       mc_join_attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)) {
    return fail(EINVAL);
  }
  return join(id, mc_join_attr->addr, context);
}

int rdma_leave_multicast(rdma_cm_id* id, sockaddr* addr) {
  const auto address = to_endpoint(addr);
  if (!address) return fail(EINVAL);
  std::shared_ptr<Group> left;
  {
    Library& library = Library::get();
    const std::lock_guard lock(library.mutex);
    if (!library.alive(id)) return fail(EINVAL);
    const Gid gid = address->address.to_gid();
    auto& groups = of(id)->groups;
    for (auto at = groups.begin(); at != groups.end(); ++at) {
      if (std::memcmp((*at)->gid.raw, gid.data(), gid.size()) != 0) continue;
      left = *at;
      groups.erase(at);
      break;
    }
  }
  if (left == nullptr) return fail(EADDRNOTAVAIL);
  if (left->attached && id->qp != nullptr) {
    const int failed = ibv_detach_mcast(id->qp, &left->gid, 0);
    if (failed != 0) return fail(failed);
  }
  return 0;
}

}  // extern "C"
