// Two Links joined in one process, for tests: a write is a copy, and faults are made at will.
#pragma once

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "farverbs/base/fault_guard.h"
#include "tools/cp/link.h"

namespace farverbs::tools::copy {

struct FakeWire {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<LinkEvent> inbox[2];
  std::map<uint32_t, std::span<std::byte>> exposed;
  uint32_t next_key = 100;
  uint64_t writes = 0;
  uint64_t written_bytes = 0;
  bool broken = false;
  // Asked for each write, by its number from 0; what it returns happens.
  enum class Fault { kNone, kCorrupt, kBreak };
  std::function<Fault(uint64_t)> fault = [](uint64_t) { return Fault::kNone; };
  // Called before each write, outside of the lock.
  std::function<void(uint64_t)> before_write = [](uint64_t) {};

  void close() {
    const std::lock_guard lock(mutex);
    broken = true;
    changed.notify_all();
  }
};

class FakeLink final : public Link {
 public:
  FakeLink(FakeWire& wire, int side) : wire_(wire), side_(side) {}

  Result<Region> expose(std::span<std::byte> memory) override {
    const std::lock_guard lock(wire_.mutex);
    const uint32_t key = wire_.next_key++;
    wire_.exposed[key] = memory;
    Region region{reinterpret_cast<uint64_t>(memory.data()), key, {}};
    region.hold = std::shared_ptr<void>(nullptr, [this, key](void*) {
      const std::lock_guard inner(wire_.mutex);
      wire_.exposed.erase(key);
    });
    return region;
  }
  Result<Region> lend(std::span<std::byte> memory) override {
    return Region{reinterpret_cast<uint64_t>(memory.data()), 1, {}};
  }
  Result<void> write(const Region& source, uint64_t offset, uint32_t length,
                     uint64_t remote_address, uint32_t remote_key, const Record& record,
                     uint64_t ticket) override {
    wire_.before_write(wire_.writes);
    const std::lock_guard lock(wire_.mutex);
    if (wire_.broken) return Error{EPIPE, "the peer closed the connection"};
    const FakeWire::Fault fault = wire_.fault(wire_.writes++);
    if (fault == FakeWire::Fault::kBreak) {
      wire_.broken = true;
      wire_.changed.notify_all();
      return Error{EPIPE, "the peer closed the connection"};
    }
    const auto at = wire_.exposed.find(remote_key);
    auto* to = reinterpret_cast<std::byte*>(remote_address);
    if (at == wire_.exposed.end() || to < at->second.data() ||
        to + length > at->second.data() + at->second.size()) {
      return Error{EIO, "remote access error"};
    }
    const auto* from = reinterpret_cast<const std::byte*>(source.address + offset);
    const bool read = guarded([&] { std::memcpy(to, from, length); });
    if (read && fault == FakeWire::Fault::kCorrupt) to[length / 2] ^= std::byte{1};
    wire_.written_bytes += length;
    push(side_, WriteDone{ticket, !read});
    if (read) push(1 - side_, record);
    return {};
  }
  Result<void> notify(const Record& record) override {
    const std::lock_guard lock(wire_.mutex);
    push(1 - side_, record);
    return {};
  }
  Result<void> send(const std::string& message) override {
    const std::lock_guard lock(wire_.mutex);
    push(1 - side_, message);
    return {};
  }
  Result<std::optional<LinkEvent>> next(Duration timeout) override {
    std::unique_lock lock(wire_.mutex);
    std::deque<LinkEvent>& inbox = wire_.inbox[side_];
    wire_.changed.wait_for(lock, std::chrono::nanoseconds(timeout.ns()),
                           [&] { return !inbox.empty() || wire_.broken; });
    if (!inbox.empty()) {
      std::optional<LinkEvent> event = std::move(inbox.front());
      inbox.pop_front();
      return event;
    }
    if (wire_.broken) return Error{EPIPE, "the peer closed the connection"};
    return std::optional<LinkEvent>();
  }
  uint64_t suggested_window_bytes() const override { return UINT64_C(4) << 20; }

 private:
  void push(int side, LinkEvent event) {
    wire_.inbox[side].push_back(std::move(event));
    wire_.changed.notify_all();
  }
  FakeWire& wire_;
  int side_;
};

}  // namespace farverbs::tools::copy
