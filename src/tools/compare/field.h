// Field: a line with the programs that run at its ends, for one measurement. A lab's path, or a
// veth pair where no emulator should be in the way. Everything that runs there ends with it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "farverbs/base/result.h"
#include "farverbs/base/time.h"
#include "tools/compare/cells.h"
#include "tools/lab/stats.h"

namespace farverbs::tools::compare {

/// A program that runs at an end; its output goes to files.
struct Child {
  pid_t pid = -1;
  std::string name;
  std::string output;  // a file
  std::string errors;  // a file
  bool ended = false;
  int exit_code = -1;
};

class Field {
 public:
  /// `folder` exists and belongs to the field's user; `seed` decides which packets are lost.
  static Result<std::unique_ptr<Field>> open(const Line& line, const std::string& folder,
                                             uint64_t seed);
  ~Field();
  Field(const Field&) = delete;
  Field& operator=(const Field&) = delete;

  /// The address of side 'a' or 'b'.
  std::string address(char side) const;
  /// `name` names the files of its output. Its standard input is empty.
  Result<Child*> start(char side, const std::string& name, const std::vector<std::string>& words);
  /// Waits until `child` listens on a TCP port. ETIMEDOUT, or EPIPE if it ended, with its words.
  Result<void> await_listening(Child& child, uint16_t port);
  /// ETIMEDOUT after `patience`, when it has been killed; EINTR if the user wants to stop.
  Result<void> wait(Child& child, Duration patience);
  void stop(Child& child, int signal);
  /// Sleeps, unless the user wants to stop: EINTR.
  Result<void> pause(Duration duration);
  /// IP bytes that have arrived at the end where `child` runs, loopback left out.
  static double received_bytes(const Child& child);
  /// Takes the line down or up.
  Result<void> set_down(bool down);

  /// Ends everything that runs and gives what the line counted (nothing on a veth pair).
  Result<lab::LabStats> close();

  std::string file(const std::string& name) const { return folder_ + "/" + name; }

 private:
  explicit Field(std::string folder) : folder_(std::move(folder)) {}
  Result<void> open_lab(const Line& line, uint64_t seed);
  Result<void> open_veth();
  bool reap(Child& child);
  Error enter(char side, const std::vector<std::string>& words) const;

  std::string folder_;
  std::string lab_;  // its name, or empty
  std::string addresses_[2];
  pid_t holders_[2] = {-1, -1};  // that keep the namespaces of a veth pair
  std::vector<std::unique_ptr<Child>> children_;
};

/// The last lines of a program's complaint, in one line; of its output if it has none.
std::string last_words(const Child& child);
std::string contents_of(const std::string& path);

/// From now on SIGINT and SIGTERM make waits of fields end with EINTR.
void stop_on_signals();
bool stop_wanted();

}  // namespace farverbs::tools::compare
