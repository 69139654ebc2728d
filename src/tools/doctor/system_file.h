// Small helpers of the probes: files of /proc and /sys, descriptors that close themselves, and
// experiments in a process of their own.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

namespace farverbs::tools::doctor {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }

 private:
  int fd_;
};

// Without the last line's end; nullopt if it cannot be read.
inline std::optional<std::string> read_file(const std::string& path) {
  std::ifstream in(path);
  if (!in) return {};
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// Runs `experiment` in a child process, because it changes the process (namespaces, for instance).
// It returns 0 or an errno value, which is the result; EIO if the child died.
template <typename Experiment>
int in_child(Experiment experiment) {
  const pid_t child = ::fork();
  if (child < 0) return errno;
  if (child == 0) ::_exit(experiment());
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return errno;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

}  // namespace farverbs::tools::doctor
