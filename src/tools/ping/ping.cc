#include "tools/ping/ping.h"

#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "tools/command_line.h"
#include "tools/common/format.h"
#include "tools/ping/pinger.h"

namespace farverbs::tools {
namespace {

struct PingCommand {
  ping::PingOptions options;
  double interval = 0.2;
  double timeout = 1;
  bool json = false;
};

int run_command(PingCommand& c) {
  const auto is_seconds = [](double value) { return value > 0 && value < 1e6; };
  if (!is_seconds(c.interval) || !is_seconds(c.timeout)) {
    fmt::print(stderr, "farverbs ping: --interval and --timeout are seconds above 0\n");
    return kExitUsage;
  }
  c.options.interval = Duration::from_seconds(c.interval);
  c.options.timeout = Duration::from_seconds(c.timeout);
  const auto show = [&](uint64_t sequence, Duration round_trip) {
    if (c.json) return;
    fmt::print("{} bytes from {}: seq {}, {}\n", c.options.size, c.options.host, sequence,
               format_duration(round_trip));
    std::fflush(stdout);
  };
  const Result<ping::PingReport> report = ping::run_ping(c.options, show);
  if (!report.ok()) {
    fmt::print(stderr, "farverbs ping: {}\n", report.error().message);
    return report.error().code == EINVAL ? kExitUsage : kExitFailed;
  }
  fmt::print("{}",
             c.json ? ping::to_json(*report, c.options).dump(2) + "\n" : ping::to_text(*report));
  return report->received > 0 ? kExitOk : kExitFailed;
}

}  // namespace

void register_ping(CLI::App& app, int* exit_code) {
  auto command = std::make_shared<PingCommand>();
  PingCommand& c = *command;
  CLI::App* ping = app.add_subcommand("ping", "RDMA round trip, loss and path MTU to a server.");
  ping->footer(
      "The host runs `farverbs perf server` or `farverbs serve`. Messages go over an "
      "unreliable queue pair,\nso that what the network loses is seen. Exits with 1 when "
      "nothing came back.");
  ping->add_option("host", c.options.host, "Name or address.")->required();
  ping->add_option("--port", c.options.port, "TCP port of the server.")->capture_default_str();
  ping->add_option("--udp-port", c.options.udp_port, "UDP port of this side's device.")
      ->capture_default_str();
  ping->add_option("--count", c.options.count, "Messages.")->capture_default_str();
  ping->add_option("--interval", c.interval, "Seconds between messages.")->capture_default_str();
  ping->add_option("--timeout", c.timeout, "Seconds that a message may be under way.")
      ->capture_default_str();
  ping->add_option("--size", c.options.size, "Bytes of a message, 8 to 65536.")
      ->capture_default_str();
  ping->add_flag("--json", c.json, "Print the result as JSON.");
  ping->callback([command, exit_code] { *exit_code = run_command(*command); });
}

}  // namespace farverbs::tools
