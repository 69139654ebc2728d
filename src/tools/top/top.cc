#include "tools/top/top.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "farverbs/verbs/stats.h"
#include "tools/command_line.h"
#include "tools/top/exporter.h"
#include "tools/top/view.h"

namespace farverbs::tools {
namespace {

using namespace top;

constexpr const char* kFooter =
    R"(perf, cp and serve show themselves; any other program that uses Farverbs does with FARVERBS_STATS=1
in its environment (or the path of a folder for its socket). Only the same user can look.
Rates are of payload, since the look before. "resent" is the share of packets that had been sent
before, "packets" how many of them altogether.)";

struct Arguments {
  pid_t pid = 0;
  double interval = 1;
  bool json = false;
  bool once = false;
  std::string prometheus;
};

// Rows that fit below the head, or all if nobody looks at a terminal.
size_t rows_that_fit() {
  constexpr size_t kHead = 6;
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) return 0;
  return size.ws_row > kHead + 1 ? size.ws_row - kHead : 1;
}

int run(const Arguments& arguments) {
  const std::string folder = verbs::stats_folder();
  if (!arguments.prometheus.empty()) {
    const Result<void> served = serve_metrics(arguments.prometheus, folder, arguments.pid);
    if (served.ok()) return kExitOk;
    fmt::print(stderr, "farverbs top: {}\n", served.error().message);
    return served.error().code == EINVAL ? kExitUsage : kExitFailed;
  }
  const bool terminal = ::isatty(STDOUT_FILENO) == 1 && !arguments.json && !arguments.once;
  std::vector<DeviceStats> before = read_all(folder, arguments.pid);
  while (true) {
    std::this_thread::sleep_for(std::chrono::duration<double>(arguments.interval));
    std::vector<DeviceStats> now = read_all(folder, arguments.pid);
    const std::vector<Line> lines = make_lines(before, now);
    if (arguments.json) {
      fmt::print("{}\n", to_json(now, lines).dump(arguments.once ? 2 : -1));
    } else {
      if (terminal) fmt::print("\033[H\033[2J");
      fmt::print("{}{}", to_text(lines, terminal ? rows_that_fit() : 0),
                 terminal || arguments.once ? "" : "\n");
    }
    std::fflush(stdout);
    if (arguments.once) {
      // Whoever asks for one process wants to know that it is not there.
      return arguments.pid != 0 && now.empty() ? kExitFailed : kExitOk;
    }
    before = std::move(now);
  }
}

}  // namespace

void register_top(CLI::App& app, int* exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("top", "What the queue pairs of this user's processes are doing, live.");
  command->add_option("--pid", arguments->pid, "This process alone.");
  command->add_option("--interval", arguments->interval, "Seconds between two looks.")
      ->check(CLI::Range(0.05, 3600.0))
      ->capture_default_str();
  command->add_flag("--once", arguments->once, "Look twice, print, end.");
  command->add_flag("--json", arguments->json,
                    "For programs: an object for each look, one a line.");
  command->add_option("--prometheus", arguments->prometheus,
                      "Serve the numbers over HTTP for a Prometheus server at this port, or "
                      "HOST:PORT. Without a host: loopback only.");
  command->footer(kFooter);
  command->callback([arguments, exit_code] { *exit_code = run(*arguments); });
}

}  // namespace farverbs::tools
