#include "tools/cp/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace farverbs::tools::copy {
namespace {

using testing::HasSubstr;
using testing::Not;

Totals half_way() {
  Totals totals;
  totals.files_found = 1;
  totals.bytes_found = 2'000'000'000;
  totals.bytes_moved = 750'000'000;
  totals.bytes_resumed = 250'000'000;
  totals.all_found = true;
  return totals;
}

TEST(Bar, ShowsShareSizeRateAndTimeLeft) {
  const std::string line = render_bar("film.mkv", half_way(), 100e6, 120);
  EXPECT_THAT(line, HasSubstr("film.mkv  50% [===="));
  EXPECT_THAT(line, HasSubstr("1 GB of 2 GB  800 Mb/s  ETA 0:10"));
  for (size_t columns = 20; columns < 200; ++columns) {
    const std::string narrow = render_bar(std::string(300, 'n'), half_way(), 1e6, columns);
    if (columns < 80) continue;
    EXPECT_LE(narrow.size(), columns) << narrow;
  }
}

TEST(Bar, PromisesNothingItDoesNotKnow) {
  Totals totals = half_way();
  totals.all_found = false;
  EXPECT_THAT(render_bar("d", totals, 1e6, 100), Not(HasSubstr("ETA")));
  EXPECT_THAT(render_bar("d", half_way(), 0, 100), Not(HasSubstr("ETA")));
  totals = half_way();
  totals.bytes_moved = totals.bytes_found;
  EXPECT_THAT(render_bar("d", totals, 1e6, 100), HasSubstr("100%"));
  EXPECT_THAT(render_bar("d", Totals{}, 0, 100), HasSubstr("0 B"));
}

TEST(Clock, ReadsLikeOne) {
  EXPECT_EQ(format_clock(0), "0:00");
  EXPECT_EQ(format_clock(7.4), "0:07");
  EXPECT_EQ(format_clock(754), "12:34");
  EXPECT_EQ(format_clock(11'045), "3:04:05");
  EXPECT_EQ(format_clock(-3), "0:00");
  EXPECT_EQ(format_clock(1e30), "99:59:59");
}

TEST(RateMeter, FollowsTheLastSeconds) {
  RateMeter meter;
  EXPECT_EQ(meter.bytes_per_second(), 0);
  Time now = Time::from_ns(1'000'000'000);
  uint64_t bytes = 0;
  for (int i = 0; i < 100; ++i) {
    meter.add(now, bytes);
    now = now + Duration::milliseconds(100);
    bytes += i < 50 ? 1'000'000 : 200'000;
  }
  EXPECT_NEAR(meter.bytes_per_second(), 2e6, 1e5);
}

TEST(Summary, SaysWhatHappened) {
  Totals totals = half_way();
  totals.files_done = 1;
  EXPECT_THAT(render_summary(totals, 6), HasSubstr("1 file, 750 MB moved in 6.00 s (1.00 Gb/s)"));
  EXPECT_THAT(render_summary(totals, 6), HasSubstr("250 MB resumed"));
  totals.problems.push_back({"a\xff", "no \xff"});
  totals.pieces_repeated = 2;
  EXPECT_THAT(render_summary(totals, 6), HasSubstr("2 pieces repaired; 1 problem"));
  const auto json = nlohmann::json::parse(summary_json(totals, 6, ""));
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["bytes"], 750'000'000);
  EXPECT_DOUBLE_EQ(json["bits_per_second"].get<double>(), 1e9);
  EXPECT_EQ(json["problems"][0]["path"], "a%FF");
}

}  // namespace
}  // namespace farverbs::tools::copy
