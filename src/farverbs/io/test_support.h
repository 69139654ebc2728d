// For the tests of this room: bodies that run in a child process with a network namespace of its
// own, which vanishes with it, and bursts of counted bytes.
#pragma once

#include <gtest/gtest.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "farverbs/io/file_descriptor.h"
#include "farverbs/io/port.h"

namespace farverbs::io {

inline constexpr int kSkippedExit = 77;

inline bool run_command(const std::string& command) { return std::system(command.c_str()) == 0; }

// Makes a namespace of this process's own with `lo` up; as root, or where users may have
// namespaces.
inline bool enter_own_network() {
  if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  const FileDescriptor fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::string("lo").copy(request.ifr_name, sizeof request.ifr_name - 1);
  if (ioctl(fd.get(), SIOCGIFFLAGS, &request) != 0) return false;
  request.ifr_flags |= IFF_UP | IFF_RUNNING;
  return ioctl(fd.get(), SIOCSIFFLAGS, &request) == 0;
}

// Forks; the child runs `body` and exits with 0, 1 (an expectation failed) or what body exits with.
template <typename Body>
pid_t fork_child(Body body) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  body();
  std::fflush(nullptr);
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

inline int exit_status(pid_t pid) {
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Runs `body` in a child with its own network; returns the exit status, kSkippedExit where the
// machine does not allow it.
template <typename Body>
int in_own_network(Body body) {
  return exit_status(fork_child([&] {
    if (!enter_own_network()) _exit(kSkippedExit);
    body();
  }));
}

#define FV_EXPECT_IN_OWN_NETWORK(...)                                            \
  do {                                                                           \
    const int fv_status = ::farverbs::io::in_own_network(__VA_ARGS__);           \
    if (fv_status == ::farverbs::io::kSkippedExit) {                             \
      GTEST_SKIP() << "NOT TESTED: needs root or user namespaces, and iproute2"; \
    }                                                                            \
    EXPECT_EQ(fv_status, 0) << "the child's failures are printed above";         \
  } while (0)

// A burst and its memory.
class OwnedBurst {
 public:
  explicit OwnedBurst(size_t capacity, size_t max_datagrams = 4096) : memory_(capacity) {
    burst_.reset(memory_, max_datagrams);
  }
  // Datagrams whose bytes count up from `first`.
  OwnedBurst& add(size_t size, uint8_t first = 0) {
    std::byte* place = burst_.append(size);
    for (size_t i = 0; i < size; ++i) place[i] = static_cast<std::byte>(first + i);
    return *this;
  }
  wire::TxBurst& operator*() { return burst_; }
  wire::TxBurst* operator->() { return &burst_; }

 private:
  std::vector<std::byte> memory_;
  wire::TxBurst burst_;
};

// A copy of what a port gave.
struct Received {
  std::vector<std::byte> bytes;
  size_t segment_size;
  Endpoint source;
  Endpoint destination;
  uint8_t traffic_class;
};

inline bool wait_readable(const Port& port, int timeout_ms = 2000) {
  pollfd p{port.wait_fd(), POLLIN, 0};
  return poll(&p, 1, timeout_ms) == 1;
}

// Receives until `datagrams` have come or none comes for a while.
inline std::vector<Received> receive_datagrams(Port& port, size_t datagrams,
                                               int timeout_ms = 2000) {
  std::vector<Received> result;
  size_t count = 0;
  std::array<RxBurst, 32> bursts;
  while (count < datagrams && wait_readable(port, timeout_ms)) {
    const size_t n = port.receive(bursts);
    for (const RxBurst& b : std::span(bursts).first(n)) {
      result.push_back({{b.bytes.begin(), b.bytes.end()},
                        b.segment_size,
                        b.source,
                        b.destination,
                        b.traffic_class});
      count += (b.bytes.size() + b.segment_size - 1) / b.segment_size;
    }
  }
  return result;
}

// The datagrams of bursts, one by one.
inline std::vector<std::vector<std::byte>> split(const std::vector<Received>& bursts) {
  std::vector<std::vector<std::byte>> result;
  for (const Received& b : bursts) {
    for (size_t at = 0; at < b.bytes.size(); at += b.segment_size) {
      const size_t size = std::min(b.segment_size, b.bytes.size() - at);
      result.emplace_back(b.bytes.begin() + static_cast<ptrdiff_t>(at),
                          b.bytes.begin() + static_cast<ptrdiff_t>(at + size));
    }
  }
  return result;
}

}  // namespace farverbs::io
