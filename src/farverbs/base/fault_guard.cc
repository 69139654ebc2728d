#include "farverbs/base/fault_guard.h"

#include <pthread.h>
#include <ucontext.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>

#include "farverbs/base/check.h"

namespace farverbs {

namespace fault_guard_detail {
thread_local sigjmp_buf* active __attribute__((tls_model("initial-exec"))) = nullptr;
}  // namespace fault_guard_detail

namespace {

constexpr std::array kSignals = {SIGBUS, SIGSEGV};

// Who handled a signal before. They are published to running handlers and so never freed; there is
// one per replacement by somebody else, which is seldom more than one in a process's life.
struct Predecessors {
  struct sigaction newest;  // what the latest installation replaced
  struct sigaction oldest;  // what the first one replaced
};
std::array<std::atomic<const Predecessors*>, kSignals.size()> predecessors;

// Set while a predecessor runs. If that one had itself chained to us, the fault comes back here,
// and must go to the oldest handler rather than round in a circle.
thread_local bool chaining __attribute__((tls_model("initial-exec"))) = false;

size_t index_of(int signal) { return signal == kSignals[0] ? 0 : 1; }

// Gives the signal its default action and makes it happen.
void die(int signal, const siginfo_t* info) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  sigaction(signal, &action, nullptr);
  // A fault happens again when the instruction is repeated, with the address in the core dump; a
  // signal that somebody sent has to be sent again.
  if (info->si_code <= 0) pthread_kill(pthread_self(), signal);
}

void call(const struct sigaction& previous, int signal, siginfo_t* info, void* context) {
  if ((previous.sa_flags & SA_SIGINFO) == 0) {
    if (previous.sa_handler == SIG_IGN && info->si_code <= 0) return;
    // The kernel does not let a fault be ignored either.
    if (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN) return die(signal, info);
  }
  // The signal mask as the predecessor asked for it.
  sigset_t blocked = previous.sa_mask;
  if ((previous.sa_flags & SA_NODEFER) == 0) sigaddset(&blocked, signal);
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  chaining = true;
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else {
    previous.sa_handler(signal);
  }
  chaining = false;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void on_fault(int signal, siginfo_t* info, void* context) {
  // si_code > 0: the kernel speaks of the instruction that this thread is at. A SIGSEGV that
  // another process sent is no reason to leave the guarded function.
  if (sigjmp_buf* environment = fault_guard_detail::active;
      environment != nullptr && info->si_code > 0) {
    // The jump restores no signal mask, since saving one would cost guarded() a system call. This
    // is the one that was interrupted.
    pthread_sigmask(SIG_SETMASK, &static_cast<ucontext_t*>(context)->uc_sigmask, nullptr);
    siglongjmp(*environment, 1);
  }
  const int saved_errno = errno;
  const Predecessors* chain = predecessors[index_of(signal)].load(std::memory_order_acquire);
  call(chaining ? chain->oldest : chain->newest, signal, info, context);
  errno = saved_errno;
}

}  // namespace

void install_fault_guard() {
  static std::mutex mutex;
  const std::lock_guard guard(mutex);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction current {};
    FV_CHECK(sigaction(kSignals[i], nullptr, &current) == 0);
    if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == on_fault) continue;

    const Predecessors* known = predecessors[i].load(std::memory_order_relaxed);
    predecessors[i].store(new Predecessors{current, known == nullptr ? current : known->oldest},
                          std::memory_order_release);
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    sigemptyset(&action.sa_mask);
    // SA_NODEFER: a predecessor that asked for it (because it jumps out as well) finds the signal
    // unblocked; for any other one call() blocks it.
    // SA_ONSTACK: a predecessor that runs on the thread's alternate stack, to report a stack
    // overflow, needs us to run there too; where there is none the flag does nothing.
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    FV_CHECK(sigaction(kSignals[i], &action, nullptr) == 0);
  }
}

}  // namespace farverbs
