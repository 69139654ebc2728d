// What a comparison found, and how programs read it. A run is one program on one row in one round;
// its figures have names that end in their unit.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tools/compare/analysis.h"
#include "tools/compare/cells.h"

namespace farverbs::tools::compare {

inline constexpr const char* kOurs = "Farverbs";
inline constexpr const char* kCubic = "TCP CUBIC";
inline constexpr const char* kBbr = "TCP BBR";

struct Run {
  std::string program;
  int round = 0;
  std::string skipped;  // why it could not be run, and what to do; then there are no figures
  std::string failed;   // what went wrong
  std::map<std::string, double> figures;
  TimeLine rate;               // empty: not a flow
  std::vector<RttSample> rtt;  // beside the flow
  std::vector<std::string> warnings;

  bool has_figures() const { return skipped.empty() && failed.empty(); }
};

struct RowResult {
  Row row;
  std::vector<Run> runs;

  /// The programs in the order in which they were first run.
  std::vector<std::string> programs() const;
  /// The median over the rounds of each figure of a program; of ours also what they are to others'.
  std::map<std::string, double> medians(const std::string& program) const;
};

struct Comparison {
  std::string version;
  std::string machine;  // kernel and processors
  std::string started;  // date and time
  std::vector<RowResult> rows;
};

/// How a figure is shown to people: "0.971", "12.3 ms", "not reached" (for a missing one, "-").
std::string show_figure(const std::string& name, double value);
/// "goodput / limit" for "goodput_of_limit".
std::string title_of(const std::string& name);
/// The figures that a row's table shows, in their order.
std::vector<std::string> shown_figures(Kind kind);
/// "reached", "aim reached", "missed", or "" if the figure is missing.
// "at least", "at most", or for a ratio that should be near 1 "within a factor of 1 /".
const char* bound_text(const Goal& goal);
std::string judge(const Goal& goal, const std::map<std::string, double>& figures);

nlohmann::json to_json(const Comparison& comparison);
/// One table of each row, with its goals.
std::string to_text(const RowResult& result);
/// A page that needs nothing else: tables, bars and time lines as inline SVG.
std::string to_html(const Comparison& comparison);

}  // namespace farverbs::tools::compare
