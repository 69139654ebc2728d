#include "tools/compare/result.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/common/format.h"

namespace farverbs::tools::compare {
namespace {

using nlohmann::json;

enum class Unit { kShare, kRatio, kMegabits, kMilliseconds, kSeconds, kCpu, kMegabytes, kCount };

struct Figure {
  const char* name;
  const char* title;
  Unit unit;
};

constexpr Figure kFigures[] = {
    {"goodput_of_limit", "goodput / limit", Unit::kShare},
    {"goodput_mbps", "goodput", Unit::kMegabits},
    {"limit_mbps", "limit", Unit::kMegabits},
    {"payload_of_wire", "payload / wire", Unit::kShare},
    {"first_5s_of_link", "first 5 s / link", Unit::kShare},
    {"ramp_s", "90% after", Unit::kSeconds},
    {"rtt_base_ms", "RTT base", Unit::kMilliseconds},
    {"rtt_added_p50_ms", "RTT +p50", Unit::kMilliseconds},
    {"rtt_added_p95_ms", "RTT +p95", Unit::kMilliseconds},
    {"rtt_added_max_ms", "RTT +max", Unit::kMilliseconds},
    {"retransmitted_per_lost", "resent / lost", Unit::kRatio},
    {"retransmitted_mb", "resent", Unit::kMegabytes},
    {"lost_mb", "lost", Unit::kMegabytes},
    {"queue_dropped", "queue drops", Unit::kCount},
    {"cpu_s_per_gb", "CPU / GB", Unit::kCpu},
    {"seconds", "time", Unit::kSeconds},
    {"setup_s", "of it connecting", Unit::kSeconds},
    {"floor_s", "floor", Unit::kSeconds},
    {"ours_mbps", "rate", Unit::kMegabits},
    {"cubic_mbps", "CUBIC beside it", Unit::kMegabits},
    {"cubic_solo_mbps", "CUBIC alone", Unit::kMegabits},
    {"ratio_to_cubic", "ratio to CUBIC", Unit::kRatio},
    {"cubic_keeps", "CUBIC keeps", Unit::kShare},
    {"first_mbps", "first", Unit::kMegabits},
    {"second_mbps", "second", Unit::kMegabits},
    {"jain_index", "Jain index", Unit::kShare},
    {"base_ms", "alone p50", Unit::kMilliseconds},
    {"above_base_p50_ms", "+p50", Unit::kMilliseconds},
    {"above_base_p99_ms", "+p99", Unit::kMilliseconds},
    {"above_base_p999_ms", "+p99.9", Unit::kMilliseconds},
    {"above_base_max_ms", "+max", Unit::kMilliseconds},
    {"within_20ms", "within base + 20 ms", Unit::kShare},
    {"bulk_mbps", "bulk beside it", Unit::kMegabits},
    {"recovery_s", "90% back after", Unit::kSeconds},
    {"before_mbps", "rate before", Unit::kMegabits},
    {"latency_us", "latency p50, us", Unit::kRatio},
    {"goodput_of_bbr", "goodput / BBR's", Unit::kRatio},
    {"cpu_of_bbr", "CPU / BBR's", Unit::kRatio},
    {"rate_of_scp", "rate / scp's", Unit::kRatio},
    {"rate_of_rsync", "rate / rsync's", Unit::kRatio},
    {"rate_of_standard", "rate / standard", Unit::kRatio},
    {"latency_of_standard", "latency / standard", Unit::kRatio},
};

const Figure* find(const std::string& name) {
  const auto* found = std::find_if(std::begin(kFigures), std::end(kFigures),
                                   [&](const Figure& f) { return name == f.name; });
  return found == std::end(kFigures) ? nullptr : found;
}

std::string digits(double value) {
  const double size = std::abs(value);
  return fmt::format("{:.{}f}", value, size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

json goals_json(const RowResult& result) {
  json goals = json::array();
  const auto figures = result.medians(kOurs);
  for (const Goal& goal : result.row.goals()) {
    goals.push_back({{"figure", goal.metric},
                     {"must", goal.must},
                     {"aim", goal.aim},
                     {"less_is_better", goal.less_is_better},
                     {"verdict", judge(goal, figures)}});
  }
  return goals;
}

json run_json(const Run& run) {
  json out = {{"program", run.program}, {"round", run.round}};
  if (!run.skipped.empty()) out["skipped"] = run.skipped;
  if (!run.failed.empty()) out["failed"] = run.failed;
  if (!run.warnings.empty()) out["warnings"] = run.warnings;
  if (!run.has_figures()) return out;
  out["figures"] = run.figures;
  if (!run.rate.bytes.empty()) {
    json bytes = json::array();
    for (const double count : run.rate.bytes) bytes.push_back(std::llround(count));
    out["rate"] = {{"interval_seconds", run.rate.step}, {"bytes", std::move(bytes)}};
  }
  json rtt = json::array();
  for (const RttSample& sample : run.rtt) {
    rtt.push_back({std::round(sample.at * 1e3) / 1e3, std::round(sample.ms * 1e3) / 1e3});
  }
  if (!rtt.empty()) out["rtt_seconds_ms"] = std::move(rtt);
  return out;
}

json row_json(const RowResult& result) {
  const Line& line = result.row.line;
  json runs = json::array();
  for (const Run& run : result.runs) runs.push_back(run_json(run));
  json medians = json::object();
  for (const std::string& program : result.programs()) medians[program] = result.medians(program);
  return {{"name", result.row.name()},
          {"kind", to_string(result.row.kind)},
          {"rate", line.rate},
          {"rtt_seconds", line.rtt},
          {"loss", line.loss},
          {"burst", line.burst},
          {"bytes", result.row.bytes},
          {"seconds", result.row.seconds},
          {"settle_seconds", result.row.settle},
          {"goals", goals_json(result)},
          {"medians", std::move(medians)},
          {"runs", std::move(runs)}};
}

}  // namespace

std::vector<std::string> RowResult::programs() const {
  std::vector<std::string> names;
  for (const Run& run : runs) {
    if (std::find(names.begin(), names.end(), run.program) == names.end()) {
      names.push_back(run.program);
    }
  }
  return names;
}

std::map<std::string, double> RowResult::medians(const std::string& program) const {
  std::map<std::string, std::vector<double>> all;
  for (const Run& run : runs) {
    if (run.program != program || !run.has_figures()) continue;
    for (const auto& [name, value] : run.figures) all[name].push_back(value);
  }
  std::map<std::string, double> out;
  for (auto& [name, values] : all) out[name] = median(std::move(values));
  if (program != kOurs) return out;
  // Medians first: programs of one round met different moments of this machine.
  const auto compare = [&](const char* ratio, const char* figure, const char* other) {
    const auto ours = out.find(figure);
    if (ours == out.end()) return;
    for (const std::string& name : programs()) {
      if (name == kOurs || name.rfind(other, 0) != 0) continue;
      const auto theirs = medians(name);
      const auto found = theirs.find(figure);
      if (found != theirs.end() && found->second > 0) out[ratio] = ours->second / found->second;
    }
  };
  if (row.kind == Kind::kBulk) {
    compare("goodput_of_bbr", "goodput_mbps", kBbr);
    compare("cpu_of_bbr", "cpu_s_per_gb", kBbr);
  } else if (row.kind == Kind::kFile) {
    compare("rate_of_scp", "goodput_mbps", "scp");
    compare("rate_of_rsync", "goodput_mbps", "rsync");
  }
  return out;
}

std::string show_figure(const std::string& name, double value) {
  const Figure* figure = find(name);
  switch (figure == nullptr ? Unit::kRatio : figure->unit) {
    case Unit::kShare:
      return fmt::format("{:.3f}", value);
    case Unit::kRatio:
      return digits(value);
    case Unit::kMegabits:
      return digits(value) + " Mb/s";
    case Unit::kMilliseconds:
      return digits(value) + " ms";
    case Unit::kSeconds:
      return digits(value) + " s";
    case Unit::kCpu:
      return digits(value) + " s/GB";
    case Unit::kMegabytes:
      return digits(value) + " MB";
    case Unit::kCount:
      return fmt::format("{:.0f}", value);
  }
  return digits(value);
}

std::string title_of(const std::string& name) {
  const Figure* figure = find(name);
  return figure == nullptr ? name : figure->title;
}

std::vector<std::string> shown_figures(Kind kind) {
  switch (kind) {
    case Kind::kBulk:
      return {"goodput_of_limit", "goodput_mbps",           "first_5s_of_link",
              "ramp_s",           "rtt_added_p50_ms",       "rtt_added_p95_ms",
              "rtt_added_max_ms", "retransmitted_per_lost", "cpu_s_per_gb"};
    case Kind::kAmount:
      return {"seconds", "setup_s", "floor_s", "goodput_mbps"};
    case Kind::kFile:
      return {"seconds", "goodput_mbps"};
    case Kind::kBesideCubic:
      return {"ours_mbps", "cubic_mbps", "ratio_to_cubic"};
    case Kind::kTwo:
      return {"first_mbps", "second_mbps", "jain_index"};
    case Kind::kBackground:
      return {"cubic_solo_mbps", "cubic_mbps", "cubic_keeps", "ours_mbps"};
    case Kind::kRealtime:
      return {"base_ms",           "above_base_p50_ms", "above_base_p99_ms", "above_base_p999_ms",
              "above_base_max_ms", "bulk_mbps"};
    case Kind::kFec:
      return {"base_ms", "above_base_p99_ms", "above_base_max_ms", "within_20ms"};
    case Kind::kBlackout:
      return {"before_mbps", "recovery_s"};
    case Kind::kShort:
      return {"goodput_mbps", "latency_us", "cpu_s_per_gb", "rate_of_standard",
              "latency_of_standard"};
  }
  return {};
}

const char* bound_text(const Goal& goal) {
  if (goal.fair) return "within a factor of 1 /";
  return goal.less_is_better ? "at most" : "at least";
}

std::string judge(const Goal& goal, const std::map<std::string, double>& figures) {
  const auto found = figures.find(goal.metric);
  if (found == figures.end()) return "";
  const auto good = [&](double bound) {
    if (goal.fair && found->second * bound > 1) return false;
    return goal.less_is_better ? found->second <= bound : found->second >= bound;
  };
  return good(goal.aim) ? "aim reached" : good(goal.must) ? "reached" : "missed";
}

json to_json(const Comparison& comparison) {
  json rows = json::array();
  for (const RowResult& row : comparison.rows) rows.push_back(row_json(row));
  return {{"tool", "compare wan"},
          {"version", comparison.version},
          {"machine", comparison.machine},
          {"started", comparison.started},
          {"rows", std::move(rows)}};
}

std::string to_text(const RowResult& result) {
  const std::vector<std::string> shown = shown_figures(result.row.kind);
  TextTable table;
  std::vector<std::string> head = {""};
  for (const std::string& name : shown) head.push_back(title_of(name));
  table.row(head);
  std::string notes;
  for (const std::string& program : result.programs()) {
    const auto figures = result.medians(program);
    for (const Run& run : result.runs) {
      if (run.program != program) continue;
      if (!run.skipped.empty()) notes += fmt::format("  {}: SKIPPED: {}\n", program, run.skipped);
      if (!run.failed.empty()) notes += fmt::format("  {}: FAILED: {}\n", program, run.failed);
      for (const std::string& text : run.warnings) {
        notes += fmt::format("  {}: WARNING: {}\n", program, text);
      }
    }
    if (figures.empty()) continue;
    std::vector<std::string> cells = {program};
    for (const std::string& name : shown) {
      const auto found = figures.find(name);
      cells.push_back(found == figures.end() ? "-" : show_figure(name, found->second));
    }
    table.row(std::move(cells));
  }
  const auto ours = result.medians(kOurs);
  for (const Goal& goal : result.row.goals()) {
    const std::string verdict = judge(goal, ours);
    if (verdict.empty()) continue;
    notes += fmt::format("  {} {}: {}; to be {} {}, better {}\n", title_of(goal.metric),
                         show_figure(goal.metric, ours.at(goal.metric)), verdict, bound_text(goal),
                         show_figure(goal.metric, goal.must), show_figure(goal.metric, goal.aim));
  }
  return fmt::format("{}\n{}{}", result.row.name(), table.to_string(), notes);
}

}  // namespace farverbs::tools::compare
