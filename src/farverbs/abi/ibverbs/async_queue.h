// AsyncQueue: the asynchronous events of one context (man ibv_get_async_event(3)), behind a
// descriptor that is readable while there are any. Packet loops push, applications take. An event
// that was taken and is not acknowledged keeps its object from being destroyed.
#pragma once

#include <infiniband/verbs.h>

#include <deque>
#include <mutex>

#include "farverbs/model/completion_queue.h"

namespace farverbs::abi {

// The `context` of objects in the verbs room: tells an event's object.
struct AsyncElement {
  enum class Kind : unsigned char { kCq, kQp, kSrq } kind;
  void* object = nullptr;  // the public struct
  uint32_t taken = 0;      // events given to the application; guarded by the queue's mutex
};

class AsyncQueue final : public model::AsyncEventSink {
 public:
  ~AsyncQueue() override;
  // The descriptor, a semaphore; -1 with errno set.
  int open();
  int fd() const { return fd_; }

  void on_async_event(const model::AsyncEvent& event) override;
  // Events of the port, number 1.
  void push_port_event(ibv_event_type type);

  // Takes the oldest; false: there is none.
  bool take(ibv_async_event& event);
  // Drops the events of an object that goes; gives how many were taken of it.
  uint32_t end(const AsyncElement& element);

 private:
  struct Entry {
    ibv_async_event event;
    AsyncElement* element;  // nullptr: about the port
  };
  void push(const Entry& entry);

  std::mutex mutex_;
  std::deque<Entry> events_;  // as many as the descriptor's count
  int fd_ = -1;
};

}  // namespace farverbs::abi
