#include "farverbs/model/completion_queue.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <mutex>
#include <string>

namespace farverbs::model {
namespace {

// The ring of a queue that was just made: a cache page's worth, so that thousands of idle queues
// cost little and busy ones grow in a few steps.
constexpr uint32_t kFirstSlots = 64;

constexpr uint32_t kMostSlots = 1u << 31;

uint32_t rounded(uint32_t capacity) {
  return capacity >= kMostSlots ? kMostSlots : std::bit_ceil(std::max(capacity, 1u));
}

}  // namespace

CompletionQueue::CompletionQueue(uint32_t capacity, void* context, CompletionNotifier* notifier,
                                 AsyncEventSink* events)
    : capacity_(rounded(capacity)), context_(context), notifier_(notifier), events_(events) {}

void CompletionQueue::grow_locked(uint32_t slots) {
  auto ring = std::make_unique_for_overwrite<WorkCompletion[]>(slots);
  const uint64_t count = tail_ - head_;
  for (uint64_t i = 0; i < count; ++i) ring[i] = ring_[(head_ + i) & (slots_ - 1)];
  ring_ = std::move(ring);
  slots_ = slots;
  head_ = 0;
  tail_ = count;
}

bool CompletionQueue::push(const WorkCompletion& completion, bool solicited) {
  bool notify = false;
  bool first_overflow = false;
  lock_.lock();
  const auto count = static_cast<uint32_t>(tail_ - head_);
  if (error_.load(std::memory_order_relaxed)) {
    lock_.unlock();
    return false;
  }
  if (count == slots_) {
    if (count == capacity_) {
      first_overflow = true;
      error_.store(true, std::memory_order_release);
    } else {
      grow_locked(slots_ == 0 ? std::min(capacity_, kFirstSlots) : slots_ * 2);
    }
  }
  if (!first_overflow) {
    WorkCompletion& slot = ring_[tail_ & (slots_ - 1)];
    slot = completion;
    if (Time(*clock)() = clock_.load(std::memory_order_relaxed); clock != nullptr) {
      slot.time = clock();
    }
    ++tail_;
    size_.store(count + 1, std::memory_order_release);
    if (armed_ != Armed::kNo &&
        (armed_ == Armed::kAny || solicited || completion.status != CompletionStatus::kSuccess)) {
      armed_ = Armed::kNo;
      notify = true;
    }
  }
  lock_.unlock();
  // Outside the lock: the sinks take locks of their own.
  if (notify && notifier_ != nullptr) notifier_->on_completion_event(*this);
  if (first_overflow && events_ != nullptr) {
    events_->on_async_event({AsyncEventType::kCqError, context_});
  }
  return !first_overflow;
}

size_t CompletionQueue::poll(std::span<WorkCompletion> completions) {
  if (empty()) return 0;  // polling an empty queue must not bounce the producer's cache line
  const std::lock_guard guard(lock_);
  const size_t count = std::min<size_t>(tail_ - head_, completions.size());
  for (size_t i = 0; i < count; ++i) completions[i] = ring_[(head_ + i) & (slots_ - 1)];
  head_ += count;
  size_.store(static_cast<uint32_t>(tail_ - head_), std::memory_order_release);
  return count;
}

void CompletionQueue::request_notification(bool solicited_only) {
  const std::lock_guard guard(lock_);
  // A request for the next completion of any kind is not weakened by a later one for less (IBTA
  // vol. 1 section 11.4.2.2).
  if (!solicited_only) {
    armed_ = Armed::kAny;
  } else if (armed_ == Armed::kNo) {
    armed_ = Armed::kSolicited;
  }
}

void CompletionQueue::purge(Qpn qpn) {
  const std::lock_guard guard(lock_);
  uint64_t kept = head_;
  for (uint64_t i = head_; i != tail_; ++i) {
    const WorkCompletion& completion = ring_[i & (slots_ - 1)];
    if (completion.qpn == qpn) continue;
    if (kept != i) ring_[kept & (slots_ - 1)] = completion;
    ++kept;
  }
  tail_ = kept;
  size_.store(static_cast<uint32_t>(tail_ - head_), std::memory_order_release);
}

Result<void> CompletionQueue::resize(uint32_t capacity) {
  const std::lock_guard guard(lock_);
  const uint32_t wanted = rounded(capacity);
  const uint64_t count = tail_ - head_;
  if (count > wanted) {
    return invalid("cqe is " + std::to_string(capacity) + " but " + std::to_string(count) +
                   " completions are queued; poll them first");
  }
  if (slots_ > wanted) grow_locked(wanted);
  capacity_ = wanted;
  return {};
}

}  // namespace farverbs::model
