// FaultGuard: touching application memory that may have gone (a mapped file was truncated: SIGBUS;
// a registered range was unmapped: SIGSEGV) without ending the process. `guarded(f)` runs f and
// gives false if it faulted; f must be a leaf that owns nothing (copy, CRC, one atomic). The
// handlers pass every other fault on to whoever handled the signal before.
#pragma once

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstddef>

namespace farverbs {

// Installs the process-wide handlers; cheap when done already. Call it from the thread that starts
// an engine, again if something else may have replaced them.
void install_fault_guard();

namespace fault_guard_detail {
// The handlers read it on any thread, where the first use of a dynamically allocated thread-local
// could call malloc; initial-exec storage exists from the start of the thread.
extern thread_local sigjmp_buf* active __attribute__((tls_model("initial-exec")));
}  // namespace fault_guard_detail

// False if f touched memory that is not there. The copy may be partly done then. Not to be nested.
// Costs a few nanoseconds, since the signal mask is not saved.
template <typename F>
__attribute__((noinline)) bool guarded(F&& f) {
  sigjmp_buf environment;
  if (sigsetjmp(environment, 0) != 0) {
    fault_guard_detail::active = nullptr;
    return false;
  }
  fault_guard_detail::active = &environment;
  // The memory that f touches must not be touched before or after the guard.
  __asm__ volatile("" ::: "memory");
  f();
  __asm__ volatile("" ::: "memory");
  fault_guard_detail::active = nullptr;
  return true;
}

// Calls step(0), step(1), ... under one guard, `count` times at most, until one gives false or
// faults. Returns how many gave true. What a step writes through a reference may be lost when a
// later one faults: only application memory and packet buffers are written for sure.
template <typename F>
size_t guarded_run(size_t count, F&& step) {
  // Atomic, so that it is in memory and not in a register when a step faults.
  std::atomic<size_t> done{0};
  (void)guarded([&] {
    for (size_t i = 0; i < count && step(i); ++i) done.store(i + 1, std::memory_order_relaxed);
  });
  return done.load(std::memory_order_relaxed);
}

}  // namespace farverbs
