#include "tools/lab/daemon.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "tools/lab/options.h"
#include "tools/lab/process.h"

namespace farverbs::tools::lab {
namespace {

constexpr int kPatienceMs = 6000;

// What the starting process is told: a code (0: up) and the state or the error in words.
void report(int pipe, int code, const std::string& text) {
  (void)!::write(pipe, &code, sizeof code);
  (void)!::write(pipe, text.data(), text.size());
  ::close(pipe);
}

void leave_terminal() {
  const int null = ::open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, fd);
  if (null > STDERR_FILENO) ::close(null);
}

struct Background {
  NetPath path;
  SharedStats* stats = nullptr;
  SharedConfig* control = nullptr;
};

// A file of the lab's as shared memory, sized by whoever makes it and never unmapped.
template <typename Shared>
Result<Shared*> map_file(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | flags, 0600);
  if (fd < 0) return Error::from_errno("cannot open " + path);
  struct stat status {};
  void* memory = MAP_FAILED;
  if (((flags & O_CREAT) == 0 || ::ftruncate(fd, sizeof(Shared)) == 0) &&
      ::fstat(fd, &status) == 0 && status.st_size == sizeof(Shared)) {
    memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  ::close(fd);
  if (memory == MAP_FAILED) {
    return invalid(path +
                   " is not of this version of farverbs: end the lab with the one that made it");
  }
  return static_cast<Shared*>(memory);
}

Result<Background> prepare(const std::string& folder, const std::string& name, int state_fd,
                           const EmulatorConfig& config, const NetOptions& net) {
  Background background;
  const std::string path = stats_file(folder, name);
  const int stats_fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (stats_fd < 0) return Error::from_errno("cannot open " + path);
  FV_ASSIGN(background.stats, map_stats(stats_fd));
  ::close(stats_fd);
  FV_ASSIGN(background.control,
            map_file<SharedConfig>(control_file(folder, name), O_CREAT | O_TRUNC));
  background.control->write(config);
  FV_ASSIGN(background.path, make_path(net));
  // Entering a user namespace may hide this process from its owner, who has to open its files.
  ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  LabState state;
  state.name = name;
  state.pid = ::getpid();
  state.user_namespace = background.path.user_namespace;
  state.description = describe(config);
  state.a = {background.path.a.netns, background.path.a.address};
  state.b = {background.path.b.netns, background.path.b.address};
  FV_TRY(write_state(state_fd, state));
  return background;
}

[[noreturn]] void be_background(const std::string& folder, const std::string& name, int state_fd,
                                int pipe, const EmulatorConfig& config, const NetOptions& net) {
  ::setsid();
  auto background = prepare(folder, name, state_fd, config, net);
  if (!background.ok()) {
    report(pipe, background.error().code, background.error().message);
    ::_exit(1);
  }
  leave_terminal();
  report(pipe, 0, "");
  ::_exit(emulate(config, background->path, background->stats, 0, background->control));
}

Result<const SharedStats*> open_stats(const std::string& folder, const std::string& name) {
  const std::string path = stats_file(folder, name);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Error::from_errno("cannot open " + path);
  struct stat status {};
  void* memory = MAP_FAILED;
  if (::fstat(fd, &status) == 0 && status.st_size == sizeof(SharedStats)) {
    memory = ::mmap(nullptr, sizeof(SharedStats), PROT_READ, MAP_SHARED, fd, 0);
  }
  ::close(fd);
  if (memory == MAP_FAILED) {
    return invalid(path +
                   " is not of this version of farverbs: end the lab with the one that made "
                   "it");
  }
  return static_cast<const SharedStats*>(memory);
}

// Whether nobody holds the record's lock any more.
bool is_over(const std::string& folder, const std::string& name) {
  const auto state = read_state(folder, name);
  return !state.ok() && state.error().code != EAGAIN;
}

Result<void> enter(const LabState& state, const SideState& side) {
  const std::string proc = "/proc/" + std::to_string(state.pid);
  const int netns =
      ::open((proc + "/fd/" + std::to_string(side.netns_fd)).c_str(), O_RDONLY | O_CLOEXEC);
  if (netns < 0) return Error::from_errno("cannot open the namespace of the lab " + state.name);
  if (state.user_namespace) {
    const int user = ::open((proc + "/ns/user").c_str(), O_RDONLY | O_CLOEXEC);
    if (user < 0 || ::setns(user, CLONE_NEWUSER) != 0) {
      return Error::from_errno("cannot enter the user namespace of the lab " + state.name);
    }
    ::close(user);
  }
  return enter_end(netns);
}

}  // namespace

Result<LabState> bring_up(const std::string& name, const EmulatorConfig& config,
                          const NetOptions& net) {
  FV_TRY(check_name(name));
  FV_ASSIGN(const std::string folder, state_folder());
  FV_ASSIGN(const int state_fd, claim_state(folder, name));
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) return Error::from_errno("cannot make a pipe");
  const pid_t pid = ::fork();
  if (pid < 0) return Error::from_errno("cannot start the emulator");
  if (pid == 0) {
    ::close(pipe[0]);
    be_background(folder, name, state_fd, pipe[1], config, net);
  }
  ::close(pipe[1]);
  ::close(state_fd);  // the lock stays with the child's copy
  int code = -1;
  const bool answered = ::read(pipe[0], &code, sizeof code) == sizeof code;
  std::string text(1024, '\0');
  const ssize_t n = ::read(pipe[0], text.data(), text.size());
  ::close(pipe[0]);
  if (answered && code == 0) return read_state(folder, name);
  remove_state(folder, name);
  if (!answered) return Error{EIO, "the emulator ended while it was started"};
  text.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return Error{code, text};
}

Result<std::optional<LabStats>> bring_down(const std::string& name) {
  FV_TRY(check_name(name));
  FV_ASSIGN(const std::string folder, state_folder());
  const auto state = read_state(folder, name);
  if (!state.ok() && state.error().code == ESRCH) {
    remove_state(folder, name);
    return std::optional<LabStats>();
  }
  FV_TRY(state);
  const auto shared = open_stats(folder, name);
  ::kill(state->pid, SIGTERM);
  for (int waited = 0; !is_over(folder, name); waited += 10) {
    if (waited == kPatienceMs) ::kill(state->pid, SIGKILL);
    if (waited > 2 * kPatienceMs) return Error{EBUSY, "the emulator does not end"};
    ::usleep(10'000);
  }
  std::optional<LabStats> stats(std::in_place);
  if (!shared.ok() || !(*shared)->read(*stats)) stats.reset();
  remove_state(folder, name);
  return stats;
}

Error exec_in(const std::string& name, const std::string& side,
              const std::vector<std::string>& command) {
  const auto enter_side = [&]() -> Result<void> {
    FV_TRY(check_name(name));
    FV_ASSIGN(const std::string folder, state_folder());
    FV_ASSIGN(const LabState state, read_state(folder, name));
    const bool is_a = side == "a";
    const SideState& self = is_a ? state.a : state.b;
    const SideState& peer = is_a ? state.b : state.a;
    set_side_environment(side, self.address, peer.address);
    return enter(state, self);
  };
  if (const auto entered = enter_side(); !entered.ok()) return entered.error();
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  return Error::from_errno("cannot start " + command[0]);
}

Result<EmulatorConfig> change_path(const std::string& name,
                                   const std::function<Result<void>(EmulatorConfig&)>& change) {
  FV_TRY(check_name(name));
  FV_ASSIGN(const std::string folder, state_folder());
  FV_TRY(read_state(folder, name));
  const std::string path = control_file(folder, name);
  FV_ASSIGN(SharedConfig* const control, map_file<SharedConfig>(path, 0));
  const int lock = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const auto edit = [&]() -> Result<EmulatorConfig> {
    if (lock < 0 || ::flock(lock, LOCK_EX) != 0) return Error::from_errno("cannot lock " + path);
    EmulatorConfig config;
    uint32_t version = 0;
    if (!control->read(config, &version)) {
      return Error{EIO, "the lab's path cannot be read: whoever changed it last died"};
    }
    FV_TRY(change(config));
    control->write(config);
    return config;
  };
  auto changed = edit();
  if (lock >= 0) ::close(lock);
  ::munmap(control, sizeof *control);
  return changed;
}

Result<LabStats> running_stats(const std::string& name) {
  FV_TRY(check_name(name));
  FV_ASSIGN(const std::string folder, state_folder());
  FV_TRY(read_state(folder, name));
  FV_ASSIGN(const SharedStats* const shared, open_stats(folder, name));
  LabStats stats;
  const bool read = shared->read(stats);
  ::munmap(const_cast<SharedStats*>(shared), sizeof *shared);
  if (!read) return Error{EIO, "the statistics of the lab cannot be read: its emulator died"};
  return stats;
}

}  // namespace farverbs::tools::lab
