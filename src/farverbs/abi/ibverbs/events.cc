// Completion channels and asynchronous events: ibv_create_comp_channel(3), ibv_get_cq_event(3),
// ibv_ack_cq_events(3), ibv_get_async_event(3). Their descriptors are real, so that programs may
// poll them and make them non-blocking.
#include <fcntl.h>
#include <poll.h>

#include "farverbs/abi/ibverbs/errors.h"
#include "farverbs/abi/ibverbs/events.h"
#include "farverbs/abi/ibverbs/objects.h"
#include "farverbs/abi/ibverbs/versions.h"

namespace farverbs::abi {
namespace {

bool is_non_blocking(int fd) { return (::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0; }

// Waiting threads may be cancelled (rping does), but not while they hold anything of ours.
class NotCancelled {
 public:
  NotCancelled() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NotCancelled() { ::pthread_setcancelstate(before_, nullptr); }
  NotCancelled(const NotCancelled&) = delete;
  NotCancelled& operator=(const NotCancelled&) = delete;

 private:
  int before_ = 0;
};

// Driving the packet loop while waiting saves a wake-up. It is done in slices, between which the
// thread can be cancelled or interrupted, and no longer than it pays.
constexpr Duration kSlice = Duration::milliseconds(10);
constexpr int kSlices = 20;

std::optional<void*> next_event(verbs::CompletionChannel& channel, Duration timeout) {
  const NotCancelled safe;
  return channel.get_event(timeout);
}

// False with errno set (EINTR): a signal came.
bool wait_readable(int fd) {
  pollfd watched{fd, POLLIN, 0};
  return ::poll(&watched, 1, -1) >= 0;
}

}  // namespace

void wait_for_acknowledgements(pthread_mutex_t& mutex, pthread_cond_t& changed,
                               const uint32_t& acknowledged, uint32_t taken) {
  ::pthread_mutex_lock(&mutex);
  while (acknowledged != taken) ::pthread_cond_wait(&changed, &mutex);
  ::pthread_mutex_unlock(&mutex);
}

void acknowledge(pthread_mutex_t& mutex, pthread_cond_t& changed, uint32_t& acknowledged,
                 uint32_t count) {
  ::pthread_mutex_lock(&mutex);
  acknowledged += count;
  ::pthread_cond_signal(&changed);
  ::pthread_mutex_unlock(&mutex);
}

}  // namespace farverbs::abi

using namespace farverbs;
using namespace farverbs::abi;

extern "C" {

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  if (!is_alive(Kind::kContext, context)) {
    return refuse_null("ibv_create_comp_channel", invalid("context is not that of an open device"));
  }
  Context& owner = of(context);
  auto made = owner.soft_nic->create_channel();
  if (!made.ok()) return refuse_null("ibv_create_comp_channel", made.error());
  auto* channel = new Channel;
  channel->context = context;
  channel->refcnt = 0;
  channel->owner = owner.self;
  channel->channel = std::make_unique<verbs::CompletionChannel>(std::move(*made));
  channel->fd = channel->channel->fd();
  add_handle(Kind::kChannel, static_cast<ibv_comp_channel*>(channel));
  return channel;
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  if (!is_alive(Kind::kChannel, channel)) {
    return refuse("ibv_destroy_comp_channel", invalid("channel is not alive"));
  }
  if (of(channel).users.load() != 0) {
    return refuse("ibv_destroy_comp_channel",
                  Error{EBUSY, "completion queues report to the channel; destroy them first"});
  }
  if (!remove_handle(Kind::kChannel, channel)) return EINVAL;
  delete &of(channel);
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel* shown, ibv_cq** cq, void** cq_context) {
  if (!is_alive(Kind::kChannel, shown)) {
    errno = refuse("ibv_get_cq_event", invalid("channel is not alive"));
    return -1;
  }
  verbs::CompletionChannel& channel = *of(shown).channel;
  const bool waits = !is_non_blocking(shown->fd);
  std::optional<void*> event = next_event(channel, Duration());
  for (int slice = 0; waits && !event.has_value(); ++slice) {
    if (slice < kSlices) {
      event = next_event(channel, kSlice);
      ::pthread_testcancel();
      continue;
    }
    if (!wait_readable(shown->fd)) return -1;
    event = next_event(channel, Duration());
  }
  if (!event.has_value()) {
    errno = EAGAIN;
    return -1;
  }
  auto* found = static_cast<ibv_cq*>(static_cast<AsyncElement*>(*event)->object);
  if (cq != nullptr) *cq = found;
  if (cq_context != nullptr) *cq_context = found->cq_context;
  return 0;
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned int count) {
  if (count == 0 || !is_alive(Kind::kCq, cq)) return;
  acknowledge(cq->mutex, cq->cond, cq->comp_events_completed, count);
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  if (event == nullptr || !is_alive(Kind::kContext, context)) {
    errno = refuse("ibv_get_async_event", invalid("context or event is missing"));
    return -1;
  }
  AsyncQueue& queue = of(context).async;
  for (;;) {
    if (queue.take(*event)) return 0;
    if (is_non_blocking(context->async_fd)) {
      errno = EAGAIN;
      return -1;
    }
    if (!wait_readable(context->async_fd)) return -1;
  }
}

void ibv_ack_async_event(ibv_async_event* event) {
  if (event == nullptr) return;
  switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
      if (ibv_cq* cq = event->element.cq; is_alive(Kind::kCq, cq)) {
        acknowledge(cq->mutex, cq->cond, cq->async_events_completed, 1);
      }
      return;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      if (ibv_qp* qp = event->element.qp; is_alive(Kind::kQp, qp)) {
        acknowledge(qp->mutex, qp->cond, qp->events_completed, 1);
      }
      return;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      if (ibv_srq* srq = event->element.srq; is_alive(Kind::kSrq, srq)) {
        acknowledge(srq->mutex, srq->cond, srq->events_completed, 1);
      }
      return;
    default:  // about the port or the device: nothing waits for it
      return;
  }
}

}  // extern "C"

FV_DEFAULT_VERSION(ibv_ack_async_event);
FV_DEFAULT_VERSION(ibv_ack_cq_events);
FV_DEFAULT_VERSION(ibv_get_async_event);
FV_DEFAULT_VERSION(ibv_get_cq_event);
