#include "tools/demo/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace farverbs::tools::demo {
namespace {

const BitRate kLine = BitRate::bits_per_second(80'000'000);  // 10 MB/s

Transfer steady(const char* name, double seconds, double share) {
  Transfer transfer;
  transfer.name = name;
  transfer.outcome = Outcome::kDone;
  transfer.identical = true;
  transfer.seconds = seconds;
  transfer.file_bytes = static_cast<uint64_t>(seconds * share * 10e6);
  transfer.sent_bytes = transfer.file_bytes + transfer.file_bytes / 10;
  for (double t = 0; t <= seconds + 1e-9; t += 0.1) {
    transfer.samples.push_back({t, static_cast<uint64_t>(t * share * 10e6)});
  }
  return transfer;
}

std::string line_of(const std::string& text, const std::string& name) {
  const size_t at = text.find("  " + name);
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

TEST(Report, TableGivesRateShareAndOverhead) {
  const std::string row = line_of(table({steady("Farverbs", 2, 0.5)}, kLine), "Farverbs");
  for (const char* part : {"2.00 s", "40.0", "50%", "1.10", "identical"}) {
    EXPECT_NE(row.find(part), std::string::npos) << part << " in " << row;
  }
}

TEST(Report, TableShoutsWhenACopyDiffers) {
  Transfer transfer = steady("Farverbs", 2, 0.5);
  transfer.identical = false;
  EXPECT_NE(table({transfer}, kLine).find("DIFFERS"), std::string::npos);
}

TEST(Report, TableSaysWhyThereIsNoCopy) {
  Transfer transfer = steady("TCP BBR", 2, 0.5);
  transfer.outcome = Outcome::kUnavailable;
  transfer.message = "no such algorithm";
  const std::string row = line_of(table({transfer}, kLine), "TCP BBR");
  EXPECT_NE(row.find("not available: no such algorithm"), std::string::npos) << row;
  EXPECT_EQ(row.find("identical"), std::string::npos) << row;
}

TEST(Report, TableSaysHowFarAStoppedCopyCame) {
  Transfer transfer = steady("TCP CUBIC", 2, 0.5);
  transfer.outcome = Outcome::kStopped;
  transfer.file_bytes *= 4;
  const std::string row = line_of(table({transfer}, kLine), "TCP CUBIC");
  EXPECT_NE(row.find("stopped after 2 s, when some 25% had come"), std::string::npos) << row;
}

TEST(Report, PictureSharesOneTimeAxis) {
  const std::string drawn = picture({steady("fast", 1, 1.0), steady("slow", 4, 0.25)}, kLine, 40);
  EXPECT_EQ(line_of(drawn, "fast"), "  fast         |##########|");
  EXPECT_EQ(line_of(drawn, "slow"), "  slow         |" + std::string(40, ':') + "|");
  EXPECT_NE(drawn.find("4.0 s"), std::string::npos);
}

TEST(Report, PictureShowsAnIdleSpan) {
  Transfer transfer = steady("stalled", 1, 1.0);
  transfer.seconds = 2;
  transfer.samples.push_back({2.0, transfer.samples.back().bytes});
  EXPECT_EQ(line_of(picture({transfer}, kLine, 10), "stalled"), "  stalled      |#####     |");
}

TEST(Report, PictureOfNothingIsEmpty) {
  EXPECT_EQ(picture({}, kLine, 10), "");
  EXPECT_EQ(picture({Transfer{}}, kLine, 10), "");
}

TEST(Report, JsonRoundTrip) {
  Transfer transfer = steady("x", 1, 1);
  transfer.outcome = Outcome::kStopped;
  transfer.message = "why";
  const Transfer back = from_json(to_json(transfer));
  EXPECT_EQ(back.outcome, Outcome::kStopped);
  EXPECT_EQ(back.message, "why");
  EXPECT_EQ(back.seconds, 1);
  ASSERT_EQ(back.samples.size(), transfer.samples.size());
  EXPECT_EQ(back.samples.back().bytes, transfer.samples.back().bytes);
}

}  // namespace
}  // namespace farverbs::tools::demo
