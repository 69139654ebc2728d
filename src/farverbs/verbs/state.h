// What the handles of verbs.h hold. Each state keeps what it depends on alive, and undoes in its
// destructor what its creation did.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <vector>

#include "farverbs/engine/shard.h"
#include "farverbs/io/addresses_port.h"
#include "farverbs/io/interfaces.h"
#include "farverbs/io/os_entropy.h"
#include "farverbs/io/shared_port.h"
#include "farverbs/io/waker.h"
#include "farverbs/model/completion_queue.h"
#include "farverbs/model/memory.h"
#include "farverbs/model/work_queues.h"
#include "farverbs/verbs/stats.h"
#include "farverbs/verbs/verbs.h"

namespace farverbs::verbs::detail {

// Of the far transport (docs/far-transport.md) that this code speaks.
inline constexpr uint8_t kFarVersion = 1;

class LockedEntropy final : public Entropy {
 public:
  uint64_t next() override {
    std::lock_guard lock(mutex_);
    return entropy_.next();
  }

 private:
  std::mutex mutex_;
  io::OsEntropy entropy_;
};

class AsyncEvents final : public model::AsyncEventSink {
 public:
  explicit AsyncEvents(io::Waker waker) : waker_(std::move(waker)) {}
  void on_async_event(const model::AsyncEvent& event) override;
  std::optional<AsyncEvent> pop();
  void forget(void* context);
  int fd() const { return waker_.fd(); }

 private:
  std::mutex mutex_;
  std::deque<model::AsyncEvent> events_;
  io::Waker waker_;
};

struct DeviceState {
  DeviceState(const DeviceOptions& device_options, io::Interface on_interface, io::Waker waker)
      : options(device_options),
        interface(std::move(on_interface)),
        memory(entropy),
        events(std::move(waker)) {}

  DeviceOptions options;
  DeviceAttributes attributes;
  io::Interface interface;
  PathMtu max_path_mtu = PathMtu::k1024;
  LockedEntropy entropy;
  model::MemoryTable memory;
  AsyncEvents events;
  engine::Followers followers;
  std::atomic<uint32_t> next_pd{1};
  std::atomic<uint32_t> next_shard{0};
  std::vector<io::SharedPort*> shared_ports;    // of the shards, in order; none if not shared
  io::AddressesPort* addresses_port = nullptr;  // of the only shard, if it may have several GIDs
  std::vector<std::unique_ptr<engine::Shard>> shards;  // their threads use all of the above
  std::unique_ptr<StatsServer> stats;                  // last: its thread uses the shards

  void quiesce() {
    for (auto& shard : shards) shard->quiesce();
  }
  bool streaming() const {
    return std::any_of(shards.begin(), shards.end(), [](auto& s) { return s->streaming(); });
  }
  bool poll_shards() {
    bool moved = false;
    for (auto& shard : shards) moved |= shard->poll();
    return moved;
  }
};

// How long to spin before blocking, learned: spinning saves a wake-up when the answer comes within
// it, and costs the peer its processor when both run on one. Grows to `most` while it succeeds,
// halves when it fails, and is tried again now and then. Two threads that wait on one queue may
// both write it.
class AdaptiveSpin {
 public:
  Duration next(Duration most) {
    int64_t ns = ns_.load(std::memory_order_relaxed);
    if (ns < 0) ns = most.ns();
    if (ns == 0) {
      // A quarter of it, in every so many waits.
      constexpr uint32_t kTryEvery = 256;
      return waits_.fetch_add(1, std::memory_order_relaxed) % kTryEvery == kTryEvery - 1
                 ? most / 4
                 : Duration();
    }
    return Duration::nanoseconds(std::min(ns, most.ns()));
  }
  void succeeded(Duration spun, Duration most) {
    ns_.store(std::min(std::max(ns_.load(std::memory_order_relaxed), 4 * spun.ns()), most.ns()),
              std::memory_order_relaxed);
  }
  void failed(Duration spun) {
    constexpr int64_t kLeast = 2'000;
    const int64_t half = spun.ns() / 2;
    ns_.store(half < kLeast ? 0 : half, std::memory_order_relaxed);
  }

 private:
  std::atomic<int64_t> ns_{-1};  // -1: not known yet
  std::atomic<uint32_t> waits_{0};
};

struct PdState {
  std::shared_ptr<DeviceState> device;
  model::PdId id = 0;
};

struct RegionState {
  std::shared_ptr<PdState> pd;
  model::MemoryEntry* entry = nullptr;
  MemoryKey key;
  void* memory = nullptr;
  uint64_t address = 0;
  uint64_t length = 0;
  bool owns_memory = false;

  ~RegionState();
  Result<void> deregister();
};

struct WindowState {
  std::shared_ptr<PdState> pd;
  model::MemoryEntry* entry = nullptr;
  ~WindowState();
};

// A channel's descriptor is a semaphore: one count for each event, always, under the mutex. So a
// count is taken without ever blocking, whatever the descriptor's flags, which are the user's.
struct ChannelState final : model::CompletionNotifier {
  std::shared_ptr<DeviceState> device;
  int event_fd = -1;
  std::mutex mutex;
  std::deque<model::CompletionQueue*> events;

  ~ChannelState() override;
  void on_completion_event(model::CompletionQueue& queue) override;
  void forget(model::CompletionQueue& queue);
};

struct CqState {
  std::shared_ptr<DeviceState> device;
  std::shared_ptr<ChannelState> channel;
  std::unique_ptr<model::CompletionQueue> queue;
  AdaptiveSpin spin;
  ~CqState();
};

struct SrqState {
  std::shared_ptr<PdState> pd;
  std::unique_ptr<model::ReceiveQueue> queue;
  void* context = nullptr;
  model::AsyncEventSink* events = nullptr;
};

struct QpHandleState {
  std::shared_ptr<PdState> pd;
  std::shared_ptr<CqState> send_cq;
  std::shared_ptr<CqState> receive_cq;
  std::shared_ptr<SrqState> srq;
  engine::Shard* shard = nullptr;
  engine::LoopQp* qp = nullptr;
  Psn first_psn;
  std::vector<IpAddress> groups;  // under the loop's lock
  ~QpHandleState();
};

}  // namespace farverbs::verbs::detail
