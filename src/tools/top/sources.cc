#include "tools/top/sources.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

namespace farverbs::tools::top {
namespace {

constexpr uint64_t kMost = UINT64_MAX;
constexpr size_t kMostText = size_t{256} << 20;

std::string process_name(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  if (name != "farverbs") return name.empty() ? "?" : name;
  // Which of our tools it is: "perf client", "serve".
  std::ifstream line("/proc/" + std::to_string(pid) + "/cmdline");
  std::string word, tool;
  std::getline(line, word, '\0');
  if (std::getline(line, tool, '\0')) name = tool;
  if (tool == "perf" && std::getline(line, word, '\0')) name += " " + word;
  return name;
}

// A socket without a listener that has been there for a while: its process was killed.
void remove_if_dead(const std::filesystem::path& path) {
  struct stat status {};
  constexpr time_t kWhile = 10;
  if (::stat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode) &&
      status.st_uid == ::geteuid() && status.st_mtime + kWhile < ::time(nullptr)) {
    ::unlink(path.c_str());
  }
}

class Connection {
 public:
  explicit Connection(const std::string& path)
      : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) return;
    std::memcpy(address.sun_path, path.data(), path.size());
    const timeval patience{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    refused_ = !connected_ && errno == ECONNREFUSED;
  }
  ~Connection() {
    if (fd_ >= 0) ::close(fd_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool connected() const { return connected_; }
  bool refused() const { return refused_; }
  ucred peer() const {
    ucred peer{};
    socklen_t size = sizeof peer;
    ::getsockopt(fd_, SOL_SOCKET, SO_PEERCRED, &peer, &size);
    return peer;
  }
  std::string read_all() const {
    std::string text;
    char part[16'384];
    while (text.size() < kMostText) {
      const ssize_t n = ::read(fd_, part, sizeof part);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      text.append(part, static_cast<size_t>(n));
    }
    return text;
  }

 private:
  int fd_;
  bool connected_ = false;
  bool refused_ = false;
};

// Numbers are shown, never used to reach memory: what is missing is 0.
double number(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}
std::string text(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::map<std::string, double> numbers(const Json& object) {
  std::map<std::string, double> out;
  for (const auto& [name, value] : object.items()) {
    if (value.is_number()) out[name] = value.get<double>();
  }
  return out;
}

FlightStats parse_flight(const Json& object) {
  return {number(object, "rtt_us"),
          number(object, "min_rtt_us"),
          number(object, "window_bytes"),
          number(object, "inflight_bytes"),
          number(object, "pacing_bits_per_second"),
          number(object, "delivered_bytes")};
}

Result<PathStats> parse_path(const Json& object) {
  if (!object.is_object()) return Error{EPROTO, "'paths' has something else than paths"};
  PathStats path;
  FV_ASSIGN(path.id, json_unsigned(object, "id", 0, UINT32_MAX));
  FV_ASSIGN(path.peer, json_string(object, "peer"));
  path.traffic_class = static_cast<uint64_t>(number(object, "traffic_class"));
  path.phase = text(object, "phase");
  for (const auto& [name, value] : object.items()) {
    if (value.is_object()) path.flights[name] = parse_flight(value);
  }
  return path;
}

Result<QpStats> parse_qp(const Json& object) {
  if (!object.is_object()) return Error{EPROTO, "'qps' has something else than queue pairs"};
  QpStats qp;
  FV_ASSIGN(qp.qpn, json_unsigned(object, "qpn", 0, UINT32_MAX));
  FV_ASSIGN(qp.type, json_string(object, "type"));
  FV_ASSIGN(qp.transport, json_string(object, "transport"));
  FV_ASSIGN(qp.state, json_string(object, "state"));
  qp.service_class = text(object, "class");
  qp.peer = text(object, "peer");
  if (object.contains("path")) {
    FV_ASSIGN(const uint64_t path, json_unsigned(object, "path", 0, UINT32_MAX));
    qp.path = static_cast<int64_t>(path);
  }
  FV_ASSIGN(const Json counters, json_object(object, "counters"));
  qp.counters = numbers(counters);
  return qp;
}

}  // namespace

Result<DeviceStats> parse_stats(const std::string& words) {
  DeviceStats device;
  FV_ASSIGN(device.raw, parse_json_object(words));
  const Json& object = device.raw;
  FV_ASSIGN(const uint64_t version, json_unsigned(object, "version", 0, kMost));
  if (version != 1) {
    return Error{EPROTO, "the process speaks version " + std::to_string(version) +
                             " of the statistics: use its own farverbs"};
  }
  FV_ASSIGN(const uint64_t pid, json_unsigned(object, "pid", 0, INT32_MAX));
  device.pid = static_cast<pid_t>(pid);
  FV_ASSIGN(const uint64_t at, json_unsigned(object, "monotonic_ns", 0, kMost));
  device.seconds = static_cast<double>(at) * 1e-9;
  FV_ASSIGN(const Json about, json_object(object, "device"));
  FV_ASSIGN(device.address, json_string(about, "address"));
  device.counters = numbers(about);
  FV_ASSIGN(const Json paths, json_array(object, "paths"));
  for (const Json& path : paths) {
    FV_ASSIGN(PathStats one, parse_path(path));
    device.paths.push_back(std::move(one));
  }
  FV_ASSIGN(const Json qps, json_array(object, "qps"));
  for (const Json& qp : qps) {
    FV_ASSIGN(QpStats one, parse_qp(qp));
    device.qps.push_back(std::move(one));
  }
  return device;
}

std::vector<DeviceStats> read_all(const std::string& folder, pid_t pid) {
  std::vector<DeviceStats> devices;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".sock") continue;
    const Connection connection(entry.path());
    if (!connection.connected()) {
      if (connection.refused()) remove_if_dead(entry.path());
      continue;
    }
    const ucred peer = connection.peer();
    if (peer.uid != ::geteuid() || (pid != 0 && peer.pid != pid)) continue;
    auto device = parse_stats(connection.read_all());
    if (!device.ok()) continue;
    // As this process sees it, which may be in another namespace of numbers.
    device->pid = peer.pid;
    device->process = process_name(peer.pid);
    device->socket = entry.path().filename();
    devices.push_back(std::move(device).value());
  }
  std::sort(devices.begin(), devices.end(), [](const DeviceStats& x, const DeviceStats& y) {
    return std::tie(x.pid, x.socket) < std::tie(y.pid, y.socket);
  });
  return devices;
}

const FlightStats* flight_of(const DeviceStats& device, const QpStats& qp) {
  for (const PathStats& path : device.paths) {
    if (static_cast<int64_t>(path.id) != qp.path) continue;
    const auto found = path.flights.find(qp.transport == "far" ? "far" : "requests");
    return found == path.flights.end() ? nullptr : &found->second;
  }
  return nullptr;
}

}  // namespace farverbs::tools::top
