#include "tools/compare/cells.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace farverbs::tools::compare {
namespace {

TEST(CompareCells, TheDefaultMatrixHasEveryCellOnceAndTheSpecialRows) {
  const auto rows = make_rows({}).value();
  std::set<std::string> names;
  for (const Row& row : rows) names.insert(row.name());
  EXPECT_EQ(names.size(), rows.size());
  EXPECT_EQ(
      std::count_if(rows.begin(), rows.end(),
                    [](const Row& row) { return row.kind == Kind::kBulk && row.line.burst == 1; }),
      18);
  EXPECT_TRUE(names.count("bulk 1 Gb/s 300 ms 0.1%"));
  EXPECT_TRUE(names.count("bulk 200 Mb/s 100 ms 1% in bursts of 8"));
  EXPECT_TRUE(names.count("amount 100 MB 1 Gb/s 100 ms 1%"));
  EXPECT_TRUE(names.count("blackout 200 Mb/s 100 ms"));
  EXPECT_TRUE(names.count("short veth"));
}

TEST(CompareCells, ListsAndAFilterChooseRows) {
  Plan plan;
  plan.rate = "50mbit";
  plan.rtt = "20ms,1s";
  plan.loss = "0,5%";
  plan.only = "^bulk 50 ";
  plan.seconds = 6;
  const auto rows = make_rows(plan).value();
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[3].name(), "bulk 50 Mb/s 1000 ms 5%");
  EXPECT_EQ(rows[0].settle, 3);
  EXPECT_EQ(rows[3].goals().front().must, 0.94);
}

TEST(CompareCells, TheQuickPlanStaysBelowAMinute) {
  Plan plan;
  plan.quick = true;
  double seconds = 0;
  const auto rows = make_rows(plan).value();
  for (const Row& row : rows) seconds += 3 * (row.seconds + 2);
  EXPECT_LT(seconds, 60);
}

TEST(CompareCells, MistakesNameTheOption) {
  const auto message = [](std::string Plan::*option, const char* value) {
    Plan plan;
    plan.*option = value;
    const auto rows = make_rows(plan);
    return rows.ok() ? std::string() : rows.error().message;
  };
  EXPECT_NE(message(&Plan::rate, "200").find("--rate"), std::string::npos);
  EXPECT_NE(message(&Plan::rate, "unlimited").find("--rate"), std::string::npos);
  EXPECT_NE(message(&Plan::rtt, "1ms,,").find("--rtt"), std::string::npos);
  EXPECT_NE(message(&Plan::loss, "1").find("--loss"), std::string::npos);
  EXPECT_NE(message(&Plan::only, "(").find("--only"), std::string::npos);
  EXPECT_NE(message(&Plan::only, "nothing").find("--list"), std::string::npos);
}

}  // namespace
}  // namespace farverbs::tools::compare
