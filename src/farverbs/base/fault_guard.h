// FaultGuard: touching application memory that may have gone (a mapped file was truncated: SIGBUS; a
// registered range was unmapped: SIGSEGV) without ending the process. `guarded(f)` runs f and gives
// false if it faulted; f must be a leaf that owns nothing (copy, CRC, one atomic). The handlers pass
// every other fault on to whoever handled the signal before.
#pragma once

#include <csetjmp>
#include <csignal>

namespace farverbs {

// Installs the process-wide handlers; cheap when done already. Call it from the thread that starts an
// engine, again if something else may have replaced them.
void install_fault_guard();

namespace fault_guard_detail {
extern thread_local sigjmp_buf* active;
}

// False if f touched memory that is not there. The copy may be partly done then.
template <typename F>
__attribute__((noinline)) bool guarded(F&& f) {
  sigjmp_buf environment;
  if (sigsetjmp(environment, 0) != 0) {
    fault_guard_detail::active = nullptr;
    return false;
  }
  fault_guard_detail::active = &environment;
  __asm__ volatile("" ::: "memory");
  f();
  __asm__ volatile("" ::: "memory");
  fault_guard_detail::active = nullptr;
  return true;
}

}  // namespace farverbs
