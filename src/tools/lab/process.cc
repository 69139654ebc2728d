#include "tools/lab/process.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace farverbs::tools::lab {
namespace {

constexpr int kPatienceMs = 2000;

std::atomic<bool> stop_requested{false};

void request_stop(int) { stop_requested.store(true, std::memory_order_relaxed); }

void reset_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD, SIGTTOU}) {
    ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void become_command(const std::string& command, const std::string& side,
                                 const NetEnd& self, const NetEnd& peer, bool read_stdin) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (!read_stdin) {
    const int null = ::open("/dev/null", O_RDONLY);
    ::dup2(null, STDIN_FILENO);
    ::close(null);
  }
  if (const auto entered = enter_end(self.netns); !entered.ok()) {
    std::fprintf(stderr, "farverbs lab: %s\n", entered.error().message.c_str());
    ::_exit(126);
  }
  set_side_environment(side, self.address, peer.address);
  reset_signals();
  ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
  std::perror("farverbs lab: cannot start /bin/sh");
  ::_exit(126);
}

}  // namespace

Result<SharedStats*> map_stats(int fd) {
  if (fd >= 0 && ::ftruncate(fd, sizeof(SharedStats)) != 0) {
    return Error::from_errno("cannot size the statistics file");
  }
  void* memory = ::mmap(nullptr, sizeof(SharedStats), PROT_READ | PROT_WRITE,
                        MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
  if (memory == MAP_FAILED) return Error::from_errno("cannot map the statistics");
  return new (memory) SharedStats;
}

int emulate(const EmulatorConfig& config, const NetPath& path, SharedStats* stats, pid_t parent,
            const SharedConfig* control) {
  struct sigaction action {};
  action.sa_handler = request_stop;
  ::sigaction(SIGTERM, &action, nullptr);
  ::signal(SIGINT, SIG_IGN);
  ::signal(SIGHUP, SIG_IGN);
  if (parent != 0) ::prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const bool orphaned_early = parent != 0 && ::getppid() != parent;
  Emulator emulator(config, {path.a.tun, path.a.netdev}, {path.b.tun, path.b.netdev}, stats,
                    control);
  const bool ok = orphaned_early || emulator.run(stop_requested);
  if (parent == 0 || ::getppid() != parent) {
    end_processes_in({path.a.inode, path.b.inode}, kPatienceMs);
  }
  return ok ? 0 : 1;
}

void set_side_environment(const std::string& side, const std::string& self,
                          const std::string& peer) {
  ::setenv("FARVERBS_LAB_SIDE", side.c_str(), 1);
  ::setenv("FARVERBS_LAB_SELF", self.c_str(), 1);
  ::setenv("FARVERBS_LAB_PEER", peer.c_str(), 1);
}

Result<pid_t> start_command(const std::string& command, const std::string& side, const NetEnd& self,
                            const NetEnd& peer, bool read_stdin) {
  const pid_t pid = ::fork();
  if (pid < 0) return Error::from_errno("cannot start the command of side " + side);
  if (pid == 0) become_command(command, side, self, peer, read_stdin);
  ::setpgid(pid, pid);
  return pid;
}

int exit_code_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

bool wait_for_child(pid_t pid, int milliseconds) {
  for (int waited = 0;; waited += 5) {
    const pid_t ended = ::waitpid(pid, nullptr, WNOHANG);
    if (ended != 0) return true;  // it ended now, or had been waited for
    if (waited >= milliseconds) return false;
    ::usleep(5000);
  }
}

}  // namespace farverbs::tools::lab
