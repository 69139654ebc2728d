#include "tools/compare/programs.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/compare/result.h"

namespace farverbs::tools::compare {
namespace {

using nlohmann::json;

constexpr double kStep = 0.05;  // of our time line
constexpr const char* kTcpStep = "0.1";

std::string output_of(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  std::string text;
  char part[4096];
  for (size_t n; (n = std::fread(part, 1, sizeof part, pipe)) > 0;) text.append(part, n);
  ::pclose(pipe);
  return text;
}

bool kernel_offers(const std::string& congestion) {
  std::ifstream file("/proc/sys/net/ipv4/tcp_available_congestion_control");
  for (std::string word; file >> word;) {
    if (word == congestion) return true;
  }
  return false;
}

std::string needs_congestion(const std::string& congestion) {
  if (kernel_offers(congestion)) return {};
  return fmt::format("the kernel does not offer {}: modprobe tcp_{}", congestion, congestion);
}

std::string needs_switch(const std::string& help, const char* name) {
  return help.find(name) != std::string::npos
             ? std::string()
             : fmt::format("not available: `farverbs perf client` has no {}", name);
}

// A few milliseconds of the line, so that the time line is smooth and little is lost to the last
// packet of each message.
uint64_t message_bytes(const Line& line) {
  return line.rate > 0 && line.rate < 500e6 ? 256 << 10 : 1 << 20;
}

// What is on its way, the queue, and what waits out of order.
uint64_t depth_for(const Line& line) {
  const double bdp = line.rate / 8 * std::max(line.rtt, 0.001);
  const auto messages = static_cast<uint64_t>(4 * bdp / static_cast<double>(message_bytes(line)));
  return std::clamp<uint64_t>(messages, 32, 4096);
}

Result<FlowReport> read_perf(const json& report) {
  FlowReport flow;
  const json& line = report.at("timeline");
  flow.rate.step = line.at("interval_seconds").get<double>();
  flow.rate.bytes = line.at("bytes").get<std::vector<double>>();
  flow.payload = flow.rate.total();
  flow.packet.payload = report.at("full_packet").at("payload_bytes").get<double>();
  flow.packet.ip = report.at("full_packet").at("ip_bytes").get<double>();
  const json& cpu = report.at("cpu");
  flow.cpu_seconds =
      cpu.at("client_seconds").get<double>() + cpu.at("server_seconds").get<double>();
  flow.retransmitted_bytes =
      report.at("counters").at("client").at("retransmitted_bytes").get<double>();
  return flow;
}

// The receiver's intervals: what had arrived, not what the sender's kernel had taken.
Result<FlowReport> read_iperf(const json& client, const json& server) {
  if (client.contains("error")) return Error{EIO, "iperf3: " + client["error"].get<std::string>()};
  FlowReport flow;
  flow.rate.step = 0.1;
  for (const json& interval : server.at("intervals")) {
    const json& sum = interval.at("sum");
    flow.rate.add(sum.at("start").get<double>(), sum.at("end").get<double>(),
                  sum.at("bytes").get<double>());
  }
  flow.payload = flow.rate.total();
  flow.packet = kTcpPacket;
  const json& end = client.at("end");
  const json& cpu = end.at("cpu_utilization_percent");
  const double seconds = end.at("sum_sent").at("seconds").get<double>();
  flow.cpu_seconds =
      (cpu.at("host_total").get<double>() + cpu.at("remote_total").get<double>()) / 100 * seconds;
  flow.retransmitted_bytes =
      end.at("sum_sent").at("retransmits").get<double>() * kTcpPacket.payload;
  return flow;
}

}  // namespace

std::string own_path() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::stringstream folders(std::string(path == nullptr ? "" : path) +
                            ":/usr/local/sbin:/usr/sbin:/sbin:/usr/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = folder + "/" + name;
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

Offer find_offer() {
  Offer offer;
  if (find_program("iperf3").empty()) offer.iperf3 = "iperf3 is missing: apt install iperf3";
  offer.cubic = needs_congestion("cubic");
  offer.bbr = needs_congestion("bbr");
  if (find_program("scp").empty() || find_program("sshd").empty() ||
      find_program("ssh-keygen").empty()) {
    offer.scp = "scp, ssh-keygen or sshd is missing: apt install openssh-client openssh-server";
  }
  if (find_program("rsync").empty()) offer.rsync = "rsync is missing: apt install rsync";
  const std::string help = output_of("'" + own_path() + "' perf client --help 2>/dev/null");
  offer.classes = needs_switch(help, "--class");
  offer.transports = needs_switch(help, "--transport");
  offer.correction = needs_switch(help, "--fec");
  return offer;
}

std::string congestion_of(const std::string& program) {
  if (program.find("CUBIC") != std::string::npos) return "cubic";
  if (program.find("BBR") != std::string::npos) return "bbr";
  return {};
}

std::vector<std::string> server_words(const Flow& flow, uint16_t port) {
  if (!congestion_of(flow.program).empty()) {
    return {"iperf3", "-s", "-1", "-J", "-i", kTcpStep, "-p", std::to_string(port)};
  }
  return {own_path(), "perf", "server", "--once", "--port", std::to_string(port)};
}

std::vector<std::string> client_words(const Flow& flow, const Line& line, const std::string& peer,
                                      uint16_t port) {
  const std::string seconds = fmt::format("{:g}", flow.seconds);
  if (const std::string word = congestion_of(flow.program); !word.empty()) {
    // Whole seconds only.
    return {"iperf3",
            "-c",
            peer,
            "-p",
            std::to_string(port),
            "-C",
            word,
            "-J",
            "-i",
            kTcpStep,
            "-t",
            fmt::format("{:.0f}", std::max(flow.seconds, 1.0))};
  }
  std::vector<std::string> words = {own_path(),
                                    "perf",
                                    "client",
                                    peer,
                                    "--port",
                                    std::to_string(port),
                                    "--json",
                                    "--warmup",
                                    "0",
                                    "--timeline",
                                    fmt::format("{:g}", kStep)};
  const bool paced =
      std::find(flow.more.begin(), flow.more.end(), "--rate-messages") != flow.more.end();
  if (!paced) {
    for (const std::string& word : {std::string("--size"), std::to_string(message_bytes(line)),
                                    std::string("--depth"), std::to_string(depth_for(line))}) {
      words.push_back(word);
    }
  }
  words.insert(words.end(), {"--seconds", seconds});
  words.insert(words.end(), flow.more.begin(), flow.more.end());
  return words;
}

Result<json> read_json(const std::string& text) {
  // perf server and others may say a line before.
  const size_t brace = text.find('{');
  json value = json::parse(brace == std::string::npos ? text : text.substr(brace), nullptr, false);
  if (!value.is_object()) return Error{EPROTO, "not a report: " + text.substr(0, 200)};
  return value;
}

Result<FlowReport> read_flow(const Flow& flow, const std::string& client_output,
                             const std::string& server_output) {
  FV_ASSIGN(const json client, read_json(client_output));
  try {
    if (congestion_of(flow.program).empty()) return read_perf(client);
    FV_ASSIGN(const json server, read_json(server_output));
    return read_iperf(client, server);
  } catch (const json::exception& error) {
    return Error{EPROTO,
                 fmt::format("a report of {} lacks something: {}", flow.program, error.what())};
  }
}

}  // namespace farverbs::tools::compare
