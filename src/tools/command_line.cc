#include "tools/command_line.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iterator>
#include <numeric>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

namespace farverbs::tools {
namespace {

struct Purpose {
  std::string_view command;
  const char* group;
};

constexpr Purpose kPurposes[] = {
    {"demo", "See it work"},
    {"cp", "Move data"},
    {"serve", "Move data"},
    {"run", "Move data"},
    {"perf", "Measure"},
    {"ping", "Measure"},
    {"compare", "Measure"},
    {"lab", "Emulate a network"},
    {"top", "Find out what is wrong"},
    {"decode", "Find out what is wrong"},
    {"doctor", "Find out what is wrong"},
};

constexpr const char* kFooter =
    "Exit codes: 0 success, 1 the command failed, 2 the command line is wrong.\n"
    "`farverbs COMMAND --help` explains one command.";

void group_by_purpose(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands({})) {
    if (command->get_group().empty()) continue;  // hidden
    const auto* purpose =
        std::find_if(std::begin(kPurposes), std::end(kPurposes),
                     [&](const Purpose& entry) { return entry.command == command->get_name(); });
    command->group(purpose == std::end(kPurposes) ? "Other commands" : purpose->group);
  }
}

size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= from.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t substituted = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[to.size()];
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command :
       app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); })) {
    names.push_back(command->get_name());
  }
  return names;
}

std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name()
                                     : full_name(*app.get_parent()) + " " + app.get_name();
}

/// The innermost subcommand the arguments reached.
CLI::App& innermost(CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  return parsed.empty() ? app : innermost(*parsed.back());
}

/// The first argument nobody understood, with the (sub)command that was asked to.
struct Stray {
  CLI::App* command = nullptr;
  std::string word;
};

Stray find_stray(CLI::App& app) {
  if (const std::vector<std::string> left = app.remaining(false); !left.empty()) {
    return {&app, left.front()};
  }
  for (CLI::App* command : app.get_subcommands()) {
    if (Stray stray = find_stray(*command); stray.command != nullptr) return stray;
  }
  return {};
}

std::string describe(const Stray& stray) {
  const std::string option = stray.word.substr(0, stray.word.find('='));
  const bool is_option = !option.empty() && option.front() == '-';
  const auto candidates = is_option ? option_names(*stray.command) : command_names(*stray.command);
  const char* kind = is_option ? "option" : candidates.empty() ? "argument" : "command";
  const std::string& word = is_option ? option : stray.word;
  const std::string_view meant = closest_word(word, candidates);
  const std::string problem = fmt::format("unknown {} '{}'", kind, word);
  return meant.empty() ? problem : fmt::format("{}; did you mean '{}'?", problem, meant);
}

/// A help or version request prints and succeeds; everything else is explained on stderr.
int report_parse_error(CLI::App& app, const CLI::ParseError& error, bool no_arguments) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
    return app.exit(error) == 0 ? kExitOk : kExitFailed;
  }
  if (no_arguments) {
    fmt::print(stderr, "{}", app.help());
    return kExitUsage;
  }
  const Stray stray = find_stray(app);
  const CLI::App& command = stray.command != nullptr ? *stray.command : innermost(app);
  const std::string problem = stray.command != nullptr ? describe(stray) : error.what();
  const std::string name = full_name(command);
  fmt::print(stderr, "{}: {}\nSee '{} --help'.\n", name, problem, name);
  return kExitUsage;
}

}  // namespace

std::string_view closest_word(std::string_view word, const std::vector<std::string>& candidates) {
  const size_t limit = std::max<size_t>(2, word.size() / 3);
  size_t best = limit + 1;
  std::string_view closest;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best && distance < std::max(word.size(), candidate.size())) {
      best = distance;
      closest = candidate;
    }
  }
  return closest;
}

int run_command_line(int argc, const char* const* argv, const std::vector<Tool>& tools) {
  int exit_code = kExitOk;
  try {
    CLI::App app("Farverbs: RDMA verbs on any network, in userspace.", "farverbs");
    app.set_version_flag("--version", "farverbs " FARVERBS_VERSION);
    app.footer(kFooter);
    app.require_subcommand(1);
    for (const Tool& tool : tools) tool.add(app, &exit_code);
    group_by_purpose(app);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return report_parse_error(app, error, argc <= 1);
    }
  } catch (const std::exception& error) {
    // Tools report what they expect to fail themselves; what arrives here is a surprise.
    std::fprintf(stderr, "farverbs: %s\n", error.what());
    return kExitFailed;
  }
  return exit_code;
}

}  // namespace farverbs::tools
