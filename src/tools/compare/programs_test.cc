#include "tools/compare/programs.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tools/compare/result.h"

namespace farverbs::tools::compare {
namespace {

TEST(ComparePrograms, OurReportIsReadFromTheClient) {
  const auto flow = read_flow({kOurs, 0, 3, {}},
                              R"({"timeline":{"interval_seconds":0.05,"bytes":[0,100,200]},
      "full_packet":{"payload_bytes":1024,"ip_bytes":1068},
      "counters":{"client":{"retransmitted_bytes":42}},
      "cpu":{"client_seconds":0.5,"server_seconds":0.25}})",
                              "listening on port 7480\n");
  ASSERT_TRUE(flow.ok()) << flow.error().message;
  EXPECT_EQ(flow->payload, 300);
  EXPECT_EQ(flow->retransmitted_bytes, 42);
  EXPECT_DOUBLE_EQ(flow->cpu_seconds, 0.75);
  EXPECT_DOUBLE_EQ(flow->packet.wire(), 1106);
}

TEST(ComparePrograms, TcpCountsWhatTheReceiverSaw) {
  const auto flow =
      read_flow({kBbr, 0, 3, {}}, R"({"end":{"sum_sent":{"retransmits":3,"bytes":999,"seconds":2},
         "cpu_utilization_percent":{"host_total":10,"remote_total":15}},"intervals":[]})",
                R"({"intervals":[{"sum":{"start":0,"end":0.1,"bytes":10}},
                        {"sum":{"start":0.1,"end":0.3,"bytes":40}}]})");
  ASSERT_TRUE(flow.ok()) << flow.error().message;
  EXPECT_NEAR(flow->payload, 50, 1e-9);
  EXPECT_NEAR(flow->rate.bytes.at(2), 20, 1e-9);
  EXPECT_EQ(flow->retransmitted_bytes, 3 * 1448);
  EXPECT_DOUBLE_EQ(flow->cpu_seconds, 0.5);
}

TEST(ComparePrograms, WhatIsNoReportIsAnError) {
  EXPECT_FALSE(read_flow({kOurs, 0, 3, {}}, "", "").ok());
  EXPECT_FALSE(read_flow({kOurs, 0, 3, {}}, "{}", "").ok());
  EXPECT_FALSE(read_flow({kBbr, 0, 3, {}}, R"({"error":"refused"})", R"({"intervals":[]})").ok());
  EXPECT_FALSE(read_flow({kBbr, 0, 3, {}}, "{}", "").ok());
}

TEST(ComparePrograms, OurClientKeepsSeveralProductsOfRateAndRoundTripPosted) {
  const Line line{1e9, 0.3, 0, 1};
  const auto words = client_words({kOurs, 0, 5, {"--class", "bulk"}}, line, "10.0.0.1", 7480);
  const auto value = [&](const char* option) {
    return *(std::find(words.begin(), words.end(), option) + 1);
  };
  EXPECT_GE(std::stod(value("--size")) * std::stod(value("--depth")), 3 * 37.5e6);
  EXPECT_EQ(value("--class"), "bulk");
  EXPECT_EQ(value("--seconds"), "5");
  const auto paced =
      client_words({kOurs, 0, 5, {"--rate-messages", "60", "--size", "9"}}, line, "10.0.0.1", 7480);
  EXPECT_EQ(std::count(paced.begin(), paced.end(), "--size"), 1);
}

}  // namespace
}  // namespace farverbs::tools::compare
