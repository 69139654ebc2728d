// The operating system's clocks: the one place of the project that reads them. The engine's loop
// calls os_now once a step and passes the time down.
#pragma once

#include <ctime>

#include "farverbs/base/time.h"

namespace farverbs::io {

inline Time os_now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return Time::from_ns(static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec);
}

// Since the epoch, for stamps that people and other programs read; it may go back.
inline Time os_wall_clock() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return Time::from_ns(static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec);
}

}  // namespace farverbs::io
