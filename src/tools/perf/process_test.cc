// The command line, and what one process says when the other is killed or stopped.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tools/command_line.h"
#include "tools/common/json_fields.h"
#include "tools/perf/perf.h"

namespace farverbs::tools {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// A `farverbs` process whose outputs are read together.
class Process {
 public:
  explicit Process(std::vector<std::string> arguments) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    arguments.insert(arguments.begin(), FARVERBS_BINARY);
    std::vector<char*> raw;
    for (std::string& argument : arguments) raw.push_back(argument.data());
    raw.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::dup2(ends[1], STDERR_FILENO);
      ::execv(raw[0], raw.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    output_ = ends[0];
  }
  ~Process() {
    if (!over_) {
      ::kill(pid_, SIGKILL);
      wait_for_end(10s);
    }
    ::close(output_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void signal(int number) const { ::kill(pid_, number); }
  const std::string& text() const { return text_; }

  bool wait_for_text(const std::string& wanted, std::chrono::milliseconds patience = 10s) {
    const auto end = steady_clock::now() + patience;
    while (text_.find(wanted) == std::string::npos && steady_clock::now() < end) read_some(50);
    return text_.find(wanted) != std::string::npos;
  }
  // The exit code; -1: it has not ended in time; 128 + n: killed by signal n.
  int wait_for_end(std::chrono::milliseconds patience) {
    const auto end = steady_clock::now() + patience;
    int status = 0;
    while (::waitpid(pid_, &status, WNOHANG) == 0) {
      if (steady_clock::now() >= end) return -1;
      read_some(20);
    }
    over_ = true;
    while (read_some(0)) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  bool read_some(int timeout_ms) {
    pollfd entry{output_, POLLIN, 0};
    if (::poll(&entry, 1, timeout_ms) != 1) return false;
    char buffer[4096];
    const ssize_t n = ::read(output_, buffer, sizeof buffer);
    if (n <= 0) {
      // The end of the output is no reason to spin until the process is reaped.
      std::this_thread::sleep_for(std::chrono::milliseconds(timeout_ms / 2));
      return false;
    }
    text_.append(buffer, static_cast<size_t>(n));
    return true;
  }

  pid_t pid_ = -1;
  int output_ = -1;
  bool over_ = false;
  std::string text_;
};

struct Server : Process {
  Server() : Server(std::vector<std::string>{}) {}
  explicit Server(std::vector<std::string> more)
      : Process([&] {
          std::vector<std::string> arguments = {"perf",      "server", "--bind",
                                                "127.0.0.1", "--port", "0"};
          arguments.insert(arguments.end(), more.begin(), more.end());
          return arguments;
        }()) {
    EXPECT_TRUE(wait_for_text(" for perf and ping\n")) << text();
    const std::string before = "listening on 127.0.0.1:";
    const size_t at = text().find(before);
    if (at != std::string::npos)
      port = std::to_string(std::stoi(text().substr(at + before.size())));
  }
  std::string port = "1";
};

std::vector<std::string> client(const Server& server, std::vector<std::string> more) {
  std::vector<std::string> arguments = {"perf", "client", "127.0.0.1", "--port", server.port};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(PerfProcess, JsonIsTheOnlyOutput) {
  Server server({"--once"});
  Process c(client(server, {"--iterations", "20", "--json"}));
  ASSERT_EQ(c.wait_for_end(20s), 0) << c.text();
  const auto json = parse_json_object(c.text());
  ASSERT_TRUE(json.ok()) << c.text();
  EXPECT_EQ((*json)["messages"], 20);
  EXPECT_GT((*json)["bits_per_second"].get<double>(), 0);
  EXPECT_EQ(server.wait_for_end(10s), 0) << server.text();
}

TEST(PerfProcess, KilledServerIsToldByTheClient) {
  for (const std::vector<std::string>& how : {std::vector<std::string>{"--op", "write"},
                                              {"--op", "send"},
                                              {"--op", "read", "--mode", "latency"},
                                              {"--op", "write", "--mode", "latency"}}) {
    Server server;
    std::vector<std::string> more = how;
    more.insert(more.end(), {"--seconds", "60", "--report", "0.1"});
    Process c(client(server, more));
    ASSERT_TRUE(c.wait_for_text("messages/s")) << c.text();
    server.signal(SIGKILL);
    EXPECT_EQ(c.wait_for_end(10s), kExitFailed) << c.text();
    EXPECT_NE(c.text().find("the server at 127.0.0.1 port " + server.port + " went away"),
              std::string::npos)
        << c.text();
  }
}

TEST(PerfProcess, KilledClientIsToldAndTheServerServesOn) {
  Server server;
  for (const std::vector<std::string>& how : {std::vector<std::string>{"--op", "write"},
                                              {"--op", "send", "--bidirectional"},
                                              {"--op", "send", "--mode", "latency"}}) {
    std::vector<std::string> more = how;
    more.insert(more.end(), {"--seconds", "60", "--report", "0.1"});
    Process c(client(server, more));
    ASSERT_TRUE(c.wait_for_text("messages/s")) << c.text();
    c.signal(SIGKILL);
    c.wait_for_end(5s);
  }
  EXPECT_TRUE(server.wait_for_text("client 127.0.0.1 went away")) << server.text();
  Process c(client(server, {"--iterations", "20"}));
  EXPECT_EQ(c.wait_for_end(20s), 0) << c.text();
}

TEST(PerfProcess, OnceEndsWithFailureWhenTheClientIsKilled) {
  Server server({"--once"});
  Process c(client(server, {"--seconds", "60", "--report", "0.1"}));
  ASSERT_TRUE(c.wait_for_text("messages/s")) << c.text();
  c.signal(SIGKILL);
  EXPECT_EQ(server.wait_for_end(10s), kExitFailed) << server.text();
  EXPECT_NE(server.text().find("went away"), std::string::npos) << server.text();
}

TEST(PerfProcess, StoppedSidesContinue) {
  for (bool stop_server : {true, false}) {
    Server server;
    Process c(client(server, {"--seconds", "2", "--report", "0.1", "--op", "send"}));
    ASSERT_TRUE(c.wait_for_text("messages/s")) << c.text();
    const Process& stopped = stop_server ? static_cast<const Process&>(server) : c;
    stopped.signal(SIGSTOP);
    std::this_thread::sleep_for(1000ms);
    stopped.signal(SIGCONT);
    EXPECT_EQ(c.wait_for_end(20s), 0) << c.text();
  }
}

struct Outcome {
  int code;
  std::string error;
};

Outcome run(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), {"farverbs", "perf"});
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = run_command_line(static_cast<int>(arguments.size()), arguments.data(),
                                    {{"perf", register_perf}});
  testing::internal::GetCapturedStdout();
  return {code, testing::internal::GetCapturedStderr()};
}

TEST(PerfCommandLine, WrongUseIsExplained) {
  const std::pair<std::vector<const char*>, const char*> cases[] = {
      {{}, "subcommand"},
      {{"client"}, "host"},
      {{"client", "127.0.0.1", "--op", "erase"}, "compare-swap"},
      {{"client", "127.0.0.1", "--op", "fetch-add", "--size", "16"}, "--size 8"},
      {{"client", "127.0.0.1", "--size", "big"}, "'big' is not a size"},
      {{"client", "127.0.0.1", "--mode", "latency", "--qps", "2"}, "--qps"},
      {{"client", "127.0.0.1", "--siz", "2"}, "did you mean '--size'"},
      {{"client", "127.0.0.1", "--depth", "-1"}, "--depth"},
      {{"client", "127.0.0.1", "--report", "-1"}, "--report"},
      {{"server", "--bind", "nowhere"}, "'nowhere' is not an IPv4 or IPv6 address"},
      {{"server", "--port", "70000"}, "--port"},
  };
  for (const auto& [arguments, part] : cases) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, kExitUsage) << part;
    EXPECT_NE(outcome.error.find(part), std::string::npos) << outcome.error;
  }
}

TEST(PerfCommandLine, NobodyThereIsExplained) {
  const Outcome outcome = run({"client", "127.0.0.1", "--port", "1"});
  EXPECT_EQ(outcome.code, kExitFailed);
  EXPECT_NE(outcome.error.find("127.0.0.1 port 1"), std::string::npos) << outcome.error;
  EXPECT_NE(outcome.error.find("is the server running"), std::string::npos) << outcome.error;
}

}  // namespace
}  // namespace farverbs::tools
