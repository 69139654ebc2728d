#include "tools/demo/demo.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "farverbs/base/prng.h"
#include "tools/command_line.h"
#include "tools/common/units_parse.h"
#include "tools/demo/line_end.h"
#include "tools/demo/report.h"

namespace farverbs::tools {
namespace {

using namespace demo;
namespace fs = std::filesystem;

constexpr size_t kPictureColumns = 60;

struct Arguments {
  std::string size = "64MiB";
  std::string rate = "200mbit";
  std::string rtt = "50ms";
  std::string loss = "0";
  std::string queue = "1bdp";
  double limit_seconds = 60;
  std::string directory;
  bool json = false;
};

/// What is copied by, in this order: the name in the table, and line_end's word for it.
struct Way {
  const char* name;
  const char* word;
};
constexpr Way kWays[] = {{"Farverbs", "farverbs"}, {"TCP CUBIC", "cubic"}, {"TCP BBR", "bbr"}};

/// A folder that is removed with its owner.
class Workspace {
 public:
  static Result<Workspace> make(const std::string& parent) {
    std::string name =
        (parent.empty() ? fs::temp_directory_path() : fs::path(parent)) / "farverbs-demo-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) {
      return Error::from_errno("cannot make a folder " + name + " (choose one with --directory)");
    }
    return Workspace(name);
  }
  Workspace(Workspace&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  Workspace& operator=(Workspace&&) = delete;
  ~Workspace() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  explicit Workspace(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

/// While it lives, the keyboard's signals end the children and not this process, which then cleans
/// up.
class SignalsToChildren {
 public:
  SignalsToChildren()
      : interrupt_(std::signal(SIGINT, SIG_IGN)), terminate_(std::signal(SIGTERM, SIG_IGN)) {}
  ~SignalsToChildren() {
    std::signal(SIGINT, interrupt_);
    std::signal(SIGTERM, terminate_);
  }
  SignalsToChildren(const SignalsToChildren&) = delete;
  SignalsToChildren& operator=(const SignalsToChildren&) = delete;

 private:
  void (*interrupt_)(int);
  void (*terminate_)(int);
};

std::string quoted(const std::string& word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// Random, so that nothing on the way can compress it.
Result<void> write_random_file(const fs::path& path, uint64_t bytes) {
  Prng prng(0x6661727665726273);
  std::ofstream file(path, std::ios::binary);
  std::vector<uint64_t> block(8192);
  for (uint64_t left = bytes; left > 0 && file;) {
    for (uint64_t& word : block) word = prng.next();
    const uint64_t part = std::min<uint64_t>(left, block.size() * sizeof(uint64_t));
    file.write(reinterpret_cast<const char*>(block.data()), static_cast<std::streamsize>(part));
    left -= part;
  }
  file.close();
  if (!file) return Error{ENOSPC, fmt::format("cannot write {} bytes to {}", bytes, path.string())};
  return {};
}

/// The hexadecimal SHA-256 of a file by coreutils, which nobody has to take our word for. Empty if
/// there is no such file.
std::string sha256(const fs::path& path) {
  FILE* pipe = ::popen(("sha256sum -b " + quoted(path.string()) + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return {};
  char hash[65] = {};
  const size_t got = std::fread(hash, 1, 64, pipe);
  // Read on, so that the writer is not cut off.
  for (char rest[256]; std::fread(rest, 1, sizeof rest, pipe) > 0;) continue;
  return ::pclose(pipe) == 0 && got == 64 ? hash : std::string();
}

/// Runs this program's `lab run` and returns its wait status; its output goes to `log`.
int run_lab(const Arguments& arguments, const fs::path& statistics, const fs::path& log,
            const std::string& a, const std::string& b) {
  const std::vector<std::string> words = {"farverbs",
                                          "lab",
                                          "run",
                                          "--rate",
                                          arguments.rate,
                                          "--rtt",
                                          arguments.rtt,
                                          "--loss",
                                          arguments.loss,
                                          "--queue",
                                          arguments.queue,
                                          "--quiet",
                                          "--json",
                                          statistics,
                                          "--",
                                          a,
                                          b};
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const std::string program = own_path();
  const SignalsToChildren guard;
  const pid_t child = ::fork();
  if (child < 0) return -1;
  if (child == 0) {
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    FILE* output = std::freopen(log.c_str(), "w", stderr);
    if (output != nullptr) ::dup2(::fileno(output), STDOUT_FILENO);
    ::execv(program.c_str(), argv.data());
    std::perror(program.c_str());
    ::_exit(1);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

std::string contents(const fs::path& path) {
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

/// The bytes A put on the line, by the lab's statistics; 0 if they are missing.
uint64_t bytes_sent(const fs::path& statistics) {
  const auto value = nlohmann::json::parse(contents(statistics), nullptr, false);
  if (!value.is_object() || !value.contains("a_to_b")) return 0;
  return value["a_to_b"].value("bytes_in", uint64_t{0});
}

Result<Transfer> copy(const Arguments& arguments, const Way& way, const fs::path& original,
                      const fs::path& folder) {
  const fs::path target = folder / (std::string(way.word) + ".copy");
  const fs::path report = folder / (std::string(way.word) + ".json");
  const fs::path statistics = folder / (std::string(way.word) + ".lab.json");
  const fs::path log = folder / (std::string(way.word) + ".lab.log");
  const std::string common =
      fmt::format("exec {} demo-end {{}} --way {} --file {} --copy {} --report {} --limit {}",
                  quoted(own_path()), way.word, quoted(original), quoted(target), quoted(report),
                  arguments.limit_seconds);
  const int status = run_lab(arguments, statistics, log, fmt::format(fmt::runtime(common), "send"),
                             fmt::format(fmt::runtime(common), "receive"));
  if (WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) >= 128)) {
    return Error{EINTR, "interrupted"};
  }
  if (status != 0 || !fs::exists(report)) return Error{EIO, contents(log)};
  Transfer transfer = from_json(nlohmann::json::parse(contents(report)));
  transfer.name = way.name;
  transfer.file_bytes = fs::file_size(original);
  transfer.sent_bytes = bytes_sent(statistics);
  if (transfer.outcome == Outcome::kDone) transfer.identical = sha256(target) == sha256(original);
  std::error_code ignored;
  fs::remove(target, ignored);
  return transfer;
}

void print_expectation(const Arguments& arguments) {
  const auto loss = parse_probability(arguments.loss);
  if (!loss.ok() || *loss == 0) return;
  fmt::print(
      "\n  This line loses packets. Farverbs sends again what is missing and does not take a loss "
      "without\n"
      "  a queue for congestion; CUBIC takes each for that, and runs dry.\n");
}

nlohmann::json to_json(const std::vector<Transfer>& transfers, const std::string& hash) {
  nlohmann::json list = nlohmann::json::array();
  for (const Transfer& transfer : transfers) {
    nlohmann::json entry = demo::to_json(transfer);
    entry["name"] = transfer.name;
    entry["outcome"] = transfer.outcome == Outcome::kDone          ? "done"
                       : transfer.outcome == Outcome::kStopped     ? "stopped"
                       : transfer.outcome == Outcome::kUnavailable ? "unavailable"
                                                                   : "failed";
    entry["identical"] = transfer.identical;
    entry["sent_bytes"] = transfer.sent_bytes;
    if (transfer.outcome == Outcome::kDone && transfer.seconds > 0) {
      entry["bits_per_second"] = static_cast<double>(transfer.file_bytes) * 8 / transfer.seconds;
    }
    list.push_back(std::move(entry));
  }
  return {{"sha256", hash}, {"transfers", std::move(list)}};
}

/// True if Farverbs' copy is right, and every other copy that was finished.
bool all_right(const std::vector<Transfer>& transfers) {
  return transfers.front().identical &&
         std::none_of(transfers.begin(), transfers.end(), [](const Transfer& transfer) {
           return transfer.outcome == Outcome::kFailed ||
                  (transfer.outcome == Outcome::kDone && !transfer.identical);
         });
}

int fail(const Error& error, int exit_code = kExitFailed) {
  fmt::print(stderr, "farverbs demo: {}\n", error.message);
  return exit_code;
}

int run_demo(const Arguments& arguments) {
  const auto rate = parse_rate(arguments.rate);
  if (!rate.ok()) return fail(rate.error(), kExitUsage);
  if (rate->is_zero())
    return fail(invalid("--rate: the demo needs a line with a rate"), kExitUsage);
  const auto size = parse_bytes(arguments.size);
  if (!size.ok()) return fail(size.error(), kExitUsage);
  const auto workspace = Workspace::make(arguments.directory);
  if (!workspace.ok()) return fail(workspace.error());
  const fs::path original = workspace->path() / "original" / "file";
  fs::create_directory(original.parent_path());
  if (const auto written = write_random_file(original, *size); !written.ok()) {
    return fail(written.error());
  }
  const std::string hash = sha256(original);
  if (hash.empty()) return fail({ENOENT, "sha256sum is missing: install coreutils"});

  // People read along on stderr when a program reads stdout.
  FILE* progress = arguments.json ? stderr : stdout;
  fmt::print(
      progress,
      "A line of {}, {} round trip, {} loss, queue {}; a random file of {} bytes,\nSHA-256 {}\n",
      arguments.rate, arguments.rtt, arguments.loss, arguments.queue, *size, hash);
  std::vector<Transfer> transfers;
  for (const Way& way : kWays) {
    fmt::print(progress, "copying by {} ...\n", way.name);
    std::fflush(progress);
    auto transfer = copy(arguments, way, original, workspace->path());
    if (!transfer.ok()) return fail(transfer.error());
    transfers.push_back(std::move(*transfer));
  }
  if (arguments.json) {
    fmt::print("{}\n", to_json(transfers, hash).dump(2));
  } else {
    fmt::print("\n{}\n{}", table(transfers, *rate), picture(transfers, *rate, kPictureColumns));
    print_expectation(arguments);
  }
  return all_right(transfers) ? kExitOk : kExitFailed;
}

void add_demo(CLI::App& app, int* exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "demo", "Copies a file over an emulated line by Farverbs and by kernel TCP, and compares");
  command->add_option("--size", arguments->size, "Of the file")->capture_default_str();
  command->add_option("--rate", arguments->rate, "Of the line")->capture_default_str();
  command->add_option("--rtt", arguments->rtt, "Round trip of the line")->capture_default_str();
  command->add_option("--loss", arguments->loss, "Share of packets lost, such as 0.1%")
      ->capture_default_str();
  command->add_option("--queue", arguments->queue, "Of the line's bottleneck, such as 1bdp or 20ms")
      ->capture_default_str();
  command->add_option("--limit", arguments->limit_seconds, "Seconds a copy may take")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--directory", arguments->directory,
                      "Where the files go while it runs (default: the temporary directory)");
  command->add_flag("--json", arguments->json, "For programs");
  command->footer("Exit code 1 if a copy failed or differs from the original.");
  command->callback([arguments, exit_code] { *exit_code = run_demo(*arguments); });
}

void add_end(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<EndOptions>();
  auto role = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("demo-end", "One end of the demo's line");
  command->group("");
  command->add_option("role", *role)->required()->check(CLI::IsMember({"send", "receive"}));
  command->add_option("--way", options->way)->required();
  command->add_option("--file", options->file)->required();
  command->add_option("--copy", options->copy)->required();
  command->add_option("--report", options->report)->required();
  command->add_option("--limit", options->limit_seconds)->required();
  command->callback([options, role, exit_code] {
    const Result<void> result = *role == "send" ? run_sender(*options) : run_receiver(*options);
    if (!result.ok()) *exit_code = fail(result.error());
  });
}

}  // namespace

void register_demo(CLI::App& app, int* exit_code) {
  add_demo(app, exit_code);
  add_end(app, exit_code);
}

}  // namespace farverbs::tools
