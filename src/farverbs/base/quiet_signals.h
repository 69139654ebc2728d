// QuietSignals: threads that are started while it lives get none of the application's signals, but
// those of faults, whose handlers must run in whatever thread touches the memory.
#pragma once

#include <pthread.h>

#include <csignal>

namespace farverbs {

class QuietSignals {
 public:
  QuietSignals() {
    sigset_t quiet;
    sigfillset(&quiet);
    sigdelset(&quiet, SIGBUS);
    sigdelset(&quiet, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &quiet, &before_);
  }
  ~QuietSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  QuietSignals(const QuietSignals&) = delete;
  QuietSignals& operator=(const QuietSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace farverbs
