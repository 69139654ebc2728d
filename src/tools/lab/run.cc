#include "tools/lab/run.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "tools/lab/process.h"

namespace farverbs::tools::lab {
namespace {

constexpr int kPatienceMs = 2000;

// Hands the terminal to B's command, so that it can read and gets the keyboard's signals, and takes
// it back at the end. Does nothing if this process does not own a terminal.
class Terminal {
 public:
  Terminal() : owned_(::isatty(STDIN_FILENO) && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp()) {}
  ~Terminal() { give_to(::getpgrp()); }
  void give_to(pid_t group) const {
    if (!owned_) return;
    // A background process that sets the terminal's group is stopped unless it ignores this.
    const auto before = ::signal(SIGTTOU, SIG_IGN);
    ::tcsetpgrp(STDIN_FILENO, group);
    ::signal(SIGTTOU, before);
  }

 private:
  bool owned_;
};

// The signals that this run waits for instead of being interrupted; restored at the end.
class WaitedSignals {
 public:
  WaitedSignals() {
    ::sigemptyset(&set_);
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&set_, signal);
    ::sigprocmask(SIG_BLOCK, &set_, &before_);
  }
  ~WaitedSignals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  int wait() const {
    int signal = 0;
    return ::sigwait(&set_, &signal) == 0 ? signal : 0;
  }

 private:
  sigset_t set_;
  sigset_t before_;
};

class Run {
 public:
  Run(NetPath path, SharedStats* stats) : path_(std::move(path)), stats_(stats) {}
  ~Run() { end(); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Result<void> start(const EmulatorConfig& config, const std::string& a, const std::string& b) {
    const pid_t self = ::getpid();
    emulator_ = ::fork();
    if (emulator_ < 0) return Error::from_errno("cannot start the emulator");
    if (emulator_ == 0) {
      ::setpgid(0, 0);
      ::_exit(emulate(config, path_, stats_, self));
    }
    // Only the emulator keeps the devices, so that they vanish with it.
    for (NetEnd* end : {&path_.a, &path_.b}) {
      ::close(end->tun);
      end->tun = -1;
    }
    FV_ASSIGN(a_, start_command(a, "a", path_.a, path_.b, false));
    FV_ASSIGN(b_, start_command(b, "b", path_.b, path_.a, true));
    terminal_.give_to(b_);
    return {};
  }

  // Until B ended, the emulator died or a signal came.
  Result<int> wait(const WaitedSignals& signals) {
    while (true) {
      const int signal = signals.wait();
      if (signal != SIGCHLD) {
        ::kill(-b_, signal);
        return 128 + signal;
      }
      int status = 0;
      for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid == emulator_) {
          emulator_ = -1;
          return Error{EIO, "the emulator ended (exit code " +
                                std::to_string(exit_code_of(status)) + "); the run is void"};
        }
        if (pid == a_) {
          a_ended_ = true;
          if (exit_code_of(status) != 0) {
            std::fprintf(stderr, "lab: A's command ended with exit code %d before B's\n",
                         exit_code_of(status));
          }
        }
        if (pid == b_) return exit_code_of(status);
      }
    }
  }

  // Ends all that runs, in an order that lets the last packets be counted.
  void end() {
    if (a_ > 0 && !a_ended_) {
      ::kill(-a_, SIGTERM);
      if (!wait_for_child(a_, kPatienceMs)) ::kill(-a_, SIGKILL);
    }
    if (path_.a.netns >= 0) end_processes_in({path_.a.inode, path_.b.inode}, kPatienceMs);
    if (emulator_ > 0) {
      ::kill(emulator_, SIGTERM);
      if (!wait_for_child(emulator_, kPatienceMs)) {
        ::kill(emulator_, SIGKILL);
        ::waitpid(emulator_, nullptr, 0);
      }
    }
    while (::waitpid(-1, nullptr, WNOHANG) > 0) continue;
    close_end(path_.a);
    close_end(path_.b);
    a_ = b_ = emulator_ = -1;
  }

 private:
  NetPath path_;
  SharedStats* stats_;
  Terminal terminal_;
  pid_t emulator_ = -1;
  pid_t a_ = -1;
  pid_t b_ = -1;
  bool a_ended_ = false;
};

}  // namespace

Result<RunResult> run_lab(const EmulatorConfig& config, const NetOptions& net, const std::string& a,
                          const std::string& b) {
  const WaitedSignals signals;
  FV_ASSIGN(NetPath path, make_path(net));
  FV_ASSIGN(SharedStats* const stats, map_stats(-1));
  RunResult result;
  {
    Run run(std::move(path), stats);
    FV_TRY(run.start(config, a, b));
    FV_ASSIGN(result.exit_code, run.wait(signals));
  }
  if (!stats->read(result.stats)) return Error{EIO, "the emulator died while it wrote statistics"};
  return result;
}

}  // namespace farverbs::tools::lab
