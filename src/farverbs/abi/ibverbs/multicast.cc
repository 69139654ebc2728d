// Multicast groups: ibv_attach_mcast(3).
#include "farverbs/abi/ibverbs/errors.h"
#include "farverbs/abi/ibverbs/objects.h"

using namespace farverbs;
using namespace farverbs::abi;

extern "C" {

int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t) {
  if (gid == nullptr || !is_alive(Kind::kQp, qp)) return EINVAL;
  return refuse("ibv_attach_mcast", Error{EOPNOTSUPP, "multicast is not offered"});
}

int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t) {
  if (gid == nullptr || !is_alive(Kind::kQp, qp)) return EINVAL;
  return refuse("ibv_detach_mcast", invalid("qp is not attached to the group"));
}

}  // extern "C"
