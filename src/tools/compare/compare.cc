#include "tools/compare/compare.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tools/command_line.h"
#include "tools/compare/cells.h"
#include "tools/compare/ends.h"
#include "tools/compare/field.h"
#include "tools/compare/measure.h"
#include "tools/compare/result.h"

namespace farverbs::tools {
namespace {

using namespace compare;
namespace fs = std::filesystem;

constexpr const char* kFooter =
    R"(Each row is a line (rate, round trip, loss; its queue holds one bandwidth-delay product) and
programs that take turns on it. The limit of a bulk flow is rate x (1 - loss) x payload / wire bytes
of that program's own full packets. "after the ramp" is from the 5th second on (half of --seconds if
that is less); our time line counts what is confirmed at the sender, TCP's what has arrived at the
receiver. Round trips beside a flow are ICMP echoes, above the idle line's; CPU is of both sides'
processes. Rows and programs that this machine cannot run say so, and what to install.
Exit code 0 if everything that could be run was; whether goals were reached is in the report.)";

struct Arguments {
  Plan plan;
  std::string json;
  std::string html;
  std::string directory;
  bool list = false;
};

int fail(const Error& error, int exit_code = kExitFailed) {
  fmt::print(stderr, "farverbs compare: {}\n", error.message);
  return exit_code;
}

bool write_file(const std::string& path, const std::string& text) {
  if (path == "-") {
    fmt::print("{}\n", text);
    return true;
  }
  std::ofstream file(path);
  file << text << "\n";
  file.close();
  if (file) return true;
  fmt::print(stderr, "farverbs compare: cannot write {}\n", path);
  return false;
}

std::string machine() {
  utsname name{};
  ::uname(&name);
  return fmt::format("{} {} {}, {} processors", name.sysname, name.release, name.machine,
                     std::thread::hardware_concurrency());
}

std::string now_text() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  char text[32];
  std::tm fields{};
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", ::gmtime_r(&now, &fields));
  return text;
}

/// A folder that is removed with its owner.
struct Folder {
  std::string path;
  ~Folder() {
    std::error_code ignored;
    if (!path.empty()) fs::remove_all(path, ignored);
  }
};

/// Programs take turns, and who begins changes with the round.
Result<RowResult> run_row(const Context& context, const Row& row, int rounds) {
  RowResult result{row, {}};
  const std::vector<std::string> programs = programs_of(row);
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < programs.size(); ++i) {
      const size_t turn = (i + static_cast<size_t>(round)) % programs.size();
      FV_ASSIGN(Run run, measure(context, row, programs[turn], round));
      const bool skipped = !run.skipped.empty();
      // Once said is enough.
      if (!skipped || round == 0) result.runs.push_back(std::move(run));
    }
  }
  return result;
}

void write_reports(const Arguments& arguments, const Comparison& comparison, bool& written) {
  if (!arguments.json.empty()) {
    written &= write_file(arguments.json, to_json(comparison).dump(1));
  }
  if (!arguments.html.empty()) written &= write_file(arguments.html, to_html(comparison));
}

int run_wan(const Arguments& arguments) {
  const auto rows = make_rows(arguments.plan);
  if (!rows.ok()) return fail(rows.error(), kExitUsage);
  if (arguments.list) {
    for (const Row& row : *rows) fmt::print("{}\n", row.name());
    return kExitOk;
  }
  std::string name =
      (arguments.directory.empty() ? fs::temp_directory_path() : fs::path(arguments.directory)) /
      "farverbs-compare-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) {
    return fail(Error::from_errno("cannot make a folder " + name));
  }
  const Folder folder{name};
  stop_on_signals();
  // Reports on stdout are for programs.
  FILE* const people = arguments.json == "-" || arguments.html == "-" ? stderr : stdout;
  Context context;
  context.offer = find_offer();
  context.folder = name;
  context.say = [](const std::string& text) {
    if (::isatty(STDERR_FILENO) == 1) fmt::print(stderr, "\r\033[K{} ...", text);
  };
  Comparison comparison;
  comparison.version = FARVERBS_VERSION;
  comparison.machine = machine();
  comparison.started = now_text();
  bool failed = false, written = true;
  for (const Row& row : *rows) {
    auto result = run_row(context, row, arguments.plan.rounds);
    if (::isatty(STDERR_FILENO) == 1) fmt::print(stderr, "\r\033[K");
    if (!result.ok()) return fail(result.error());
    for (const Run& run : result->runs) failed |= !run.failed.empty();
    fmt::print(people, "{}\n", to_text(*result));
    std::fflush(people);
    comparison.rows.push_back(std::move(*result));
    // After each row, so that a long run that is stopped has not been in vain.
    if (arguments.json != "-" && arguments.html != "-") {
      write_reports(arguments, comparison, written);
    }
  }
  if (arguments.json == "-" || arguments.html == "-") {
    write_reports(arguments, comparison, written);
  }
  return failed || !written ? kExitFailed : kExitOk;
}

void add_wan(CLI::App& compare, int* exit_code) {
  auto arguments = std::make_shared<Arguments>();
  Plan& plan = arguments->plan;
  CLI::App* app = compare.add_subcommand(
      "wan", "Against kernel TCP (CUBIC, BBR), scp and rsync on emulated long and lossy lines");
  app->add_option("--rate", plan.rate, "Rates of the bulk rows, separated by commas")
      ->capture_default_str();
  app->add_option("--rtt", plan.rtt, "Their round trip times")->capture_default_str();
  app->add_option("--loss", plan.loss, "Their loss, each way")->capture_default_str();
  app->add_option("--only", plan.only, "Rows whose name contains this regular expression");
  app->add_option("--seconds", plan.seconds, "Of each bulk flow")->capture_default_str();
  app->add_option("--rounds", plan.rounds, "How often everything is run; medians are shown")
      ->capture_default_str();
  app->add_flag("--quick", plan.quick, "A few short rows, in less than a minute");
  app->add_flag("--list", arguments->list, "Print the names of the rows and end");
  app->add_option("--json", arguments->json, "Write everything to this file, - is stdout");
  app->add_option("--html", arguments->html,
                  "Write a page with tables and plots to this file; it needs no network");
  app->add_option("--directory", arguments->directory,
                  "Where files go while it runs (default: the temporary directory)");
  app->footer(kFooter);
  app->callback([arguments, exit_code] { *exit_code = run_wan(*arguments); });
}

void add_ends(CLI::App& app, int* exit_code) {
  CLI::App* ends = app.add_subcommand("compare-end", "One end of a compared line");
  ends->group("");
  ends->require_subcommand(1);
  const auto done = [exit_code](const Result<void>& result) {
    if (!result.ok()) *exit_code = fail(result.error());
  };
  auto ping = std::make_shared<PingOptions>();
  CLI::App* command = ends->add_subcommand("ping");
  command->add_option("--peer", ping->peer)->required();
  command->add_option("--every", ping->every_seconds);
  command->add_option("--seconds", ping->seconds)->required();
  command->add_option("--report", ping->report)->required();
  command->callback([ping, done] { done(run_ping(*ping)); });
  auto amount = std::make_shared<AmountOptions>();
  for (const bool source : {false, true}) {
    command = ends->add_subcommand(source ? "source" : "sink");
    command->add_option("--peer", amount->peer);
    command->add_option("--port", amount->port)->required();
    command->add_option("--bytes", amount->bytes)->required();
    command->add_option("--congestion", amount->congestion);
    command->add_option("--report", amount->report);
    command->callback(
        [amount, source, done] { done(source ? run_source(*amount) : run_sink(*amount)); });
  }
}

}  // namespace

void register_compare(CLI::App& app, int* exit_code) {
  CLI::App* compare = app.add_subcommand("compare", "Farverbs beside other ways to move data");
  compare->require_subcommand(1);
  add_wan(*compare, exit_code);
  add_ends(app, exit_code);
}

}  // namespace farverbs::tools
