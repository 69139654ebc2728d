#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "farverbs/verbs/state.h"

namespace farverbs::verbs {
namespace detail {

ChannelState::~ChannelState() {
  if (event_fd >= 0) ::close(event_fd);
}

void ChannelState::on_completion_event(model::CompletionQueue& queue) {
  std::lock_guard lock(mutex);
  events.push_back(&queue);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_fd, &one, sizeof one);
}

void ChannelState::forget(model::CompletionQueue& queue) {
  std::lock_guard lock(mutex);
  const size_t gone = std::erase(events, &queue);
  uint64_t count = 0;
  for (size_t i = 0; i < gone; ++i) {
    [[maybe_unused]] const ssize_t n = ::read(event_fd, &count, sizeof count);
  }
}

CqState::~CqState() {
  // No QP uses the queue any more, so no step can bring another event.
  if (channel != nullptr) channel->forget(*queue);
}

}  // namespace detail

size_t CompletionQueue::poll(std::span<WorkCompletion> completions) {
  const size_t n = state_->queue->poll(completions);
  if (n > 0) return n;
  state_->device->poll_shards();
  return state_->queue->poll(completions);
}

size_t CompletionQueue::take(std::span<WorkCompletion> completions) {
  return state_->queue->poll(completions);
}

size_t CompletionQueue::wait(std::span<WorkCompletion> completions, Duration timeout) {
  if (completions.empty()) return 0;
  detail::DeviceState& device = *state_->device;
  const Time start = io::os_now();
  const Time deadline = start + timeout;
  const Duration spin = state_->spin.next(device.options.spin);
  Time spin_until = std::min(deadline, start + spin);
  bool spinning = spin > Duration();
  bool yielded = false;
  for (;;) {
    // Who does not spin goes to sleep on the port, which ends at once if something is there.
    size_t n = state_->queue->poll(completions);
    bool moved = false;
    if (n == 0 && spinning) {
      moved = device.poll_shards();
      n = state_->queue->poll(completions);
    }
    const Time now = io::os_now();
    if (n > 0) {
      if (spinning) state_->spin.succeeded(now - start, device.options.spin);
      return n;
    }
    if (now >= deadline || state_->queue->in_error()) return poll(completions);
    // As long as packets move, the loop is worth driving whoever the completions will be for.
    if (moved) spin_until = std::min(deadline, now + spin);
    if (now < spin_until) continue;
    if (spinning) state_->spin.failed(spin);
    spinning = false;
    // In the midst of a long message it lets others run and looks once more before it sleeps: a
    // peer on the same processor sends all that it may, instead of waking this thread for each
    // burst.
    if (device.streaming() && !std::exchange(yielded, true)) {
      ::sched_yield();
      if (device.poll_shards() || !state_->queue->empty()) {
        yielded = false;
        continue;
      }
    }
    auto arrived = [&] { return !state_->queue->empty() || state_->queue->in_error(); };
    // With one shard this thread can sleep on the port itself.
    if (device.shards.size() == 1 && device.shards[0]->lead(deadline, arrived)) {
      yielded = false;
      continue;
    }
    device.followers.count.fetch_add(1, std::memory_order_seq_cst);
    for (auto& shard : device.shards) {
      if (device.shards.size() > 1) shard->hand_over();
    }
    {
      // Looked after now and then, for who leads may have left without a step that tells us.
      constexpr Duration kLookAgain = Duration::milliseconds(10);
      std::unique_lock lock(device.followers.mutex);
      if (!arrived()) {
        const Duration left = std::min(deadline - io::os_now(), kLookAgain);
        device.followers.changed.wait_for(lock, std::chrono::nanoseconds(left.ns()));
      }
    }
    device.followers.count.fetch_sub(1, std::memory_order_seq_cst);
  }
}

void CompletionQueue::request_notification(bool solicited_only) {
  state_->queue->request_notification(solicited_only);
  for (auto& shard : state_->device->shards) shard->hand_over();
}

bool CompletionQueue::in_error() const { return state_->queue->in_error(); }
uint32_t CompletionQueue::capacity() const { return state_->queue->capacity(); }
Result<void> CompletionQueue::resize(uint32_t capacity) { return state_->queue->resize(capacity); }
void* CompletionQueue::context() const { return state_->queue->context(); }
void CompletionQueue::stamp_completions() { state_->queue->stamp_with(io::os_now); }

uint64_t CompletionQueue::end_events() {
  if (state_->channel == nullptr) return 0;
  state_->channel->forget(*state_->queue);
  std::lock_guard lock(state_->channel->mutex);
  return state_->queue->events_taken;
}

int CompletionChannel::fd() const { return state_->event_fd; }

std::optional<void*> CompletionChannel::get_event(Duration timeout) {
  const Time deadline = io::os_now() + timeout;
  for (;;) {
    if (std::lock_guard lock(state_->mutex); !state_->events.empty()) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t n = ::read(state_->event_fd, &count, sizeof count);
      model::CompletionQueue* queue = state_->events.front();
      state_->events.pop_front();
      ++queue->events_taken;
      return queue->context();
    }
    const Time now = io::os_now();
    if (now >= deadline) return std::nullopt;
    auto arrived = [&] {
      std::lock_guard lock(state_->mutex);
      return !state_->events.empty();
    };
    detail::DeviceState& device = *state_->device;
    if (device.shards.size() == 1 && device.shards[0]->lead(deadline, arrived)) continue;
    pollfd fd{state_->event_fd, POLLIN, 0};
    timespec wait{};
    const int64_t ns = std::min((deadline - now).ns(), int64_t{10'000'000});
    wait.tv_nsec = ns;
    ::ppoll(&fd, 1, &wait, nullptr);
  }
}

}  // namespace farverbs::verbs
