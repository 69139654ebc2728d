// What this process has cost so far, and what time it is, for tools that measure.
#pragma once

#include <sys/resource.h>
#include <time.h>

#include "farverbs/base/time.h"

namespace farverbs::tools {

// CLOCK_MONOTONIC, which no step of the wall clock disturbs.
inline Time clock_now() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return Time::from_ns(int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec);
}

// User and system time of all threads.
inline Duration cpu_time() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) {
    return Duration::seconds(t.tv_sec) + Duration::microseconds(t.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

}  // namespace farverbs::tools
