// Multicast groups: ibv_attach_mcast(3). A group's GID is an IP multicast address; the kernel's
// IGMP and MLD make it known to the network.
#include <cstring>

#include "farverbs/abi/ibverbs/errors.h"
#include "farverbs/abi/ibverbs/objects.h"
#include "farverbs/abi/ibverbs/versions.h"

using namespace farverbs;
using namespace farverbs::abi;

namespace {

Gid to_gid(const ibv_gid& shown) {
  Gid gid;
  std::memcpy(gid.data(), shown.raw, gid.size());
  return gid;
}

}  // namespace

extern "C" {

int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t) {
  if (gid == nullptr || !is_alive(Kind::kQp, qp)) {
    return refuse("ibv_attach_mcast", invalid("qp is not alive, or gid is null"));
  }
  if (auto attached = of(qp).pair->attach_multicast(to_gid(*gid)); !attached.ok()) {
    return refuse("ibv_attach_mcast", attached.error());
  }
  return 0;
}

int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t) {
  if (gid == nullptr || !is_alive(Kind::kQp, qp)) {
    return refuse("ibv_detach_mcast", invalid("qp is not alive, or gid is null"));
  }
  if (auto detached = of(qp).pair->detach_multicast(to_gid(*gid)); !detached.ok()) {
    return refuse("ibv_detach_mcast", detached.error());
  }
  return 0;
}

}  // extern "C"

FV_DEFAULT_VERSION(ibv_attach_mcast);
FV_DEFAULT_VERSION(ibv_detach_mcast);
