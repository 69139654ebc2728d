// Completion queues: ibv_create_cq(3), ibv_resize_cq(3), ibv_poll_cq(3), ibv_req_notify_cq(3).
#include "farverbs/abi/ibverbs/cq.h"

#include <sched.h>

#include <algorithm>

#include "farverbs/abi/ibverbs/completions.h"
#include "farverbs/abi/ibverbs/errors.h"
#include "farverbs/abi/ibverbs/events.h"
#include "farverbs/abi/ibverbs/versions.h"

namespace farverbs::abi {
namespace {

// Programs spin on their queues for as long as it takes. While long messages are on their way the
// peer, or its packet loop, may wait for this very processor, and would to the end of the time
// slice; a yield after some 10 microseconds (polls, each of which looks at the port) made one MiB
// writes on a busy machine two to four times as fast. Short answers it would only delay.
void let_others_run(Cq& cq) {
  constexpr uint32_t kPatience = 32;
  if (!cq.bulk.load(std::memory_order_relaxed)) return;
  const uint32_t empty = cq.empty_polls.load(std::memory_order_relaxed) + 1;
  cq.empty_polls.store(empty < kPatience ? empty : 0, std::memory_order_relaxed);
  if (empty >= kPatience) ::sched_yield();
}

}  // namespace

Result<Cq*> create_cq(ibv_context* context, uint32_t capacity, void* cq_context,
                      ibv_comp_channel* channel, uint32_t vector) {
  if (!is_alive(Kind::kContext, context)) return invalid("context is not that of an open device");
  if (channel != nullptr && !is_alive(Kind::kChannel, channel)) {
    return invalid("channel is not alive");
  }
  if (vector >= static_cast<uint32_t>(context->num_comp_vectors)) {
    return invalid("comp_vector must be below " + std::to_string(context->num_comp_vectors) +
                   ", got " + std::to_string(vector));
  }
  Context& owner = of(context);
  auto cq = std::make_unique<Cq>();
  ibv_cq& shown = *to_public(*cq);
  cq->element.object = &shown;
  auto queue =
      owner.soft_nic->create_cq(capacity, channel != nullptr ? of(channel).channel.get() : nullptr,
                                &cq->element, &owner.async);
  if (!queue.ok()) return std::move(queue).error();
  shown.context = context;
  shown.channel = channel;
  shown.cq_context = cq_context;
  shown.cqe = static_cast<int>(queue->capacity());
  ::pthread_mutex_init(&shown.mutex, nullptr);
  ::pthread_cond_init(&shown.cond, nullptr);
  cq->owner = owner.self;
  cq->queue = std::make_unique<verbs::CompletionQueue>(std::move(*queue));
  if (channel != nullptr) {
    cq->reports_to = &of(channel);
    ++of(channel).users;
    ++channel->refcnt;
  }
  add_handle(Kind::kCq, &shown);
  return cq.release();
}

int poll_cq(ibv_cq* cq, int count, ibv_wc* completions) {
  // As many as fit into a few cache lines: most polls find none, and fill nothing.
  constexpr int kBatch = 16;
  alignas(verbs::WorkCompletion) std::byte storage[kBatch * sizeof(verbs::WorkCompletion)];
  auto* batch = reinterpret_cast<verbs::WorkCompletion*>(storage);
  verbs::CompletionQueue& queue = *of(cq).queue;
  int done = 0;
  while (done < count) {
    const int wanted = std::min(count - done, kBatch);
    const size_t found = queue.poll({batch, static_cast<size_t>(wanted)});
    for (size_t i = 0; i < found; ++i) to_public(batch[i], completions[done++]);
    if (found < static_cast<size_t>(wanted)) break;
  }
  if (done == 0 && count > 0) {
    if (queue.in_error()) return -1;
    let_others_run(of(cq));
  } else if (of(cq).empty_polls.load(std::memory_order_relaxed) != 0) {
    of(cq).empty_polls.store(0, std::memory_order_relaxed);
  }
  return done;
}

int req_notify_cq(ibv_cq* cq, int solicited_only) {
  of(cq).queue->request_notification(solicited_only != 0);
  return 0;
}

}  // namespace farverbs::abi

using namespace farverbs;
using namespace farverbs::abi;

extern "C" {

ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                      int vector) {
  const auto capacity = static_cast<uint32_t>(std::max(cqe, 0));
  auto cq = create_cq(context, capacity, cq_context, channel, static_cast<uint32_t>(vector));
  if (!cq.ok()) return refuse_null("ibv_create_cq", cq.error());
  return to_public(**cq);
}

int ibv_resize_cq(ibv_cq* cq, int cqe) {
  if (!is_alive(Kind::kCq, cq)) return refuse("ibv_resize_cq", invalid("cq is not alive"));
  const auto most = static_cast<int>(of(cq).owner->soft_nic->attributes().max_cqe);
  if (cqe < 1 || cqe > most) {
    return refuse("ibv_resize_cq", invalid("cqe must be 1 to " + std::to_string(most) + ", got " +
                                           std::to_string(cqe)));
  }
  if (auto resized = of(cq).queue->resize(static_cast<uint32_t>(cqe)); !resized.ok()) {
    return refuse("ibv_resize_cq", resized.error());
  }
  cq->cqe = static_cast<int>(of(cq).queue->capacity());
  return 0;
}

int ibv_destroy_cq(ibv_cq* shown) {
  if (!is_alive(Kind::kCq, shown)) return refuse("ibv_destroy_cq", invalid("cq is not alive"));
  Cq& cq = of(shown);
  if (const int users = cq.users.load(); users != 0) {
    return refuse("ibv_destroy_cq", Error{EBUSY, "cq is used by " + std::to_string(users) +
                                                     " queues of QPs; destroy them first"});
  }
  const auto taken = static_cast<uint32_t>(cq.queue->end_events());
  const uint32_t async_taken = cq.owner->async.end(cq.element);
  wait_for_acknowledgements(shown->mutex, shown->cond, shown->comp_events_completed, taken);
  wait_for_acknowledgements(shown->mutex, shown->cond, shown->async_events_completed, async_taken);
  if (!remove_handle(Kind::kCq, shown)) return EINVAL;
  if (cq.reports_to != nullptr) {
    --cq.reports_to->users;
    --shown->channel->refcnt;
  }
  delete &cq;
  return 0;
}

}  // extern "C"

FV_DEFAULT_VERSION(ibv_create_cq);
FV_DEFAULT_VERSION(ibv_destroy_cq);
FV_DEFAULT_VERSION(ibv_resize_cq);
