#include "tools/cp/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "tools/common/format.h"
#include "tools/common/process_usage.h"
#include "tools/cp/location.h"

namespace farverbs::tools::copy {
namespace {

constexpr auto kBarInterval = Duration::milliseconds(100);
constexpr auto kLineInterval = Duration::seconds(10);
constexpr auto kRateSpan = Duration::seconds(3);
constexpr size_t kMaxProblems = 1000;

// "1.20 GB": one kind of unit, so that the line does not jump.
std::string size_text(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.3g} {}", value, kUnits[unit]);
}

std::string shortened(const std::string& name, size_t columns) {
  if (name.size() <= columns) return name;
  return columns < 4 ? std::string() : "..." + name.substr(name.size() - (columns - 3));
}

size_t terminal_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20) return 80;
  return size.ws_col;
}

const char* plural(uint64_t count) { return count == 1 ? "" : "s"; }

}  // namespace

std::string format_clock(double seconds) {
  const auto whole = static_cast<uint64_t>(std::clamp(seconds, 0.0, 359'999.0) + 0.5);
  const uint64_t hours = whole / 3600;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string render_bar(const std::string& name, const Totals& totals, double bytes_per_second,
                       size_t columns) {
  const uint64_t done = totals.bytes_moved + totals.bytes_resumed;
  const bool known = totals.all_found && totals.bytes_found > 0;
  std::string right = size_text(done);
  if (known) right += " of " + size_text(totals.bytes_found);
  right += fmt::format("  {}", format_bit_rate(bytes_per_second * 8));
  if (totals.files_found > 1)
    right += fmt::format("  {}/{} files", totals.files_done, totals.files_found);
  if (known && bytes_per_second > 0 && done < totals.bytes_found) {
    right +=
        "  ETA " + format_clock(static_cast<double>(totals.bytes_found - done) / bytes_per_second);
  }
  if (!known) return shortened(name, columns / 3) + "  " + right;
  const double share =
      std::min(1.0, static_cast<double>(done) / static_cast<double>(totals.bytes_found));
  const std::string percent = fmt::format("{:3.0f}%", std::floor(share * 100));
  const std::string left = shortened(name, columns / 4);
  const size_t fixed = left.size() + right.size() + percent.size() + 7;
  std::string bar;
  if (columns >= fixed + 5) {
    const size_t width = std::min<size_t>(columns - fixed, 40);
    const auto full = static_cast<size_t>(share * static_cast<double>(width));
    bar = "[" + std::string(full, '=') + (full < width ? ">" : "") +
          std::string(full < width ? width - full - 1 : 0, ' ') + "] ";
  }
  return fmt::format("{} {} {}{}", left, percent, bar, right);
}

std::string render_summary(const Totals& totals, double seconds) {
  const double rate = seconds > 0 ? static_cast<double>(totals.bytes_moved) * 8 / seconds : 0;
  std::string text =
      fmt::format("{} file{}, {} moved in {} ({}), verified end to end", totals.files_done,
                  plural(totals.files_done), size_text(totals.bytes_moved),
                  format_duration(Duration::from_seconds(seconds)), format_bit_rate(rate));
  if (totals.files_unchanged > 0) {
    text += fmt::format("; {} already there", totals.files_unchanged);
  } else if (totals.bytes_resumed > 0) {
    text += fmt::format("; {} resumed from an earlier attempt", size_text(totals.bytes_resumed));
  }
  if (totals.pieces_repeated > 0) {
    text += fmt::format("; {} piece{} repaired", totals.pieces_repeated,
                        plural(totals.pieces_repeated));
  }
  if (!totals.problems.empty()) {
    text += fmt::format("; {} problem{}", totals.problems.size(), plural(totals.problems.size()));
  }
  return text;
}

std::string summary_json(const Totals& totals, double seconds, const std::string& error) {
  nlohmann::ordered_json json = {
      {"ok", error.empty() && totals.problems.empty()},
      {"files", totals.files_done},
      {"files_unchanged", totals.files_unchanged},
      {"bytes", totals.bytes_moved},
      {"bytes_resumed", totals.bytes_resumed},
      {"pieces_repeated", totals.pieces_repeated},
      {"connections", totals.connections},
      {"seconds", seconds},
      {"bits_per_second",
       seconds > 0 ? static_cast<double>(totals.bytes_moved) * 8 / seconds : 0.0},
      {"problems", nlohmann::ordered_json::array()}};
  for (const Problem& problem : totals.problems) {
    json["problems"].push_back(
        {{"path", percent_encode(problem.path)}, {"message", printable(problem.message)}});
  }
  if (!error.empty()) json["error"] = printable(error);
  return json.dump();
}

void RateMeter::add(Time now, uint64_t total_bytes) {
  samples_.push_back({now, total_bytes});
  while (samples_.size() > 2 && now - samples_[1].at >= kRateSpan) samples_.pop_front();
}

double RateMeter::bytes_per_second() const {
  if (samples_.size() < 2) return 0;
  const double seconds = (samples_.back().at - samples_.front().at).to_seconds();
  if (seconds <= 0) return 0;
  return static_cast<double>(samples_.back().bytes - samples_.front().bytes) / seconds;
}

Progress::Progress(ProgressStyle style, std::string name)
    : style_(style), name_(printable(name)), started_(clock_now()), drawn_(started_) {
  rate_.add(started_, 0);
}

Progress::~Progress() { clear(); }

double Progress::seconds() const { return (clock_now() - started_).to_seconds(); }

void Progress::begin_connection() {
  ++totals_.connections;
  totals_.files_found = totals_.bytes_found = 0;
  totals_.files_done = totals_.files_unchanged = totals_.bytes_resumed = 0;
  totals_.all_found = false;
  totals_.problems.clear();
  moved_before_ = totals_.bytes_moved;
}

void Progress::clear() {
  if (on_screen_) std::fputs("\r\033[K", stderr);
  on_screen_ = false;
}

void Progress::on_found(uint64_t files, uint64_t bytes) {
  totals_.files_found += files;
  totals_.bytes_found += bytes;
}

void Progress::on_all_found() { totals_.all_found = true; }

void Progress::on_bytes(uint64_t bytes, bool resumed) {
  (resumed ? totals_.bytes_resumed : totals_.bytes_moved) += bytes;
}

void Progress::on_file_done(const std::string&, bool unchanged) {
  ++totals_.files_done;
  if (unchanged) ++totals_.files_unchanged;
}

void Progress::on_retransmission() { ++totals_.pieces_repeated; }

void Progress::on_problem(const std::string& path, const std::string& message) {
  const std::string where = path.empty() ? name_ : printable(path);
  clear();
  fmt::print(stderr, "farverbs cp: {}: {}\n", where, message);
  if (totals_.problems.size() < kMaxProblems) totals_.problems.push_back({path, message});
}

void Progress::on_tick() {
  if (style_ == ProgressStyle::kNone) return;
  const Time now = clock_now();
  const Duration interval = style_ == ProgressStyle::kBar ? kBarInterval : kLineInterval;
  if (now - drawn_ >= interval) draw(now);
}

void Progress::draw(Time now) {
  drawn_ = now;
  rate_.add(now, totals_.bytes_moved);
  // What earlier connections of this run moved shows up as resumed in this one.
  Totals shown = totals_;
  shown.problems.clear();
  shown.bytes_moved -= moved_before_;
  const size_t columns = style_ == ProgressStyle::kBar ? terminal_columns() - 1 : 120;
  const std::string line = render_bar(name_, shown, rate_.bytes_per_second(), columns);
  if (style_ == ProgressStyle::kBar) {
    fmt::print(stderr, "\r\033[K{}", line.substr(0, columns));
    on_screen_ = true;
  } else {
    fmt::print(stderr, "{}\n", line);
  }
}

}  // namespace farverbs::tools::copy
