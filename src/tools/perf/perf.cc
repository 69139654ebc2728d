#include "tools/perf/perf.h"

#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "tools/command_line.h"
#include "tools/common/class_option.h"
#include "tools/common/units_parse.h"
#include "tools/perf/client.h"
#include "tools/perf/options.h"
#include "tools/perf/report.h"
#include "tools/perf/server.h"

namespace farverbs::tools {
namespace {

constexpr const char* kClientFooter =
    R"(In bandwidth mode each queue pair keeps --depth messages outstanding, round-robin over --qps;
requests are posted in lists and one in --signal-every asks for a completion. The target of
one-sided operations sleeps: the device's background thread serves them.
In latency mode one message is in flight. SEND and WRITE are ping-pongs and the round trip is shown
(WRITE: both ends watch the last byte in memory); READ, the atomics and --target-idle show the time
from post to completion.
Memory is warm by default, one message's worth; --cold walks through 1 GiB, --region through any.
A bandwidth is of payload bits. CPU seconds are of the whole process.)";

struct ClientCommand {
  perf::Arguments arguments;
  perf::ClientPlace place;
  std::string op = "write";
  std::string mode = "bandwidth";
  std::string wait;
  std::string transport = "auto";
  std::string traffic = "bulk";
  std::string size;
  std::string region;
  std::string bytes;
  double report_every = 0;
  bool json = false;
};

struct ServerCommand {
  perf::ServerOptions options;
  std::string bind;
  std::string max_memory;
  std::string transport = "auto";
  bool json = false;
};

int fail(const char* command, int code, const std::string& message) {
  fmt::print(stderr, "farverbs perf {}: {}\n", command, message);
  if (code == kExitUsage) fmt::print(stderr, "See 'farverbs perf {} --help'.\n", command);
  return code;
}

Result<perf::Options> read_options(ClientCommand& c) {
  FV_ASSIGN(c.arguments.op, perf::parse_op(c.op));
  FV_ASSIGN(c.arguments.mode, perf::parse_mode(c.mode));
  if (!c.wait.empty()) {
    FV_ASSIGN(c.arguments.wait, perf::parse_wait(c.wait));
  }
  FV_ASSIGN(c.arguments.transport, perf::parse_transport(c.transport));
  FV_ASSIGN(c.arguments.traffic, parse_class(c.traffic));
  if (!c.size.empty()) {
    FV_ASSIGN(c.arguments.size, parse_bytes(c.size));
  }
  if (!c.bytes.empty()) {
    FV_ASSIGN(c.arguments.bytes, parse_bytes(c.bytes));
  }
  if (!c.region.empty()) {
    FV_ASSIGN(c.arguments.region, parse_bytes(c.region));
  }
  if (!(c.report_every >= 0 && c.report_every < 1e6)) {
    return invalid("--report must be a number of seconds, such as 1");
  }
  return perf::resolve(c.arguments);
}

int run_client_command(ClientCommand& c) {
  const Result<perf::Options> options = read_options(c);
  if (!options.ok()) return fail("client", kExitUsage, options.error().message);
  if (!c.json) fmt::print("{}\n", perf::title(*options));
  std::fflush(stdout);
  const auto show = [&](const perf::Interval& interval) {
    if (c.json) return;
    fmt::print("{}\n", perf::to_text(interval, *options));
    std::fflush(stdout);
  };
  const Result<perf::Report> report =
      perf::run_client(c.place, *options, Duration::from_seconds(c.report_every), show);
  if (!report.ok()) return fail("client", kExitFailed, report.error().message);
  fmt::print("{}\n", c.json ? perf::to_json(*report).dump(2) : perf::to_text(*report));
  return kExitOk;
}

int run_server_command(ServerCommand& c) {
  if (!c.bind.empty()) {
    const Result<IpAddress> address = IpAddress::parse(c.bind);
    if (!address.ok()) return fail("server", kExitUsage, "--bind: " + address.error().message);
    c.options.bind = *address;
  }
  if (!c.max_memory.empty()) {
    const Result<uint64_t> bytes = parse_bytes(c.max_memory);
    if (!bytes.ok()) return fail("server", kExitUsage, "--max-memory: " + bytes.error().message);
    c.options.limits.max_memory = *bytes;
  }
  const Result<verbs::Transport> transport = perf::parse_transport(c.transport);
  if (!transport.ok()) return fail("server", kExitUsage, transport.error().message);
  c.options.transport = *transport;
  const auto log = [&](const std::string& line) {
    if (c.json) {
      fmt::print("{}\n",
                 Json{{"event", line}}.dump(-1, ' ', false, Json::error_handler_t::replace));
    } else {
      fmt::print("{}\n", line);
    }
    std::fflush(stdout);
  };
  Result<std::unique_ptr<perf::Server>> server = perf::Server::listen(c.options, log);
  if (!server.ok()) return fail("server", kExitFailed, server.error().message);
  const Endpoint endpoint = (*server)->endpoint();
  if (c.json) {
    fmt::print("{}\n", Json{{"listening",
                             {{"address", endpoint.address.to_string()}, {"port", endpoint.port}}}}
                           .dump());
  } else {
    fmt::print("listening on {} for perf and ping\n",
               c.options.bind ? endpoint.to_string() : fmt::format("port {}", endpoint.port));
  }
  std::fflush(stdout);
  const Result<void> done = (*server)->run();
  // The log has told why.
  return done.ok() ? kExitOk : kExitFailed;
}

void add_client(CLI::App& perf, int* exit_code) {
  auto command = std::make_shared<ClientCommand>();
  ClientCommand& c = *command;
  perf::Arguments& a = c.arguments;
  CLI::App* app = perf.add_subcommand("client", "Measure against a server.");
  app->footer(kClientFooter);
  app->add_option("host", c.place.host, "Name or address of the machine that runs the server.")
      ->required();
  c.place.port = verbs::kRendezvousPort;
  app->add_option("--port", c.place.port, "TCP port of the server.")->capture_default_str();
  app->add_option("--udp-port", c.place.udp_port, "UDP port of this side's device.")
      ->capture_default_str();
  app->add_option("--op", c.op, "write, read, send, fetch-add or compare-swap.")
      ->capture_default_str();
  app->add_option("--mode", c.mode, "bandwidth or latency.")->capture_default_str();
  app->add_option(
      "--size", c.size,
      "Message size, such as 64 or 1MiB. Default: 1MiB, in latency mode 64, atomics 8.");
  app->add_option("--depth", a.depth,
                  "Outstanding messages per queue pair. Default: 32 MiB worth, 16 to 128.");
  app->add_option("--qps", a.qps, "Queue pairs.")->capture_default_str();
  app->add_option("--signal-every", a.signal_every,
                  "One completion for so many messages. Default: 1, small messages depth/4.");
  app->add_option("--seconds", a.seconds, "How long to measure. Default: 5.");
  app->add_option("--iterations", a.iterations, "Messages to measure, instead of --seconds.");
  app->add_option("--bytes", c.bytes,
                  "Move so many bytes, such as 100MB, and time them from connect to the last one's "
                  "confirmation.");
  app->add_option("--rate-messages", a.message_rate,
                  "Send so many messages a second by the clock and time each from when it was due "
                  "to its completion.");
  app->add_option("--warmup", a.warmup_seconds,
                  "Seconds before the measurement begins. Default: 0.2, with --bytes and "
                  "--rate-messages 0.");
  app->add_flag("--bidirectional", a.bidirectional, "Both sides send; the sum is shown.");
  app->add_option("--mtu", a.mtu,
                  "Path MTU: 256, 512, 1024, 2048 or 4096. Default: the largest "
                  "that fits both interfaces.");
  app->add_option("--transport", c.transport,
                  "far, standard (RC), or auto: far if both ends speak it.")
      ->capture_default_str();
  app->add_option("--class", c.traffic, kClassHelp)->capture_default_str();
  app->add_flag("--inline", a.inlined, "Copy the data into the request when posting (small only).");
  app->add_option("--wait", c.wait,
                  "poll (spin) or block (spin for --spin, then sleep). Default: "
                  "block, in latency mode poll.");
  app->add_option("--spin", a.spin_us, "Microseconds to spin before blocking. Default: 50.");
  app->add_option("--interval", a.interval_us,
                  "Microseconds to sleep between messages, in latency mode.");
  app->add_flag("--target-idle", a.target_idle,
                "Latency of one-sided operations on a process that sleeps.");
  app->add_flag("--cold", a.cold, "Walk through 1 GiB of memory, far more than caches hold.");
  app->add_option("--region", c.region, "Memory to walk through on each side, such as 256MiB.");
  app->add_option("--report", c.report_every, "A line every so many seconds.");
  app->add_option("--timeline", a.timeline_seconds,
                  "With --json: bytes confirmed in every so many seconds from connect on.");
  app->add_flag("--json", c.json, "Print the result as JSON.");
  app->callback([command, exit_code] { *exit_code = run_client_command(*command); });
}

void add_server(CLI::App& perf, int* exit_code) {
  auto command = std::make_shared<ServerCommand>();
  ServerCommand& c = *command;
  CLI::App* app = perf.add_subcommand("server", "Be the other side of perf client and ping.");
  app->add_option("--bind", c.bind,
                  "Address to listen on. Default: all. RDMA uses the address on "
                  "which a client came in.");
  app->add_option("--port", c.options.port, "TCP port; 0: any free one.")->capture_default_str();
  app->add_option("--udp-port", c.options.udp_port, "UDP port of this side's device.")
      ->capture_default_str();
  app->add_option("--transport", c.transport, "auto (what the client asks for), standard or far.")
      ->capture_default_str();
  app->add_flag("--once", c.options.once, "End after one client.");
  app->add_option("--max-memory", c.max_memory,
                  "Memory a client may make this server allocate. Default: 8GiB.");
  app->add_flag("--json", c.json, "Print events as JSON, one a line.");
  app->callback([command, exit_code] { *exit_code = run_server_command(*command); });
}

}  // namespace

void register_perf(CLI::App& app, int* exit_code) {
  CLI::App* perf = app.add_subcommand("perf", "Measure bandwidth, message rate and latency.");
  perf->require_subcommand(1);
  add_server(*perf, exit_code);
  add_client(*perf, exit_code);
}

}  // namespace farverbs::tools
