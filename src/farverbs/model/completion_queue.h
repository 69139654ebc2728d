// CompletionQueue: a bounded ring of completions between the packet loops (producers) and
// application threads (consumers), with the arm/notify rules of ibv_req_notify_cq(3). On overflow
// it goes into error for good: the completion is lost, CQ_ERR is raised once, and every QP that
// pushes to it must move to the error state (IBTA C9-218, man ibv_poll_cq).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "farverbs/base/result.h"
#include "farverbs/base/spinlock.h"
#include "farverbs/base/time.h"
#include "farverbs/model/types.h"

namespace farverbs::model {

class CompletionQueue;

// Told when an armed queue gets a completion that it was armed for. Called from a packet loop; must
// not block and must not call back into the queue.
class CompletionNotifier {
 public:
  virtual ~CompletionNotifier() = default;
  virtual void on_completion_event(CompletionQueue& queue) = 0;
};

class AsyncEventSink {
 public:
  virtual ~AsyncEventSink() = default;
  virtual void on_async_event(const AsyncEvent& event) = 0;  // must not block
};

class CompletionQueue {
 public:
  // capacity > 0, rounded up to a power of two; storage grows lazily so that big ones cost little.
  // `context` is what async events name. notifier and events may be null; both outlive the queue.
  CompletionQueue(uint32_t capacity, void* context, CompletionNotifier* notifier,
                  AsyncEventSink* events);

  // Producer. False if the queue has overflowed, now or before.
  bool push(const WorkCompletion& completion, bool solicited);

  // Consumer: moves up to completions.size() out, oldest first.
  size_t poll(std::span<WorkCompletion> completions);
  bool empty() const { return size_.load(std::memory_order_acquire) == 0; }
  uint32_t size() const { return size_.load(std::memory_order_acquire); }
  uint32_t capacity() const { return capacity_; }
  bool in_error() const { return error_.load(std::memory_order_acquire); }

  // Arms one notification: for the next completion, or the next solicited or failed one.
  void request_notification(bool solicited_only);
  // Removes the completions of one QP (modify to RESET, destroy).
  void purge(Qpn qpn);
  // EINVAL if more completions are queued than fit.
  Result<void> resize(uint32_t capacity);

  // From here on completions carry the time of their push, as `clock` tells it.
  void stamp_with(Time (*clock)()) { clock_.store(clock, std::memory_order_release); }

  void* context() const { return context_; }
  // References of QPs; a queue may be destroyed only at 0.
  std::atomic<uint32_t> users{0};
  // The notifier's: events that it has given to the application.
  uint64_t events_taken = 0;

 private:
  enum class Armed : uint8_t { kNo, kSolicited, kAny };
  void grow_locked(uint32_t slots);

  Spinlock lock_;
  std::unique_ptr<WorkCompletion[]> ring_;
  uint32_t slots_ = 0;  // allocated, power of two, <= capacity_
  uint32_t capacity_ = 0;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
  Armed armed_ = Armed::kNo;
  std::atomic<uint32_t> size_{0};
  std::atomic<bool> error_{false};
  std::atomic<Time (*)()> clock_{nullptr};
  void* context_;
  CompletionNotifier* notifier_;
  AsyncEventSink* events_;
};

}  // namespace farverbs::model
