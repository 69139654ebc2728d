#include "farverbs/abi/ibverbs/async_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

namespace farverbs::abi {
namespace {

// A program that never asks must not make us grow for ever.
constexpr size_t kMostEvents = 65'536;

ibv_event_type to_public(model::AsyncEventType type) {
  switch (type) {
    case model::AsyncEventType::kCqError:
      return IBV_EVENT_CQ_ERR;
    case model::AsyncEventType::kQpFatal:
      return IBV_EVENT_QP_FATAL;
    case model::AsyncEventType::kQpRequestError:
      return IBV_EVENT_QP_REQ_ERR;
    case model::AsyncEventType::kQpAccessError:
      return IBV_EVENT_QP_ACCESS_ERR;
    case model::AsyncEventType::kCommunicationEstablished:
      return IBV_EVENT_COMM_EST;
    case model::AsyncEventType::kSqDrained:
      return IBV_EVENT_SQ_DRAINED;
    case model::AsyncEventType::kLastWqeReached:
      return IBV_EVENT_QP_LAST_WQE_REACHED;
    case model::AsyncEventType::kSrqLimitReached:
      return IBV_EVENT_SRQ_LIMIT_REACHED;
    case model::AsyncEventType::kSrqError:
      return IBV_EVENT_SRQ_ERR;
    case model::AsyncEventType::kPortActive:
      return IBV_EVENT_PORT_ACTIVE;
    case model::AsyncEventType::kPortError:
      return IBV_EVENT_PORT_ERR;
    case model::AsyncEventType::kGidChange:
      return IBV_EVENT_GID_CHANGE;
    case model::AsyncEventType::kDeviceFatal:
      return IBV_EVENT_DEVICE_FATAL;
  }
  return IBV_EVENT_DEVICE_FATAL;
}

}  // namespace

AsyncQueue::~AsyncQueue() {
  if (fd_ >= 0) ::close(fd_);
}

int AsyncQueue::open() {
  fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  return fd_;
}

void AsyncQueue::push(const Entry& entry) {
  const std::lock_guard lock(mutex_);
  if (events_.size() >= kMostEvents) return;
  events_.push_back(entry);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(fd_, &one, sizeof one);
}

void AsyncQueue::on_async_event(const model::AsyncEvent& event) {
  Entry entry{};
  entry.event.event_type = to_public(event.type);
  auto* element = static_cast<AsyncElement*>(event.element);
  if (element == nullptr) {
    entry.event.element.port_num = 1;
    return push(entry);
  }
  entry.element = element;
  switch (element->kind) {
    case AsyncElement::Kind::kCq:
      entry.event.element.cq = static_cast<ibv_cq*>(element->object);
      break;
    case AsyncElement::Kind::kQp:
      entry.event.element.qp = static_cast<ibv_qp*>(element->object);
      break;
    case AsyncElement::Kind::kSrq:
      entry.event.element.srq = static_cast<ibv_srq*>(element->object);
      break;
  }
  push(entry);
}

void AsyncQueue::push_port_event(ibv_event_type type) {
  Entry entry{};
  entry.event.event_type = type;
  entry.event.element.port_num = 1;
  push(entry);
}

bool AsyncQueue::take(ibv_async_event& event) {
  const std::lock_guard lock(mutex_);
  if (events_.empty()) return false;
  const Entry entry = events_.front();
  events_.pop_front();
  uint64_t count = 0;
  // Never blocks: there is one count for each event, under the mutex.
  [[maybe_unused]] const ssize_t n = ::read(fd_, &count, sizeof count);
  if (entry.element != nullptr) ++entry.element->taken;
  event = entry.event;
  return true;
}

uint32_t AsyncQueue::end(const AsyncElement& element) {
  const std::lock_guard lock(mutex_);
  const size_t gone =
      std::erase_if(events_, [&](const Entry& entry) { return entry.element == &element; });
  for (size_t i = 0; i < gone; ++i) {
    uint64_t one = 0;
    [[maybe_unused]] const ssize_t n = ::read(fd_, &one, sizeof one);
  }
  return element.taken;
}

}  // namespace farverbs::abi
