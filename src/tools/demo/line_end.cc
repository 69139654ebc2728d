#include "tools/demo/line_end.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "farverbs/verbs/rendezvous.h"
#include "tools/demo/report.h"
#include "tools/demo/tcp_file.h"

namespace farverbs::tools::demo {
namespace {

constexpr uint16_t kTcpPort = 7472;
constexpr Duration kPatience = Duration::seconds(10);
constexpr auto kSampling = std::chrono::milliseconds(20);
constexpr int kUnavailable = 3;
constexpr const char* kFarverbs = "farverbs";

Result<IpAddress> lab_address(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return invalid(std::string(variable) + " is not set: run it in a lab");
  return IpAddress::parse(text);
}

/// Bytes this network namespace has received, loopback left out.
uint64_t bytes_received() {
  std::ifstream devices("/proc/self/net/dev");
  uint64_t total = 0;
  for (std::string line; std::getline(devices, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.substr(0, colon).find("lo") != std::string::npos)
      continue;
    total += std::strtoull(line.c_str() + colon + 1, nullptr, 10);
  }
  return total;
}

std::string last_line(const std::string& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

/// In a child: replaces it by `farverbs cp`.
[[noreturn]] void execute_copy(const std::string& source, const std::string& copy) {
  const std::string program = own_path();
  ::execl(program.c_str(), "farverbs", "cp", source.c_str(), copy.c_str(), nullptr);
  std::perror(program.c_str());
  ::_exit(1);
}

/// In a child: the TCP transfer.
[[noreturn]] void receive_by_tcp(const IpAddress& peer, const std::string& copy) {
  const Result<void> result = receive_file({peer, kTcpPort}, copy, kPatience);
  if (!result.ok()) fmt::print(stderr, "{}\n", result.error().message);
  std::fflush(stderr);
  ::_exit(result.ok() ? 0 : result.error().code == ENOPROTOOPT ? kUnavailable : 1);
}

pid_t start_transfer(const EndOptions& options, const IpAddress& peer, const std::string& log) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  const int output = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  if (options.way != kFarverbs) receive_by_tcp(peer, options.copy);
  const std::string host = peer.is_v4() ? peer.to_string() : "[" + peer.to_string() + "]";
  const std::string name = std::filesystem::path(options.file).filename();
  execute_copy("farverbs://" + host + "/" + name, options.copy);
}

Outcome outcome_of(int wait_status) {
  if (!WIFEXITED(wait_status)) return Outcome::kFailed;
  switch (WEXITSTATUS(wait_status)) {
    case 0:
      return Outcome::kDone;
    case kUnavailable:
      return Outcome::kUnavailable;
    default:
      return Outcome::kFailed;
  }
}

/// Samples until `child` ends, and ends it when it takes too long.
Transfer watch(pid_t child, double limit_seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point began = Clock::now();
  const uint64_t before = bytes_received();
  Transfer transfer;
  int status = 0;
  while (true) {
    const bool ended = ::waitpid(child, &status, WNOHANG) == child;
    transfer.seconds = std::chrono::duration<double>(Clock::now() - began).count();
    transfer.samples.push_back({transfer.seconds, bytes_received() - before});
    if (ended) break;
    if (transfer.seconds > limit_seconds) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      transfer.outcome = Outcome::kStopped;
      return transfer;
    }
    std::this_thread::sleep_for(kSampling);
  }
  transfer.outcome = outcome_of(status);
  return transfer;
}

}  // namespace

std::string own_path() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

Result<void> run_sender(const EndOptions& options) {
  FV_ASSIGN(const IpAddress self, lab_address("FARVERBS_LAB_SELF"));
  if (options.way != kFarverbs) return send_file({self, kTcpPort}, options.file, options.way);
  const std::string program = own_path();
  const std::string root = std::filesystem::path(options.file).parent_path();
  const std::string address = self.to_string();
  ::execl(program.c_str(), "farverbs", "serve", "--root", root.c_str(), "--bind", address.c_str(),
          "--insecure-listen", nullptr);
  return Error::from_errno(program);
}

Result<void> run_receiver(const EndOptions& options) {
  FV_ASSIGN(const IpAddress peer, lab_address("FARVERBS_LAB_PEER"));
  // The server's start is no part of a copy.
  const uint16_t port = options.way == kFarverbs ? verbs::kRendezvousPort : kTcpPort;
  FV_ASSIGN(const int probe, connect_patiently({peer, port}, kPatience));
  ::close(probe);
  const std::string log = options.report + ".log";
  const pid_t child = start_transfer(options, peer, log);
  if (child < 0) return Error::from_errno("fork");
  Transfer transfer = watch(child, options.limit_seconds);
  if (transfer.outcome != Outcome::kDone) transfer.message = last_line(log);
  std::ofstream report(options.report);
  report << to_json(transfer).dump();
  report.close();
  if (!report) return Error{EIO, "cannot write " + options.report};
  return {};
}

}  // namespace farverbs::tools::demo
