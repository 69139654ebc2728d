// What the path is to be, in memory that the emulator shares with whoever changes it while it runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "farverbs/base/time.h"
#include "tools/lab/link.h"

namespace farverbs::tools::lab {

struct EmulatorConfig {
  LinkConfig a_to_b;
  LinkConfig b_to_a;
  Duration tick = Duration::microseconds(100);  // waking is most of what it costs
};
static_assert(std::is_trivially_copyable_v<EmulatorConfig>);

// One writer at a time, any readers.
class SharedConfig {
 public:
  // 0 until something was written; odd while somebody writes.
  uint32_t version() const { return version_.load(std::memory_order_acquire); }

  void write(const EmulatorConfig& config) {
    // A writer that died halfway left an odd number.
    const uint32_t before = version() & ~1u;
    version_.store(before + 1, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_release);
    std::memcpy(&config_, &config, sizeof config_);
    version_.store(before + 2, std::memory_order_release);
  }
  // False if no consistent copy could be had just now.
  bool read(EmulatorConfig& config, uint32_t* of_version) const {
    const uint32_t before = version();
    std::memcpy(&config, &config_, sizeof config);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 != 0 || version_.load(std::memory_order_relaxed) != before) return false;
    *of_version = before;
    return true;
  }

 private:
  std::atomic<uint32_t> version_{0};
  EmulatorConfig config_;
};

}  // namespace farverbs::tools::lab
