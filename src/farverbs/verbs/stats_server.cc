#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "farverbs/base/quiet_signals.h"
#include "farverbs/verbs/stats.h"

namespace farverbs::verbs {
namespace {

constexpr const char* kVariable = "FARVERBS_STATS";
// A reader that does not read is not waited for.
constexpr timeval kPatience{1, 0};

// Who this user is outside of a user namespace, in which everybody may be root.
uid_t outer_user() {
  const uid_t inside = ::geteuid();
  std::FILE* map = std::fopen("/proc/self/uid_map", "re");
  if (map == nullptr) return inside;
  unsigned first = 0, outside = 0, count = 0;
  uid_t found = inside;
  while (std::fscanf(map, "%u %u %u", &first, &outside, &count) == 3) {
    if (inside >= first && inside - first < count) found = outside + (inside - first);
  }
  std::fclose(map);
  return found;
}

Result<void> make_folders(const std::string& path) {
  for (size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    const std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      return Error::from_errno("cannot make the folder " + part);
    }
    if (at == std::string::npos) break;
  }
  struct stat status {};
  // In somebody else's folder our name could be taken by an impostor.
  if (::lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) ||
      status.st_uid != ::geteuid()) {
    return Error{EPERM, path + " is not a folder of this user"};
  }
  return {};
}

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return Error{ENAMETOOLONG, path + " is too long"};
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

bool is_same_user(int connection) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == ::geteuid();
}

void send_all(int connection, std::string_view text) {
  ::setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
  while (!text.empty()) {
    const ssize_t n = ::send(connection, text.data(), text.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

std::string stats_folder() {
  if (const char* chosen = std::getenv(kVariable); chosen != nullptr && *chosen == '/') {
    return chosen;
  }
  const uid_t user = outer_user();
  if (user == 0) return "/run/farverbs/stats";
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  return runtime != nullptr && *runtime == '/' ? std::string(runtime) + "/farverbs/stats"
                                               : "/tmp/farverbs-" + std::to_string(user) + "/stats";
}

bool stats_wanted_by_environment() {
  const char* text = std::getenv(kVariable);
  return text != nullptr && *text != '\0' && std::strcmp(text, "0") != 0;
}

namespace detail {

Result<std::unique_ptr<StatsServer>> StatsServer::start(DeviceState& device,
                                                        const std::string& folder) {
  static std::atomic<unsigned> devices{0};
  FV_TRY(make_folders(folder));
  const std::string path = folder + "/" + std::to_string(::getpid()) + "-" +
                           std::to_string(devices.fetch_add(1)) + ".sock";
  FV_ASSIGN(const sockaddr_un address, address_of(path));
  io::FileDescriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // Left by a process that had this number before.
  ::unlink(path.c_str());
  if (!listener.valid() ||
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener.get(), 8) != 0) {
    return Error::from_errno("cannot listen on " + path);
  }
  FV_ASSIGN(io::Waker waker, io::Waker::create());
  std::unique_ptr<StatsServer> server(
      new StatsServer(device, path, std::move(listener), std::move(waker)));
  const QuietSignals quiet;
  server->thread_ = std::thread([raw = server.get()] { raw->run(); });
  return server;
}

StatsServer::~StatsServer() {
  if (thread_.joinable()) {
    waker_.wake();
    thread_.join();
  }
  ::unlink(path_.c_str());
}

void StatsServer::run() {
  while (true) {
    pollfd fds[2] = {{listener_.get(), POLLIN, 0}, {waker_.fd(), POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0 && errno != EINTR) return;
    if (fds[1].revents != 0) return;
    const io::FileDescriptor connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.valid() && is_same_user(connection.get())) {
      send_all(connection.get(), stats_snapshot(device_));
    }
  }
}

}  // namespace detail
}  // namespace farverbs::verbs
