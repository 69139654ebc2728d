// The comparison as one page.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "tools/compare/plot.h"
#include "tools/compare/result.h"

namespace farverbs::tools::compare {
namespace {

constexpr const char* kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Farverbs on long lines</title>
<style>
:root { --ink: #1c2430; --faint: #68717d; --line: #d9dee5; --paper: #ffffff; --c0: #1f6fd6;
        --c1: #d8681a; --c2: #2a9461; --c3: #8a63b8; --c4: #8ab4ea; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ee; --faint: #9aa4b1; --line: #333c48; --paper: #14181e; --c0: #62a4ff;
          --c1: #f0955a; --c2: #5cc794; --c3: #b896e3; --c4: #3c5f8c; } }
@media print { :root { --ink: #000; --faint: #444; --line: #ccc; --paper: #fff; --c0: #1f6fd6;
                       --c1: #d8681a; --c2: #2a9461; } section { break-inside: avoid; } }
body { margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: var(--ink);
       background: var(--paper); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
p { margin: .3rem 0; } .faint { color: var(--faint); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
th, td { padding: .2rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
         vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; } th { font-weight: 600; color: var(--faint); }
.wide { overflow-x: auto; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(24rem, 1fr)); gap: 1rem; }
svg { width: 100%; height: auto; } svg.bars { max-width: 36rem; }
svg text { font: 11px system-ui, sans-serif; fill: var(--ink); }
svg text.axis { fill: var(--faint); }
.grid { stroke: var(--line); } .mark { stroke: var(--ink); stroke-dasharray: 4 3; }
polyline { fill: none; stroke-width: 1.6; }
polyline.c0 { stroke: var(--c0); } polyline.c1 { stroke: var(--c1); }
polyline.c2 { stroke: var(--c2); }
polyline.c3 { stroke: var(--c3); } polyline.c4 { stroke: var(--c4); }
rect.c0, i.c0 { fill: var(--c0); background: var(--c0); }
rect.c1, i.c1 { fill: var(--c1); background: var(--c1); }
rect.c2, i.c2 { fill: var(--c2); background: var(--c2); }
rect.c3, i.c3 { fill: var(--c3); background: var(--c3); }
rect.c4, i.c4 { fill: var(--c4); background: var(--c4); }
i { display: inline-block; width: .8rem; height: .8rem; margin-right: .4rem; border-radius: 2px; }
.note { font-size: 13px; } .missed { color: #c0392b; } .reached { color: var(--c2); }
</style></head><body>
)";

std::string table(const RowResult& result) {
  const std::vector<std::string> shown = shown_figures(result.row.kind);
  std::string out = "<div class='wide'><table><tr><th></th>";
  for (const std::string& name : shown) out += "<th>" + escape(title_of(name)) + "</th>";
  out += "</tr>";
  for (const std::string& program : result.programs()) {
    const auto figures = result.medians(program);
    if (figures.empty()) continue;
    out += fmt::format("<tr><td><i class='{}'></i>{}</td>", color_class(program), escape(program));
    for (const std::string& name : shown) {
      const auto found = figures.find(name);
      out += fmt::format("<td>{}</td>", found == figures.end()
                                            ? std::string("–")
                                            : escape(show_figure(name, found->second)));
    }
    out += "</tr>";
  }
  return out + "</table></div>";
}

std::string notes(const RowResult& result) {
  std::string out;
  const auto ours = result.medians(kOurs);
  for (const Goal& goal : result.row.goals()) {
    const std::string verdict = judge(goal, ours);
    if (verdict.empty()) continue;
    out += fmt::format("<p class='note {}'>{} {}: {} (to be {} {}, better {})</p>",
                       verdict == "missed" ? "missed" : "reached", escape(title_of(goal.metric)),
                       escape(show_figure(goal.metric, ours.at(goal.metric))), verdict,
                       bound_text(goal), escape(show_figure(goal.metric, goal.must)),
                       escape(show_figure(goal.metric, goal.aim)));
  }
  for (const Run& run : result.runs) {
    const auto line = [&](const char* what, const std::string& text) {
      out += fmt::format("<p class='note'><b>{}: {}</b> {}</p>", escape(run.program), what,
                         escape(text));
    };
    if (!run.skipped.empty()) line("skipped:", run.skipped);
    if (!run.failed.empty()) line("failed:", run.failed);
    for (const std::string& text : run.warnings) line("warning:", text);
  }
  return out;
}

// Megabits a second, smoothed over a fifth of a second.
Curve rate_curve(const Run& run) {
  constexpr double kStep = 0.2;
  Curve curve{run.program, {}};
  for (double at = 0; at + kStep <= run.rate.seconds() + 1e-9; at += kStep) {
    curve.points.emplace_back(at + kStep / 2, mean_rate(run.rate, at, at + kStep) * 1e-6);
  }
  return curve;
}

Curve rtt_curve(const Run& run) {
  Curve curve{run.program, {}};
  for (const RttSample& sample : run.rtt) {
    if (sample.at >= 0) curve.points.emplace_back(sample.at, sample.ms);
  }
  curve.points = thin(curve.points, 260);
  return curve;
}

std::string plots(const RowResult& result) {
  std::vector<Curve> rates, rtts;
  for (const Run& run : result.runs) {
    // One round is shown; medians are in the table.
    if (run.round != 0 || !run.has_figures()) continue;
    if (!run.rate.bytes.empty()) rates.push_back(rate_curve(run));
    if (!run.rtt.empty()) rtts.push_back(rtt_curve(run));
  }
  if (rates.empty() && rtts.empty()) return {};
  std::string out = "<div class='plots'>";
  if (!rates.empty()) {
    const auto ours = result.medians(kOurs);
    const auto limit = ours.find("limit_mbps");
    out += lines(rates, {"Mb/s", 0, limit == ours.end() ? 0 : limit->second});
  }
  if (!rtts.empty()) out += lines(rtts, {"round trip beside it, ms", 0, 0});
  return out + "</div>";
}

// What a kind of row is about, as bars.
const char* main_figure(Kind kind) {
  switch (kind) {
    case Kind::kBulk:
      return "goodput_of_limit";
    case Kind::kAmount:
    case Kind::kFile:
      return "seconds";
    case Kind::kBesideCubic:
      return "ratio_to_cubic";
    case Kind::kTwo:
      return "jain_index";
    case Kind::kBackground:
      return "cubic_keeps";
    case Kind::kRealtime:
      return "above_base_p99_ms";
    case Kind::kFec:
      return "within_20ms";
    case Kind::kBlackout:
      return "recovery_s";
    case Kind::kShort:
      return "goodput_mbps";
  }
  return "";
}

std::string overview(const RowResult& result) {
  const std::string name = main_figure(result.row.kind);
  std::vector<Bar> all;
  double most = 0;
  for (const std::string& program : result.programs()) {
    const auto figures = result.medians(program);
    const auto found = figures.find(name);
    if (found == figures.end()) continue;
    all.push_back({program, found->second, show_figure(name, found->second)});
    most = std::max(most, found->second);
  }
  if (all.empty()) return {};
  double goal = 0;
  for (const Goal& one : result.row.goals()) {
    if (name == one.metric) goal = one.must;
  }
  // Shares are of a whole.
  const bool share = name == "goodput_of_limit" || name == "jain_index" || name == "within_20ms";
  return fmt::format("<h2>{} <span class='faint'>{}</span></h2>", escape(result.row.name()),
                     escape(title_of(name))) +
         bars(all, share ? 1 : std::max(most, goal), goal);
}

}  // namespace

std::string to_html(const Comparison& comparison) {
  std::string out = kHead;
  out += "<h1>Farverbs on long lines</h1>";
  out += fmt::format(
      "<p class='faint'>farverbs {}, {}; {}. Dashed: in bars the least that Farverbs is "
      "to reach, in time lines its limit. Rates count from the connection on, round trips from "
      "when the program was started.</p>",
      escape(comparison.version), escape(comparison.machine), escape(comparison.started));
  for (const RowResult& result : comparison.rows) {
    out += "<section>" + overview(result);
    if (overview(result).empty()) out += "<h2>" + escape(result.row.name()) + "</h2>";
    out += table(result) + notes(result) + plots(result) + "</section>\n";
  }
  return out + "</body></html>";
}

}  // namespace farverbs::tools::compare
