#include "tools/compare/result.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tools/compare/plot.h"

namespace farverbs::tools::compare {
namespace {

Run run_of(const char* program, int round, double share) {
  Run run;
  run.program = program;
  run.round = round;
  run.figures = {{"goodput_of_limit", share}, {"rtt_added_p95_ms", 4}};
  run.rate.bytes.assign(30, 2.4e6);
  run.rtt = {{0.1, 100}, {0.2, 104}};
  return run;
}

Comparison sample() {
  Row row;
  row.line = {200e6, 0.1, 0.01, 1};
  row.seconds = 3;
  Run skipped;
  skipped.program = kBbr;
  skipped.skipped = "the kernel does not offer <bbr>";
  return {"1",
          "a machine",
          "today",
          {{row,
            {run_of(kOurs, 0, 0.98), run_of(kCubic, 0, 0.01), skipped, run_of(kOurs, 1, 0.96),
             run_of(kOurs, 2, 0.99)}}}};
}

TEST(CompareResult, MediansAreOfTheRounds) {
  const RowResult row = sample().rows.front();
  EXPECT_DOUBLE_EQ(row.medians(kOurs).at("goodput_of_limit"), 0.98);
  EXPECT_EQ(row.programs(), (std::vector<std::string>{kOurs, kCubic, kBbr}));
  EXPECT_TRUE(row.medians(kBbr).empty());
}

TEST(CompareResult, OursAreComparedWithTheOthersMedians) {
  RowResult row = sample().rows.front();
  for (auto& run : row.runs) run.figures["goodput_mbps"] = run.program == kOurs ? 180 : 90;
  row.runs[2].skipped.clear();
  EXPECT_DOUBLE_EQ(row.medians(kOurs).at("goodput_of_bbr"), 2);
  EXPECT_FALSE(row.medians(kCubic).count("goodput_of_bbr"));
}

TEST(CompareResult, GoalsAreJudged) {
  const Goal more{"x", 0.9, 0.95}, less{"x", 10, 5, true};
  EXPECT_EQ(judge(more, {{"x", 0.96}}), "aim reached");
  EXPECT_EQ(judge(more, {{"x", 0.9}}), "reached");
  EXPECT_EQ(judge(more, {{"x", 0.89}}), "missed");
  EXPECT_EQ(judge(less, {{"x", 5}}), "aim reached");
  EXPECT_EQ(judge(less, {{"x", 11}}), "missed");
  EXPECT_EQ(judge(less, {}), "");
}

TEST(CompareResult, TheTableTellsWhatWasSkippedAndWhatWasMissed) {
  const std::string text = to_text(sample().rows.front());
  EXPECT_NE(text.find("bulk 200 Mb/s 100 ms 1%"), std::string::npos) << text;
  EXPECT_NE(text.find("TCP BBR: SKIPPED: the kernel"), std::string::npos) << text;
  EXPECT_NE(text.find("goodput / limit 0.980: reached"), std::string::npos) << text;
}

TEST(CompareResult, JsonHasEveryRun) {
  const auto json = to_json(sample());
  const auto& row = json["rows"][0];
  EXPECT_EQ(row["runs"].size(), 5u);
  EXPECT_EQ(row["medians"][kOurs]["goodput_of_limit"], 0.98);
  EXPECT_EQ(row["runs"][0]["rate"]["bytes"].size(), 30u);
  EXPECT_EQ(row["runs"][0]["rtt_seconds_ms"][1], nlohmann::json({0.2, 104.0}));
  EXPECT_EQ(row["goals"][0]["verdict"], "reached");
}

TEST(CompareResult, ThePageEscapesAndNeedsNoNetwork) {
  const std::string page = to_html(sample());
  EXPECT_NE(page.find("offer &lt;bbr&gt;"), std::string::npos);
  EXPECT_EQ(page.find("http"), std::string::npos);
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_NE(page.find("<polyline class='c0'"), std::string::npos);
}

TEST(ComparePlot, ThinningKeepsTheGreatest) {
  std::vector<std::pair<double, double>> points;
  for (int i = 0; i < 1000; ++i) points.emplace_back(i * 0.01, i == 500 ? 99 : 1);
  const auto few = thin(points, 50);
  EXPECT_LE(few.size(), 51u);
  EXPECT_GE(few.size(), 40u);
  double most = 0;
  for (const auto& [x, y] : few) most = std::max(most, y);
  EXPECT_EQ(most, 99);
}

TEST(ComparePlot, AxesEndAtRoundNumbers) {
  EXPECT_EQ(round_up(0), 1);
  EXPECT_EQ(round_up(1), 1);
  EXPECT_EQ(round_up(1.3), 1.6);
  EXPECT_EQ(round_up(187), 200);
  EXPECT_EQ(round_up(610), 800);
}

// Taking five times what a neighbour gets is as bad as getting a fifth.
TEST(Judge, ARatioOfSharesMayBeTooGreat) {
  const Goal goal{"ratio_to_cubic", 0.5, 0.7, false, true};
  EXPECT_EQ(judge(goal, {{"ratio_to_cubic", 1.0}}), "aim reached");
  EXPECT_EQ(judge(goal, {{"ratio_to_cubic", 1.9}}), "reached");
  EXPECT_EQ(judge(goal, {{"ratio_to_cubic", 5.16}}), "missed");
  EXPECT_EQ(judge(goal, {{"ratio_to_cubic", 0.4}}), "missed");
}

}  // namespace
}  // namespace farverbs::tools::compare
