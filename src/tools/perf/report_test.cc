#include "tools/perf/report.h"

#include <gtest/gtest.h>

namespace farverbs::tools::perf {
namespace {

Report example(Mode mode, bool bidirectional) {
  Arguments a;
  a.mode = mode;
  a.size = 1000;
  a.bidirectional = bidirectional;
  Report r;
  r.options = resolve(a).value();
  r.client_address = "10.0.0.1";
  r.server_address = "10.0.0.2";
  r.path_mtu = 1024;
  r.client.elapsed = Duration::seconds(2);
  r.client.cpu = Duration::seconds(1);
  r.client.messages = 1'000'000;
  r.server.elapsed = Duration::seconds(1);
  r.server.cpu = Duration::milliseconds(500);
  r.server.messages = 250'000;
  return r;
}

TEST(PerfReport, BandwidthIsOfPayload) {
  const Json json = to_json(example(Mode::kBandwidth, false));
  EXPECT_DOUBLE_EQ(json["bits_per_second"], 4e9);
  EXPECT_DOUBLE_EQ(json["messages_per_second"], 5e5);
  EXPECT_EQ(json["messages"], 1'000'000);
  EXPECT_DOUBLE_EQ(json["cpu"]["client_seconds_per_gb"], 1.0);
  EXPECT_DOUBLE_EQ(json["cpu"]["server_seconds_per_gb"], 0.5);
  EXPECT_DOUBLE_EQ(json["cpu"]["seconds_per_gb"], 1.5);
  EXPECT_FALSE(json.contains("latency_us"));
  EXPECT_FALSE(json.contains("to_server"));
}

TEST(PerfReport, BothDirectionsAddUpAtTheirOwnRates) {
  const Json json = to_json(example(Mode::kBandwidth, true));
  EXPECT_DOUBLE_EQ(json["bits_per_second"], 6e9);
  EXPECT_DOUBLE_EQ(json["to_server"]["bits_per_second"], 4e9);
  EXPECT_DOUBLE_EQ(json["to_client"]["bits_per_second"], 2e9);
  EXPECT_DOUBLE_EQ(json["cpu"]["seconds_per_gb"], 1.2);
}

TEST(PerfReport, LatencyHasPercentilesInMicroseconds) {
  Report r = example(Mode::kLatency, false);
  for (int i = 1; i <= 1000; ++i) r.latency.add(Duration::microseconds(i));
  const Json json = to_json(r);
  EXPECT_EQ(json["latency_us"]["kind"], "round_trip");
  EXPECT_EQ(json["latency_us"]["count"], 1000);
  EXPECT_NEAR(json["latency_us"]["p50"], 500, 5);
  EXPECT_NEAR(json["latency_us"]["p99"], 990, 10);
  EXPECT_NEAR(json["latency_us"]["p999"], 999, 10);
  EXPECT_DOUBLE_EQ(json["latency_us"]["max"], 1000);
  r.options.target_idle = true;
  EXPECT_EQ(to_json(r)["latency_us"]["kind"], "post_to_completion");
  EXPECT_NE(to_text(r).find("p99.9"), std::string::npos);
}

TEST(PerfReport, EmptyMessagesDivideByNothing) {
  Report r = example(Mode::kBandwidth, false);
  r.options.size = 0;
  EXPECT_DOUBLE_EQ(to_json(r)["cpu"]["seconds_per_gb"], 0.0);
  r.client.elapsed = Duration();
  EXPECT_DOUBLE_EQ(to_json(r)["messages_per_second"], 0.0);
  EXPECT_FALSE(to_text(r).empty());
}

TEST(PerfReport, HasEveryFieldThatProgramsRead) {
  const Json json = to_json(example(Mode::kBandwidth, false));
  for (const char* field : {"tool", "client", "server", "options", "path_mtu", "seconds",
                            "messages", "bits_per_second", "messages_per_second", "transport",
                            "class", "full_packet", "cpu", "retransmitted_packets", "counters"}) {
    EXPECT_TRUE(json.contains(field)) << field;
  }
}

TEST(PerfReport, SidesTravelAsJson) {
  Snapshot end{Time::from_ns(7), Duration::nanoseconds(5), 3, {}, {}};
  end.qps.retransmitted_packets = 2;
  end.qps.timeouts = 1;
  const SideReport side = difference({}, end);
  const auto got = side_from_json(parse_json_object(to_json(side).dump()).value());
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->elapsed.ns(), 7);
  EXPECT_EQ(got->cpu.ns(), 5);
  EXPECT_EQ(got->messages, 3u);
  EXPECT_EQ(got->retransmitted, 2u);
  EXPECT_TRUE(got->counters.contains("receive_overflows"));
  EXPECT_EQ(got->counters["timeouts"], 1);
  EXPECT_FALSE(side_from_json(Json::object()).ok());
}

}  // namespace
}  // namespace farverbs::tools::perf
