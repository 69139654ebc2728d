// What a user sees of a copy: a bar with rate and time left on a terminal, plain lines elsewhere,
// and the summary, for people or as JSON.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "farverbs/base/time.h"
#include "tools/cp/observer.h"

namespace farverbs::tools::copy {

struct Problem {
  std::string path;
  std::string message;
};

// Everything that is counted. Bytes are those of file contents without holes.
struct Totals {
  uint64_t files_found = 0;
  uint64_t bytes_found = 0;
  bool all_found = false;
  uint64_t files_done = 0;  // with their final names, in this run or before
  uint64_t files_unchanged = 0;
  uint64_t bytes_moved = 0;      // verified at the receiver, in this run
  uint64_t bytes_resumed = 0;    // that were there before
  uint64_t pieces_repeated = 0;  // did not verify at first
  uint64_t connections = 0;
  std::vector<Problem> problems;
};

// One line of at most `columns`: name, bar, share, size, rate and time left, as far as known.
std::string render_bar(const std::string& name, const Totals& totals, double bytes_per_second,
                       size_t columns);
// "0:07", "12:34", "3:04:05".
std::string format_clock(double seconds);
// One paragraph for people; `seconds` is the time of the whole run.
std::string render_summary(const Totals& totals, double seconds);
std::string summary_json(const Totals& totals, double seconds, const std::string& error);

// Bytes per second over the last seconds.
class RateMeter {
 public:
  void add(Time now, uint64_t total_bytes);
  double bytes_per_second() const;

 private:
  struct Sample {
    Time at;
    uint64_t bytes;
  };
  std::deque<Sample> samples_;
};

enum class ProgressStyle { kNone, kLines, kBar };

class Progress final : public Observer {
 public:
  Progress(ProgressStyle style, std::string name);
  ~Progress() override;

  // A connection begins: what it finds and resumes is counted anew.
  void begin_connection();
  // The bar leaves the terminal; then text may be printed.
  void clear();
  const Totals& totals() const { return totals_; }
  double seconds() const;

  void on_found(uint64_t files, uint64_t bytes) override;
  void on_all_found() override;
  void on_bytes(uint64_t bytes, bool resumed) override;
  void on_file_done(const std::string& path, bool unchanged) override;
  void on_retransmission() override;
  void on_problem(const std::string& path, const std::string& message) override;
  void on_tick() override;

 private:
  void draw(Time now);

  ProgressStyle style_;
  std::string name_;
  Totals totals_;
  uint64_t moved_before_ = 0;  // by earlier connections
  Time started_;
  Time drawn_;
  RateMeter rate_;
  bool on_screen_ = false;
};

}  // namespace farverbs::tools::copy
