#include "tools/run/run.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "farverbs/io/interfaces.h"
#include "tools/command_line.h"
#include "tools/run/environment.h"

namespace farverbs::tools {
namespace {

// As env(1) and shells say it.
constexpr int kCannotRun = 126;
constexpr int kNotFound = 127;

struct RunCommand {
  std::string interface;
  bool shell = false;
  std::vector<std::string> program;
};

Result<void> check_interface(const std::string& name) {
  FV_ASSIGN(const std::vector<io::Interface> interfaces, io::list_interfaces());
  std::string known;
  for (const io::Interface& interface : interfaces) {
    if (interface.addresses.empty()) continue;
    if (interface.name == name) return {};
    known += (known.empty() ? "" : ", ") + interface.name;
  }
  return invalid("no interface " + name + " with an IP address; there is " + known);
}

Result<std::string> libraries() {
  std::vector<std::string> folders;
  if (const char* named = std::getenv("FARVERBS_LIBRARIES"); named != nullptr && *named != '\0') {
    folders = {named};
  } else {
    std::error_code error;
    folders = run::library_folders(std::filesystem::read_symlink("/proc/self/exe", error));
  }
  return run::find_libraries(folders);
}

run::Environment present() {
  run::Environment before;
  for (const char* name : {"LD_LIBRARY_PATH", "LD_PRELOAD"}) {
    if (const char* value = std::getenv(name); value != nullptr) before[name] = value;
  }
  return before;
}

int start(const std::vector<std::string>& program) {
  std::vector<char*> arguments;
  for (const std::string& word : program) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  const int code = errno;
  fmt::print(stderr, "farverbs run: {}: {}\n", program[0], std::strerror(code));
  return code == ENOENT ? kNotFound : kCannotRun;
}

int run_command(RunCommand& c) {
  if (c.shell && c.program.empty()) {
    const char* shell = std::getenv("SHELL");
    c.program = {shell != nullptr && *shell != '\0' ? shell : "/bin/sh"};
    // bash shows it in front of its prompt's usual text.
    ::setenv("debian_chroot", "farverbs", 0);
  }
  if (c.program.empty()) {
    fmt::print(stderr, "farverbs run: name a program, or ask for a --shell\n");
    return kExitUsage;
  }
  if (!c.interface.empty()) {
    if (auto known = check_interface(c.interface); !known.ok()) {
      fmt::print(stderr, "farverbs run: {}\n", known.error().message);
      return kExitUsage;
    }
  }
  const Result<std::string> folder = libraries();
  if (!folder.ok()) {
    fmt::print(stderr, "farverbs run: {}\n", folder.error().message);
    return kExitFailed;
  }
  const auto interface =
      c.interface.empty() ? std::nullopt : std::optional<std::string>(c.interface);
  for (const auto& [name, value] :
       run::environment_for(*folder, run::preloads(*folder), interface, present())) {
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  return start(c.program);
}

}  // namespace

void register_run(CLI::App& app, int* exit_code) {
  auto command = std::make_shared<RunCommand>();
  RunCommand& c = *command;
  CLI::App* run = app.add_subcommand("run", "Start an RDMA program on the soft NICs, unmodified.");
  run->footer(
      "Each network interface with an address is a device, fv_<interface>; GID 0 is its IPv4 "
      "address:\n  farverbs run -- ib_write_bw -d fv_eth0 -x 0\n  farverbs run --interface eth0 "
      "-- ibv_rc_pingpong -g 0 server\nNeeds no root. Does not reach setuid programs, nor what "
      "clears its environment.");
  run->add_option("--interface", c.interface, "Show only this network interface as a device.");
  run->add_flag("--shell", c.shell, "Start a shell; everything that it starts uses the soft NICs.");
  run->add_option("program", c.program, "The program and its arguments, after `--`.");
  run->positionals_at_end();
  run->callback([command, exit_code] { *exit_code = run_command(*command); });
}

}  // namespace farverbs::tools
