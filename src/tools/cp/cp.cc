#include "tools/cp/cp.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <map>
#include <memory>

#include "farverbs/base/fault_guard.h"
#include "tools/command_line.h"
#include "tools/common/class_option.h"
#include "tools/cp/client.h"
#include "tools/cp/server.h"

namespace farverbs::tools {
namespace {

using namespace copy;

// Set by SIGINT and SIGTERM: the transfer ends in order and can be resumed.
std::atomic<int> g_signal{0};

void watch_signals() {
  struct sigaction action {};
  action.sa_handler = [](int number) {
    // The second one does not wait for order.
    if (g_signal.exchange(number) != 0) ::_exit(128 + number);
  };
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 65'536);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

struct CpArguments {
  std::string source;
  std::string destination;
  bool recursive = false;
  bool always = false;
  bool sync = false;
  bool json = false;
  bool quiet = false;
  unsigned retries = 5;
  uint32_t mtu = 0;
  verbs::Transport transport = verbs::Transport::kAuto;
  std::string traffic = "bulk";
};

const std::map<std::string, verbs::Transport> kTransports = {
    {"auto", verbs::Transport::kAuto},
    {"standard", verbs::Transport::kStandard},
    {"far", verbs::Transport::kFar}};

int usage_error(const char* tool, const std::string& message) {
  fmt::print(stderr, "farverbs {}: {}\nSee 'farverbs {} --help'.\n", tool, message, tool);
  return kExitUsage;
}

Result<CopyOptions> parse_arguments(const CpArguments& arguments) {
  CopyOptions options;
  FV_ASSIGN(options.source, parse_location(arguments.source, verbs::kRendezvousPort));
  FV_ASSIGN(options.destination, parse_location(arguments.destination, verbs::kRendezvousPort));
  if (options.source.remote && options.destination.remote) {
    return invalid(
        "both SRC and DST are remote: copy from one server to a local file, then to the other");
  }
  if (!options.source.remote && !options.destination.remote) {
    return invalid(
        "neither SRC nor DST is remote: write one as farverbs://host/path (or use cp for local "
        "files)");
  }
  options.recursive = arguments.recursive;
  options.always = arguments.always;
  options.sync = arguments.sync;
  options.retries = arguments.retries;
  options.link.mtu = arguments.mtu;
  options.link.transport = arguments.transport;
  FV_ASSIGN(options.link.traffic, parse_class(arguments.traffic));
  return options;
}

int run_cp(const CpArguments& arguments) {
  Result<CopyOptions> options = parse_arguments(arguments);
  if (!options.ok()) return usage_error("cp", options.error().message);
  watch_signals();
  raise_file_limit();
  install_fault_guard();
  const ProgressStyle style = arguments.quiet || arguments.json ? ProgressStyle::kNone
                              : ::isatty(STDERR_FILENO) != 0    ? ProgressStyle::kBar
                                                                : ProgressStyle::kLines;
  const std::string& path = options->source.path;
  Progress progress(style, path.substr(path.rfind('/') + 1));
  const Result<void> result = run_copy(*options, progress, [] { return g_signal.load() != 0; });
  progress.clear();
  const std::string error = result.ok() ? "" : result.error().message;
  if (!result.ok()) {
    fmt::print(stderr, "farverbs cp: {}\n", error);
    if (progress.totals().bytes_moved + progress.totals().bytes_resumed > 0) {
      fmt::print(stderr, "farverbs cp: the same command again continues where this one ended\n");
    }
  }
  if (arguments.json) {
    fmt::print("{}\n", summary_json(progress.totals(), progress.seconds(), error));
  } else if (result.ok() && !arguments.quiet) {
    fmt::print("{}\n", render_summary(progress.totals(), progress.seconds()));
  }
  if (g_signal.load() != 0) return 128 + g_signal.load();
  return result.ok() && progress.totals().problems.empty() ? kExitOk : kExitFailed;
}

struct ServeArguments {
  std::string root;
  std::string bind = "127.0.0.1";
  uint16_t port = verbs::kRendezvousPort;
  bool insecure_listen = false;
  bool read_only = false;
  bool quiet = false;
  unsigned max_clients = 64;
  uint32_t mtu = 0;
  verbs::Transport transport = verbs::Transport::kAuto;
};

std::string url_of(const IpAddress& address, uint16_t port) {
  const std::string host = address.is_v6() ? "[" + address.to_string() + "]" : address.to_string();
  return port == verbs::kRendezvousPort ? fmt::format("farverbs://{}/", host)
                                        : fmt::format("farverbs://{}:{}/", host, port);
}

int run_serve(const ServeArguments& arguments) {
  const Result<IpAddress> bind = IpAddress::parse(arguments.bind);
  if (!bind.ok()) return usage_error("serve", "--bind: " + bind.error().message);
  if (!bind->is_loopback() && !arguments.insecure_listen) {
    return usage_error(
        "serve",
        fmt::format("--bind {} reaches beyond this machine, and there is no encryption and no "
                    "password yet: whoever can send packets to this port could read{} '{}', and "
                    "whoever is on the way could see and change what is copied. On a network where "
                    "that is acceptable, add --insecure-listen",
                    arguments.bind, arguments.read_only ? "" : " and replace everything in",
                    arguments.root));
  }
  watch_signals();
  raise_file_limit();
  install_fault_guard();
  ServerOptions options;
  options.root = arguments.root;
  options.bind = *bind;
  options.port = arguments.port;
  options.read_only = arguments.read_only;
  options.max_clients = arguments.max_clients;
  options.link.mtu = arguments.mtu;
  options.link.transport = arguments.transport;
  if (!arguments.quiet) {
    options.log = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  }
  Result<std::unique_ptr<Server>> server = Server::start(options);
  if (!server.ok()) {
    fmt::print(stderr, "farverbs serve: {}\n", server.error().message);
    return kExitFailed;
  }
  fmt::print("serving '{}' at {}{}\n", arguments.root, url_of(*bind, (*server)->port()),
             arguments.read_only ? " (read only)" : "");
  if (bind->is_loopback()) {
    fmt::print(
        "This machine only: connections are not encrypted yet. See --insecure-listen to serve a "
        "network.\n");
  }
  std::fflush(stdout);
  while (g_signal.load() == 0) ::pause();
  return kExitOk;
}

}  // namespace

void register_serve(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("serve", "Let 'farverbs cp' read and write files of a directory.");
  const auto arguments = std::make_shared<ServeArguments>();
  command
      ->add_option("--root", arguments->root, "The directory; nothing outside of it is reachable")
      ->required();
  command->add_option("--bind", arguments->bind, "Local address to listen on")
      ->capture_default_str();
  command->add_option("--port", arguments->port, "TCP port; 0: any free one")
      ->capture_default_str();
  command->add_flag("--insecure-listen", arguments->insecure_listen,
                    "Allow --bind to an address that other machines reach, although connections "
                    "are neither encrypted nor authenticated yet");
  command->add_flag("--read-only", arguments->read_only, "Refuse to receive files");
  command->add_option("--max-clients", arguments->max_clients, "Sessions at a time")
      ->capture_default_str()
      ->check(CLI::Range(1u, 4096u));
  command->add_option("--mtu", arguments->mtu, "Largest packet payload in bytes")
      ->check(CLI::IsMember({256, 512, 1024, 2048, 4096}));
  command
      ->add_option("--transport", arguments->transport,
                   "auto (what the client asks for), standard or far")
      ->transform(CLI::CheckedTransformer(kTransports));
  command->add_flag("-q,--quiet", arguments->quiet, "No line per session");
  command->callback([arguments, exit_code] { *exit_code = run_serve(*arguments); });
}

void register_cp(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("cp", "Copy files to or from a machine that runs 'farverbs serve'.");
  const auto arguments = std::make_shared<CpArguments>();
  command->add_option("SRC", arguments->source, "A local path, or farverbs://host[:port]/path")
      ->required();
  command->add_option("DST", arguments->destination, "The same; one of the two is remote")
      ->required();
  command->add_flag("-r,--recursive", arguments->recursive, "Copy directories with their content");
  command->add_flag("--always", arguments->always,
                    "Also copy files that are there with the same size and time");
  command->add_flag("--fsync", arguments->sync,
                    "Wait for the disk before a file gets its final name, so that a power cut "
                    "leaves no half file either");
  command
      ->add_option("--retries", arguments->retries,
                   "Connect again this often, without any gain, when the connection breaks")
      ->capture_default_str()
      ->check(CLI::Range(0u, 1'000'000u));
  command->add_option("--mtu", arguments->mtu, "Largest packet payload in bytes")
      ->check(CLI::IsMember({256, 512, 1024, 2048, 4096}));
  command
      ->add_option("--transport", arguments->transport,
                   "far, standard (RC), or auto: far if both ends speak it")
      ->transform(CLI::CheckedTransformer(kTransports));
  command->add_option("--class", arguments->traffic, kClassHelp)->capture_default_str();
  command->add_flag("--json", arguments->json, "Print the summary as JSON");
  command->add_flag("-q,--quiet", arguments->quiet, "Print problems only");
  command->footer(
      "An interrupted copy leaves .NAME.farverbs-partial and .NAME.farverbs-state beside the\n"
      "final name; the same command again continues from them. Every byte is verified at the\n"
      "receiver before a file gets its final name.");
  command->callback([arguments, exit_code] { *exit_code = run_cp(*arguments); });
  register_serve(app, exit_code);
}

}  // namespace farverbs::tools
