// A child process of a test, with what it prints.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tools/cp/test_files.h"

extern char** environ;

namespace farverbs::tools::copy {

using Milliseconds = std::chrono::milliseconds;

class Process {
 public:
  Process(std::vector<std::string> arguments, std::string output) : output_(std::move(output)) {
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 1, output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                       0600);
    ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    EXPECT_EQ(::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
    ::posix_spawn_file_actions_destroy(&actions);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (running()) {
      ::kill(pid_, SIGKILL);
      ::kill(pid_, SIGCONT);
      (void)wait();
    }
  }

  void signal(int number) const { ::kill(pid_, number); }
  bool running() {
    if (code_ == kNone && ::waitpid(pid_, &status_, WNOHANG) == pid_) note();
    return code_ == kNone;
  }
  // Its exit code, 128 + signal, or -1 if it still runs after `patience` (and is killed then).
  int wait(Milliseconds patience = Milliseconds(60'000)) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (running()) {
      if (std::chrono::steady_clock::now() > end) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, &status_, 0);
        code_ = -1;
        ADD_FAILURE() << "still running: " << text();
        break;
      }
      std::this_thread::sleep_for(Milliseconds(2));
    }
    return code_;
  }
  std::string text() const { return read_file(output_); }
  // False if `part` does not show up in what it prints.
  bool prints(const std::string& part, Milliseconds patience = Milliseconds(20'000)) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (std::chrono::steady_clock::now() < end) {
      if (text().find(part) != std::string::npos) return true;
      std::this_thread::sleep_for(Milliseconds(2));
    }
    return false;
  }

 private:
  static constexpr int kNone = -2;
  void note() { code_ = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_); }
  std::string output_;
  pid_t pid_ = -1;
  int status_ = 0;
  int code_ = kNone;
};

}  // namespace farverbs::tools::copy
