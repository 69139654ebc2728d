#include "tools/lab/lab.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tools/command_line.h"
#include "tools/lab/bench.h"
#include "tools/lab/daemon.h"
#include "tools/lab/options.h"
#include "tools/lab/run.h"

namespace farverbs::tools {
namespace {

using namespace lab;

constexpr const char* kDefaultName = "default";
constexpr const char* kLabFooter =
    "Each side has one device, wan0: A is 10.88.0.1 (fd88::1), B is 10.88.0.2 (fd88::2). Commands\n"
    "find FARVERBS_LAB_SELF, FARVERBS_LAB_PEER (addresses) and FARVERBS_LAB_SIDE (a, b) in their\n"
    "environment. Example:\n"
    "  farverbs lab run --rate 200mbit --rtt 100ms --loss 1% -- \\\n"
    "    'iperf3 -s -1' 'sleep 1; iperf3 -c $FARVERBS_LAB_PEER'";

int fail(const Error& error, int exit_code = kExitFailed) {
  fmt::print(stderr, "farverbs lab: {}\n", error.message);
  return exit_code;
}

bool write_json(const std::string& path, const nlohmann::json& value) {
  if (path == "-") {
    fmt::print("{}\n", value.dump(2));
    return true;
  }
  std::ofstream file(path);
  file << value.dump(2) << "\n";
  file.flush();
  if (file.good()) return true;
  fmt::print(stderr, "farverbs lab: cannot write {}\n", path);
  return false;
}

// A path's configuration, or a usage error told to the user.
struct Configured {
  EmulatorConfig emulator;
  NetOptions net;
};

Result<Configured> configure(const PathOptions& options) {
  Configured configured;
  FV_ASSIGN(configured.emulator, options.emulator());
  FV_ASSIGN(configured.net, options.net());
  return configured;
}

struct RunArguments {
  PathOptions path;
  std::vector<std::string> commands;
  std::string json;
  bool quiet = false;
};

int run(const RunArguments& arguments) {
  const auto configured = configure(arguments.path);
  if (!configured.ok()) return fail(configured.error(), kExitUsage);
  const auto result =
      run_lab(configured->emulator, configured->net, arguments.commands[0], arguments.commands[1]);
  if (!result.ok()) return fail(result.error());
  if (!arguments.quiet) {
    fmt::print(stderr, "lab: {}\n{}", describe(configured->emulator), to_text(result->stats));
  } else {
    for (const std::string& warning : overload_warnings(result->stats)) {
      fmt::print(stderr, "lab: WARNING: {}\n", warning);
    }
  }
  if (!arguments.json.empty()) {
    nlohmann::json value = to_json(result->stats);
    value["path"] = describe(configured->emulator);
    value["exit_code"] = result->exit_code;
    if (!write_json(arguments.json, value) && result->exit_code == 0) return kExitFailed;
  }
  return result->exit_code;
}

void add_run(CLI::App& lab, int* exit_code) {
  auto arguments = std::make_shared<RunArguments>();
  CLI::App* command = lab.add_subcommand(
      "run", "Runs a shell command on each side; ends when B's ends, with its exit code");
  arguments->path.add_to(*command);
  command->add_option("commands", arguments->commands, "A's command and B's command")
      ->required()
      ->expected(2);
  command->add_option("--json", arguments->json, "Writes the statistics to this file, - is stdout");
  command->add_flag("--quiet,-q", arguments->quiet, "No statistics on stderr, warnings only");
  command->callback([arguments, exit_code] { *exit_code = run(*arguments); });
}

struct UpArguments {
  PathOptions path;
  std::string name = kDefaultName;
};

int up(const UpArguments& arguments) {
  const auto configured = configure(arguments.path);
  if (!configured.ok()) return fail(configured.error(), kExitUsage);
  const auto state = bring_up(arguments.name, configured->emulator, configured->net);
  if (!state.ok()) return fail(state.error());
  const std::string name = arguments.name == kDefaultName ? "" : arguments.name + " ";
  fmt::print("lab {} is up: {}; A is {}, B is {}\n", state->name, state->description,
             state->a.address, state->b.address);
  fmt::print("  farverbs lab exec {}a -- ping {}\n  farverbs lab down{}\n", name, state->b.address,
             name.empty() ? "" : " " + arguments.name);
  return kExitOk;
}

void add_up(CLI::App& lab, int* exit_code) {
  auto arguments = std::make_shared<UpArguments>();
  CLI::App* command = lab.add_subcommand("up", "Makes a path that stays until `lab down`");
  command->add_option("name", arguments->name, "Tells several labs apart")->capture_default_str();
  arguments->path.add_to(*command);
  command->callback([arguments, exit_code] { *exit_code = up(*arguments); });
}

int exec(std::vector<std::string> words) {
  std::string name = kDefaultName;
  if (!words.empty() && words[0] != "a" && words[0] != "b") {
    name = words[0];
    words.erase(words.begin());
  }
  // The marker between our words and the command's; a later one is the command's own.
  if (words.size() > 1 && words[1] == "--") words.erase(words.begin() + 1);
  if (words.size() < 2 || (words[0] != "a" && words[0] != "b")) {
    return fail(invalid("write: farverbs lab exec [NAME] a|b -- COMMAND ..."), kExitUsage);
  }
  const Error error = exec_in(name, words[0], {words.begin() + 1, words.end()});
  return fail(error, error.code == ENOENT ? 127 : error.code == EACCES ? 126 : kExitFailed);
}

void add_exec(CLI::App& lab, int* exit_code) {
  auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* command = lab.add_subcommand("exec", "Runs a program on side a or b of a lab");
  command->add_option("words", *words, "[NAME] a|b -- COMMAND ...")->required()->type_name("");
  command->positionals_at_end(true);
  command->callback([words, exit_code] { *exit_code = exec(*words); });
}

struct SetArguments {
  std::string name = kDefaultName;
  ChangeOptions change;
};

int set(const SetArguments& arguments) {
  bool wrong = false;
  const auto changed = change_path(arguments.name, [&](EmulatorConfig& config) {
    const auto applied = arguments.change.apply(config);
    wrong = !applied.ok();
    return applied;
  });
  if (!changed.ok()) return fail(changed.error(), wrong ? kExitUsage : kExitFailed);
  fmt::print("lab {}: {}\n", arguments.name, describe(*changed));
  return kExitOk;
}

void add_set(CLI::App& lab, int* exit_code) {
  auto arguments = std::make_shared<SetArguments>();
  CLI::App* command = lab.add_subcommand(
      "set", "Changes the path of a lab that is up; what is not given stays as it is");
  command->add_option("name", arguments->name, "Which lab")->capture_default_str();
  arguments->change.add_to(*command);
  command->callback([arguments, exit_code] { *exit_code = set(*arguments); });
}

struct StatsArguments {
  std::string name = kDefaultName;
  bool watch = false;
  bool json = false;
};

void print_stats(const LabStats& stats, bool json) {
  if (json) {
    fmt::print("{}\n", to_json(stats).dump(2));
  } else {
    fmt::print("{}", to_text(stats));
  }
}

int down(const StatsArguments& arguments) {
  const auto stats = bring_down(arguments.name);
  if (!stats.ok()) return fail(stats.error());
  if (!stats->has_value()) {
    return fail({ESRCH, "the emulator of the lab '" + arguments.name +
                            "' had died before; its record is removed"});
  }
  print_stats(**stats, arguments.json);
  return kExitOk;
}

void add_down(CLI::App& lab, int* exit_code) {
  auto arguments = std::make_shared<StatsArguments>();
  CLI::App* command =
      lab.add_subcommand("down", "Ends a lab and what runs in it; prints its statistics");
  command->add_option("name", arguments->name, "Which lab")->capture_default_str();
  command->add_flag("--json", arguments->json, "Statistics for programs");
  command->callback([arguments, exit_code] { *exit_code = down(*arguments); });
}

int show_stats(const StatsArguments& arguments) {
  while (true) {
    const auto stats = running_stats(arguments.name);
    if (!stats.ok()) return fail(stats.error());
    if (arguments.watch && !arguments.json && ::isatty(STDOUT_FILENO)) fmt::print("\033[H\033[2J");
    print_stats(*stats, arguments.json);
    if (!arguments.watch) return kExitOk;
    std::fflush(stdout);
    ::sleep(1);
  }
}

void add_stats(CLI::App& lab, int* exit_code) {
  auto arguments = std::make_shared<StatsArguments>();
  CLI::App* command = lab.add_subcommand("stats", "What a lab that is up has counted so far");
  command->add_option("name", arguments->name, "Which lab")->capture_default_str();
  command->add_flag("--watch,-w", arguments->watch, "Again every second, until the lab is down");
  command->add_flag("--json", arguments->json, "For programs");
  command->callback([arguments, exit_code] { *exit_code = show_stats(*arguments); });
}

struct BenchArguments {
  BenchOptions options;
  std::string rate = "1gbit";
  std::string rtt = "10ms";
  std::string tick = "100us";
  bool json = false;
};

int bench(BenchArguments arguments) {
  PathOptions path;
  path.rate = arguments.rate;
  path.rtt = arguments.rtt;
  path.tick = arguments.tick;
  const auto configured = configure(path);
  if (!configured.ok()) return fail(configured.error(), kExitUsage);
  const auto report = run_bench(configured->emulator, arguments.options);
  if (!report.ok()) return fail(report.error());
  if (arguments.json) {
    fmt::print("{}\n", to_json(*report).dump(2));
  } else {
    fmt::print("{}", to_text(*report));
  }
  return kExitOk;
}

void add_bench(CLI::App& lab, int* exit_code) {
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App* command =
      lab.add_subcommand("bench", "How fast and how exact the emulator is on this machine");
  command->add_option("--rate", arguments->rate, "Of the path")->capture_default_str();
  command->add_option("--rtt", arguments->rtt, "Of the path")->capture_default_str();
  command->add_option("--tick", arguments->tick, "Of the emulator")->capture_default_str();
  command->add_option("--load", arguments->options.load, "Share of the rate that is sent")
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str();
  command->add_option("--seconds", arguments->options.seconds, "Of each part")
      ->check(CLI::Range(0.2, 60.0))
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "For programs");
  command->callback([arguments, exit_code] { *exit_code = bench(*arguments); });
}

}  // namespace

void register_lab(CLI::App& app, int* exit_code) {
  CLI::App* lab =
      app.add_subcommand("lab", "Two network namespaces joined by an emulated wide-area path");
  lab->require_subcommand(1);
  lab->footer(kLabFooter);
  add_run(*lab, exit_code);
  add_up(*lab, exit_code);
  add_exec(*lab, exit_code);
  add_set(*lab, exit_code);
  add_stats(*lab, exit_code);
  add_down(*lab, exit_code);
  add_bench(*lab, exit_code);
}

}  // namespace farverbs::tools
