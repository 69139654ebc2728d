// Shared receive queues: ibv_create_srq(3), ibv_modify_srq(3), ibv_query_srq(3).
#include <algorithm>

#include "farverbs/abi/ibverbs/errors.h"
#include "farverbs/abi/ibverbs/events.h"
#include "farverbs/abi/ibverbs/objects.h"
#include "farverbs/abi/ibverbs/versions.h"

using namespace farverbs;
using namespace farverbs::abi;

extern "C" {

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* init) {
  if (init == nullptr || !is_alive(Kind::kPd, pd)) {
    return refuse_null("ibv_create_srq", invalid("pd is not alive, or srq_init_attr is missing"));
  }
  auto srq = std::make_unique<Srq>();
  srq->owner = of(pd).owner;
  srq->element.object = static_cast<ibv_srq*>(srq.get());
  init->attr.max_sge = std::max(init->attr.max_sge, 1u);
  auto queue = of(pd).domain->create_srq(init->attr.max_wr, init->attr.max_sge, &srq->element,
                                         &srq->owner->async);
  if (!queue.ok()) return refuse_null("ibv_create_srq", queue.error());
  srq->queue = std::make_unique<verbs::SharedReceiveQueue>(std::move(*queue));
  srq->attributes = init->attr;
  // The limit is armed by ibv_modify_srq.
  srq->attributes.srq_limit = 0;
  srq->context = pd->context;
  srq->srq_context = init->srq_context;
  srq->pd = pd;
  ::pthread_mutex_init(&srq->mutex, nullptr);
  ::pthread_cond_init(&srq->cond, nullptr);
  ++of(pd).users;
  add_handle(Kind::kSrq, static_cast<ibv_srq*>(srq.get()));
  return srq.release();
}

int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  if (attr == nullptr || !is_alive(Kind::kSrq, srq)) {
    return refuse("ibv_modify_srq", invalid("srq is not alive, or srq_attr is missing"));
  }
  if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) {
    return refuse("ibv_modify_srq", invalid("srq_attr_mask has unknown bits"));
  }
  if ((mask & IBV_SRQ_MAX_WR) != 0) {
    return refuse("ibv_modify_srq", Error{EOPNOTSUPP, "shared receive queues cannot be resized"});
  }
  Srq& mine = of(srq);
  if ((mask & IBV_SRQ_LIMIT) != 0) {
    if (attr->srq_limit > mine.attributes.max_wr) {
      return refuse("ibv_modify_srq",
                    invalid("srq_limit is " + std::to_string(attr->srq_limit) + ", max_wr is " +
                            std::to_string(mine.attributes.max_wr)));
    }
    mine.queue->arm_limit(attr->srq_limit);
  }
  return 0;
}

int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  if (attr == nullptr || !is_alive(Kind::kSrq, srq)) {
    return refuse("ibv_query_srq", invalid("srq is not alive, or srq_attr is missing"));
  }
  *attr = of(srq).attributes;
  attr->srq_limit = of(srq).queue->limit();
  return 0;
}

int ibv_destroy_srq(ibv_srq* shown) {
  if (!is_alive(Kind::kSrq, shown)) return refuse("ibv_destroy_srq", invalid("srq is not alive"));
  Srq& srq = of(shown);
  if (const int users = srq.users.load(); users != 0) {
    return refuse("ibv_destroy_srq", Error{EBUSY, "srq is used by " + std::to_string(users) +
                                                      " QPs; destroy them first"});
  }
  if (!remove_handle(Kind::kSrq, shown)) return EINVAL;
  const uint32_t taken = srq.owner->async.end(srq.element);
  wait_for_acknowledgements(shown->mutex, shown->cond, shown->events_completed, taken);
  --of(shown->pd).users;
  delete &srq;
  return 0;
}

}  // extern "C"

FV_DEFAULT_VERSION(ibv_create_srq);
FV_DEFAULT_VERSION(ibv_destroy_srq);
FV_DEFAULT_VERSION(ibv_modify_srq);
FV_DEFAULT_VERSION(ibv_query_srq);
