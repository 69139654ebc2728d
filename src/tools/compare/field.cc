#include "tools/compare/field.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "tools/common/process_usage.h"
#include "tools/lab/daemon.h"
#include "tools/lab/options.h"

namespace farverbs::tools::compare {
namespace {

volatile std::sig_atomic_t stop_signal = 0;
void remember_signal(int signal) { stop_signal = signal; }

constexpr Duration kListenPatience = Duration::seconds(10);
constexpr useconds_t kLook = 2'000;

Error stopped() { return {EINTR, "stopped by a signal"}; }

int index_of(char side) { return side == 'a' ? 0 : 1; }

uint64_t namespace_of(const std::string& pid) {
  struct stat status {};
  return ::stat(("/proc/" + pid + "/ns/net").c_str(), &status) == 0 ? status.st_ino : 0;
}

/// Whether somebody in the namespace of `pid` listens on a TCP port.
bool has_listener(pid_t pid, uint16_t port) {
  const std::string wanted = fmt::format(":{:04X} ", port);
  for (const char* table : {"tcp", "tcp6"}) {
    std::ifstream file(fmt::format("/proc/{}/net/{}", pid, table));
    for (std::string line; std::getline(file, line);) {
      // "  0: LOCAL:PORT REMOTE:PORT STATE": 0A is LISTEN.
      const size_t colon = line.find(wanted);
      if (colon != std::string::npos && line.find(":0000 0A") != std::string::npos) return true;
    }
  }
  return false;
}

/// A process that does nothing in a network namespace of its own until it is killed.
Result<pid_t> start_holder() {
  int ready[2];
  if (::pipe2(ready, O_CLOEXEC) != 0) return Error::from_errno("cannot make a pipe");
  const pid_t pid = ::fork();
  if (pid < 0) return Error::from_errno("cannot start a process");
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    const int code = ::unshare(CLONE_NEWNET) == 0 ? 0 : errno;
    (void)!::write(ready[1], &code, sizeof code);
    while (code == 0) ::pause();
    ::_exit(1);
  }
  ::close(ready[1]);
  int code = EPIPE;
  (void)!::read(ready[0], &code, sizeof code);
  ::close(ready[0]);
  if (code == 0) return pid;
  ::waitpid(pid, nullptr, 0);
  return Error::from_errno("cannot make a network namespace (a veth pair needs root)", code);
}

}  // namespace

Result<std::unique_ptr<Field>> Field::open(const Line& line, const std::string& folder,
                                           uint64_t seed) {
  std::unique_ptr<Field> field(new Field(folder));
  FV_TRY(line.rate > 0 ? field->open_lab(line, seed) : field->open_veth());
  return field;
}

Field::~Field() { (void)close(); }

Result<void> Field::open_lab(const Line& line, uint64_t seed) {
  lab::PathOptions path;
  path.rate = fmt::format("{:.0f}bit", line.rate);
  path.rtt = fmt::format("{:.0f}us", line.rtt * 1e6);
  // Acknowledgements cross a line that is as lossy.
  path.loss = fmt::format("{:.6f}%", line.loss * 100);
  path.burst_loss = fmt::format("{:g}", line.burst);
  path.seed = seed;
  FV_ASSIGN(const lab::EmulatorConfig config, path.emulator());
  FV_ASSIGN(const lab::NetOptions net, path.net());
  const std::string name = fmt::format("compare-{}", ::getpid());
  FV_ASSIGN(const lab::LabState state, lab::bring_up(name, config, net));
  lab_ = name;
  addresses_[0] = state.a.address;
  addresses_[1] = state.b.address;
  return {};
}

Result<void> Field::open_veth() {
  for (pid_t& holder : holders_) {
    FV_ASSIGN(holder, start_holder());
  }
  addresses_[0] = "10.89.0.1";
  addresses_[1] = "10.89.0.2";
  std::string script = fmt::format("ip link add fv0 netns {} type veth peer name fv0 netns {}",
                                   holders_[0], holders_[1]);
  for (const int i : {0, 1}) {
    const std::string in = fmt::format("nsenter -t {} -n ip ", holders_[i]);
    script +=
        fmt::format(" && {0}addr add {1}/24 dev fv0 && {0}link set fv0 up && {0}link set lo up", in,
                    addresses_[i]);
  }
  if (std::system(("{ " + script + "; } 2>/dev/null").c_str()) != 0) {
    return Error{EPERM, "cannot make a veth pair: it needs root, iproute2 and util-linux"};
  }
  return {};
}

std::string Field::address(char side) const { return addresses_[index_of(side)]; }

Error Field::enter(char side, const std::vector<std::string>& words) const {
  if (!lab_.empty()) return lab::exec_in(lab_, std::string(1, side), words);
  const std::string path = fmt::format("/proc/{}/ns/net", holders_[index_of(side)]);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || ::setns(fd, CLONE_NEWNET) != 0) return Error::from_errno("cannot enter " + path);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  return Error::from_errno("cannot start " + words[0]);
}

Result<Child*> Field::start(char side, const std::string& name,
                            const std::vector<std::string>& words) {
  auto child = std::make_unique<Child>();
  child->name = name;
  child->output = file(name + ".out");
  child->errors = file(name + ".err");
  child->pid = ::fork();
  if (child->pid < 0) return Error::from_errno("cannot start " + words[0]);
  if (child->pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    // The keyboard's signals are this comparison's, which ends its programs in order.
    ::setpgid(0, 0);
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    const int null = ::open("/dev/null", O_RDONLY);
    const int output = ::open(child->output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int errors = ::open(child->errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(null, STDIN_FILENO);
    ::dup2(output, STDOUT_FILENO);
    ::dup2(errors, STDERR_FILENO);
    const Error error = enter(side, words);
    fmt::print(stderr, "{}\n", error.message);
    std::fflush(stderr);
    ::_exit(127);
  }
  children_.push_back(std::move(child));
  return children_.back().get();
}

bool Field::reap(Child& child) {
  if (child.ended) return true;
  int status = 0;
  if (::waitpid(child.pid, &status, WNOHANG) != child.pid) return false;
  child.ended = true;
  child.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return true;
}

Result<void> Field::await_listening(Child& child, uint16_t port) {
  const uint64_t outside = namespace_of("self");
  for (const Time end = clock_now() + kListenPatience; clock_now() < end; ::usleep(kLook)) {
    if (stop_wanted()) return stopped();
    if (reap(child))
      return Error{EPIPE, fmt::format("{} ended: {}", child.name, last_words(child))};
    // Until it has entered the line its listeners would be this machine's.
    if (namespace_of(std::to_string(child.pid)) != outside && has_listener(child.pid, port)) {
      return {};
    }
  }
  return Error{ETIMEDOUT, fmt::format("{} does not listen on port {}", child.name, port)};
}

Result<void> Field::wait(Child& child, Duration patience) {
  for (const Time end = clock_now() + patience; !reap(child); ::usleep(kLook)) {
    if (stop_wanted()) return stopped();
    if (clock_now() < end) continue;
    stop(child, SIGKILL);
    return Error{ETIMEDOUT, fmt::format("{} did not end in time", child.name)};
  }
  return {};
}

void Field::stop(Child& child, int signal) {
  if (child.ended) return;
  ::kill(child.pid, signal);
  for (int looks = 0; !reap(child); ::usleep(kLook)) {
    if (++looks == 1000) ::kill(child.pid, SIGKILL);
  }
}

Result<void> Field::pause(Duration duration) {
  for (const Time end = clock_now() + duration; clock_now() < end; ::usleep(kLook)) {
    if (stop_wanted()) return stopped();
  }
  return {};
}

double Field::received_bytes(const Child& child) {
  std::ifstream devices(fmt::format("/proc/{}/net/dev", child.pid));
  double total = 0;
  for (std::string line; std::getline(devices, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.substr(0, colon).find("lo") != std::string::npos) {
      continue;
    }
    total += std::strtod(line.c_str() + colon + 1, nullptr);
  }
  return total;
}

Result<void> Field::set_down(bool down) {
  if (lab_.empty()) return invalid("a veth pair is not taken down");
  FV_TRY(lab::change_path(lab_, [&](lab::EmulatorConfig& config) {
    config.a_to_b.down = config.b_to_a.down = down;
    return Result<void>();
  }));
  return {};
}

Result<lab::LabStats> Field::close() {
  for (const auto& child : children_) stop(*child, SIGTERM);
  for (pid_t& holder : holders_) {
    if (holder < 0) continue;
    ::kill(holder, SIGKILL);
    ::waitpid(holder, nullptr, 0);
    holder = -1;
  }
  if (lab_.empty()) return lab::LabStats();
  auto stats = lab::bring_down(std::exchange(lab_, ""));
  // The emulator was a child of this process.
  while (::waitpid(-1, nullptr, WNOHANG) > 0) continue;
  if (!stats.ok()) return stats.error();
  if (!stats->has_value()) return Error{EIO, "the emulator died; the run is void"};
  return **stats;
}

std::string contents_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string last_words(const Child& child) {
  std::string text = contents_of(child.errors);
  if (text.find_first_not_of(" \n") == std::string::npos) text = contents_of(child.output);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  constexpr size_t kMost = 300;
  if (text.size() > kMost) text = "... " + text.substr(text.size() - kMost);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return fmt::format("exit code {}{}", child.exit_code, text.empty() ? "" : ": " + text);
}

void stop_on_signals() {
  std::signal(SIGINT, remember_signal);
  std::signal(SIGTERM, remember_signal);
}

bool stop_wanted() { return stop_signal != 0; }

}  // namespace farverbs::tools::compare
