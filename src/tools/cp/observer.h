// Observer: who wants to know how a session goes: the progress display and the summary.
#pragma once

#include <cstdint>
#include <string>

namespace farverbs::tools::copy {

class Observer {
 public:
  virtual ~Observer() = default;
  // More to do was found; `complete`: nothing will be added any more.
  virtual void on_found(uint64_t files, uint64_t bytes) = 0;
  virtual void on_all_found() = 0;
  // Bytes that are verified at the receiver; `resumed`: an earlier attempt had brought them.
  virtual void on_bytes(uint64_t bytes, bool resumed) = 0;
  virtual void on_file_done(const std::string& path, bool unchanged) = 0;
  virtual void on_retransmission() = 0;
  // A file that is not copied, or not whole.
  virtual void on_problem(const std::string& path, const std::string& message) = 0;
  // Called now and then, also when nothing moves.
  virtual void on_tick() = 0;
};

}  // namespace farverbs::tools::copy
