// Event channels and their events: rdma_create_event_channel(3), rdma_get_cm_event(3),
// rdma_ack_cm_event(3), rdma_migrate_id(3), rdma_event_str(3).
#include <fcntl.h>
#include <poll.h>

#include <cerrno>
#include <ctime>

#include "farverbs/abi/rdmacm/library.h"
#include "farverbs/io/os_clock.h"

namespace farverbs::rdmacm {

int fail(int code) {
  errno = code;
  return -1;
}

namespace {

// A REP came for an identifier with a QP of its own: that gets ready, and the peer is told.
void complete_connect(Library& library, Event& event) {
  Id* id = of(event.id);
  if (id->qp == nullptr) return;  // the application sees to its QP, then calls rdma_establish()
  int failure = to_ready(*id) == 0 ? 0 : errno;
  const std::lock_guard lock(library.mutex);
  const auto agent = library.agent();
  if (failure == 0 && agent.ok()) {
    const auto told = (*agent)->establish(io::os_now(), id->connection);
    failure = told.ok() ? 0 : ECONNRESET;
  }
  if (failure == 0) {
    event.event = RDMA_CM_EVENT_ESTABLISHED;
    id->state = IdState::kConnected;
  } else {
    event.event = RDMA_CM_EVENT_CONNECT_ERROR;
    event.status = -failure;
    id->state = IdState::kDisconnected;
    if (agent.ok()) {
      (void)(*agent)->reject(io::os_now(), id->connection, wire::CmReject::consumer_defined, {});
    }
  }
  library.flush();
}

// An attachment that is refused makes the join an error.
void complete_join(Event& event) {
  Id* id = of(event.id);
  if (id->qp == nullptr) return;
  const int failed = ibv_attach_mcast(id->qp, &event.group->gid, 0);
  event.group->attached = failed == 0;
  if (failed == 0) return;
  event.event = RDMA_CM_EVENT_MULTICAST_ERROR;
  event.status = -failed;
}

}  // namespace

int complete(Id* id) {
  if (!id->synchronous) return 0;
  if (id->event != nullptr) {
    rdma_ack_cm_event(id->event);
    id->event = nullptr;
  }
  if (rdma_get_cm_event(id->channel, &id->event) != 0) return -1;
  if (id->event->status == 0) return 0;
  if (id->event->event == RDMA_CM_EVENT_REJECTED) return fail(ECONNREFUSED);
  return fail(id->event->status < 0 ? -id->event->status : id->event->status);
}

}  // namespace farverbs::rdmacm

using namespace farverbs;
using namespace farverbs::rdmacm;

extern "C" {

rdma_event_channel* rdma_create_event_channel(void) {
  Library& library = Library::get();
  const std::lock_guard lock(library.mutex);
  const auto agent = library.agent();
  if (!agent.ok()) {
    errno = agent.error().code;
    return nullptr;
  }
  return library.new_channel();
}

void rdma_destroy_event_channel(rdma_event_channel* channel) {
  Library& library = Library::get();
  const std::lock_guard lock(library.mutex);
  if (library.alive(channel)) library.delete_channel(of(channel));
}

int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  if (event == nullptr) return fail(EINVAL);
  Library& library = Library::get();
  Event* taken = nullptr;
  for (;;) {
    int fd = -1;
    {
      const std::lock_guard lock(library.mutex);
      if (library.alive(channel)) {
        taken = library.take(*of(channel));
        fd = channel->fd;
      } else if (!library.was_deleted(channel)) {
        return fail(EINVAL);
      }
    }
    if (fd < 0) {
      // Many programs have a thread that asks for events until the program ends, and take the
      // channel away under it. It would sleep in the kernel; with an error it would end the program
      // with a bad status, in the middle of its good end.
      constexpr timespec kLongEnough{2, 0};
      ::nanosleep(&kLongEnough, nullptr);
      return fail(EBADF);
    }
    if (taken != nullptr) break;
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags >= 0 && (flags & O_NONBLOCK) != 0) return fail(EAGAIN);
    pollfd wait{fd, POLLIN, 0};
    if (::poll(&wait, 1, -1) < 0) return -1;
  }
  if (taken->completes_connect) complete_connect(library, *taken);
  if (taken->event == RDMA_CM_EVENT_MULTICAST_JOIN) complete_join(*taken);
  if (taken->child != nullptr && of(taken->listen_id)->synchronous &&
      rdma_migrate_id(taken->id, nullptr) != 0) {
    rdma_destroy_id(taken->id);
    rdma_ack_cm_event(taken);
    return fail(ENOMEM);
  }
  *event = taken;
  return 0;
}

int rdma_ack_cm_event(rdma_cm_event* event) {
  Library& library = Library::get();
  const std::lock_guard lock(library.mutex);
  if (!library.alive(event)) return fail(EINVAL);
  library.acknowledge(of(event));
  return 0;
}

int rdma_migrate_id(rdma_cm_id* id, rdma_event_channel* channel) {
  Library& library = Library::get();
  std::unique_lock lock(library.mutex);
  if (!library.alive(id) || (channel != nullptr && !library.alive(channel))) return fail(EINVAL);
  Id* moved = of(id);
  if (moved->synchronous && channel == nullptr) return fail(EINVAL);
  Channel* to = channel != nullptr ? of(channel) : library.new_channel();
  if (to == nullptr) return -1;
  Channel* from = of(moved->channel);
  const bool was_synchronous = moved->synchronous;
  library.move_events(*moved, *to);
  moved->synchronous = channel == nullptr;
  if (was_synchronous) {
    rdma_cm_event* held = std::exchange(moved->event, nullptr);
    if (held != nullptr && library.alive(held)) library.acknowledge(of(held));
    library.delete_channel(from);
  }
  return 0;
}

const char* rdma_event_str(rdma_cm_event_type event) {
  switch (event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      return "RDMA_CM_EVENT_ADDR_RESOLVED";
    case RDMA_CM_EVENT_ADDR_ERROR:
      return "RDMA_CM_EVENT_ADDR_ERROR";
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      return "RDMA_CM_EVENT_ROUTE_RESOLVED";
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return "RDMA_CM_EVENT_ROUTE_ERROR";
    case RDMA_CM_EVENT_CONNECT_REQUEST:
      return "RDMA_CM_EVENT_CONNECT_REQUEST";
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      return "RDMA_CM_EVENT_CONNECT_RESPONSE";
    case RDMA_CM_EVENT_CONNECT_ERROR:
      return "RDMA_CM_EVENT_CONNECT_ERROR";
    case RDMA_CM_EVENT_UNREACHABLE:
      return "RDMA_CM_EVENT_UNREACHABLE";
    case RDMA_CM_EVENT_REJECTED:
      return "RDMA_CM_EVENT_REJECTED";
    case RDMA_CM_EVENT_ESTABLISHED:
      return "RDMA_CM_EVENT_ESTABLISHED";
    case RDMA_CM_EVENT_DISCONNECTED:
      return "RDMA_CM_EVENT_DISCONNECTED";
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return "RDMA_CM_EVENT_DEVICE_REMOVAL";
    case RDMA_CM_EVENT_MULTICAST_JOIN:
      return "RDMA_CM_EVENT_MULTICAST_JOIN";
    case RDMA_CM_EVENT_MULTICAST_ERROR:
      return "RDMA_CM_EVENT_MULTICAST_ERROR";
    case RDMA_CM_EVENT_ADDR_CHANGE:
      return "RDMA_CM_EVENT_ADDR_CHANGE";
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
      return "RDMA_CM_EVENT_TIMEWAIT_EXIT";
  }
  return "UNKNOWN EVENT";
}

}  // extern "C"
