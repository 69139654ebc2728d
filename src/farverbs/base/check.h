// CHECK: our own bugs. It is always on, names the broken promise and ends the process. It is never
// applied to a value that a peer or the environment chose: those are a Drop or a Result.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace farverbs {

[[noreturn]] inline void check_failed(const char* what, const char* file, int line) {
  std::fprintf(stderr, "farverbs: internal error: %s (%s:%d)\n", what, file, line);
  std::abort();
}

}  // namespace farverbs

#define FV_CHECK(condition)                          \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? static_cast<void>(0)                        \
       : ::farverbs::check_failed(#condition, __FILE__, __LINE__))
