#include <gtest/gtest.h>

#include "tools/top/exporter.h"
#include "tools/top/view.h"
#if FARVERBS_HAS_PROMETHEUS
#include <prometheus/text_serializer.h>

#include "tools/top/metrics.h"
#endif

namespace farverbs::tools::top {
namespace {

std::string snapshot(double seconds, uint64_t sent, uint64_t resent) {
  return Json{{"version", 1},
              {"pid", 42},
              {"monotonic_ns", static_cast<uint64_t>(seconds * 1e9)},
              {"device", {{"address", "192.0.2.1"}, {"sent_datagrams", 7}}},
              {"paths",
               {{{"id", 0},
                 {"peer", "192.0.2.2:4791"},
                 {"traffic_class", 8},
                 {"phase", "cruise"},
                 {"requests", {{"rtt_us", 100'000.0}, {"window_bytes", 1}}},
                 {"far",
                  {{"rtt_us", 101'000.0},
                   {"min_rtt_us", 99'000.0},
                   {"window_bytes", 2'500'000},
                   {"inflight_bytes", 2'000'000},
                   {"pacing_bits_per_second", 190'000'000}}}}}},
              {"qps",
               {{{"qpn", 0x123456},
                 {"type", "RC"},
                 {"transport", "far"},
                 {"state", "RTS"},
                 {"class", "bulk"},
                 {"path", 0},
                 {"peer", "192.0.2.2:4791"},
                 {"counters",
                  {{"sent_payload_bytes", sent},
                   {"sent_packets", sent / 1000},
                   {"retransmitted_packets", resent}}}},
                {{"qpn", 9},
                 {"type", "UD"},
                 {"transport", "standard"},
                 {"state", "INIT"},
                 {"counters", Json::object()}}}}}
      .dump();
}

std::vector<DeviceStats> look(double seconds, uint64_t sent, uint64_t resent) {
  return {parse_stats(snapshot(seconds, sent, resent)).value()};
}

TEST(Top, TwoLooksMakeRates) {
  const auto before = look(10, 1'000'000, 5), now = look(10.5, 11'000'000, 105);
  const auto lines = make_lines(before, now);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].qp->qpn, 0x123456u);
  EXPECT_DOUBLE_EQ(lines[0].sent_bits, 160e6);
  EXPECT_DOUBLE_EQ(lines[0].resent_per_second, 200);
  EXPECT_DOUBLE_EQ(lines[0].resent_share, 0.01);
  ASSERT_NE(lines[0].flight, nullptr);
  EXPECT_EQ(lines[0].flight->min_rtt_us, 99'000) << "a far QP's flight is the far one";
  EXPECT_EQ(lines[1].flight, nullptr);
}

TEST(Top, AQueuePairThatIsNewHasNoRates) {
  const auto now = look(10.5, 11'000'000, 105);
  EXPECT_EQ(make_lines({}, now)[0].sent_bits, 0);
  // Counters that went back are another queue pair's of the same number.
  const auto before = look(10, 99'000'000, 200);
  EXPECT_EQ(make_lines(before, now)[0].sent_bits, 0);
}

TEST(Top, TheTextShowsWhatMatters) {
  const auto before = look(10, 1'000'000, 5), now = look(10.5, 11'000'000, 105);
  const auto lines = make_lines(before, now);
  const std::string text = to_text(lines, 0);
  for (const char* word : {"2 queue pairs in 1 process", "160 Mb/s", "RC far", "bulk", "101 ms",
                           "99.0 ms", "2.5 MB", "190 Mb/s", "1.00%", "cruise", "0x123456"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word << "\n" << text;
  }
  EXPECT_NE(to_text(lines, 1).find("and 1 more"), std::string::npos);
  EXPECT_NE(to_text({}, 0).find("FARVERBS_STATS=1"), std::string::npos);
}

TEST(Top, JsonHasWhatWasToldAndTheRates) {
  const auto before = look(10, 0, 0), now = look(11, 1'000'000, 0);
  const Json json = to_json(now, make_lines(before, now));
  const Json& qp = json["devices"][0]["qps"][0];
  EXPECT_EQ(qp["sent_bits_per_second"], 8e6);
  EXPECT_EQ(qp["counters"]["sent_payload_bytes"], 1'000'000);
}

TEST(Top, WhatIsNoSnapshotIsRefusedByName) {
  EXPECT_FALSE(parse_stats("").ok());
  EXPECT_FALSE(parse_stats("{}").ok());
  const Json good = Json::parse(snapshot(1, 2, 3));
  for (const char* field : {"version", "pid", "monotonic_ns", "device", "paths", "qps"}) {
    Json bad = good;
    bad.erase(field);
    const auto parsed = parse_stats(bad.dump());
    ASSERT_FALSE(parsed.ok()) << field;
    EXPECT_NE(parsed.error().message.find(field), std::string::npos) << parsed.error().message;
  }
  Json bad = good;
  bad["qps"] = {1, 2};
  EXPECT_FALSE(parse_stats(bad.dump()).ok());
  bad = good;
  bad["version"] = 2;
  EXPECT_FALSE(parse_stats(bad.dump()).ok());
}

TEST(Top, EndpointsAreOnLoopbackUnlessSaidOtherwise) {
  EXPECT_EQ(parse_endpoint("9464").value(), "127.0.0.1:9464");
  EXPECT_EQ(parse_endpoint(":9464").value(), "127.0.0.1:9464");
  EXPECT_EQ(parse_endpoint("0.0.0.0:80").value(), "0.0.0.0:80");
  for (const char* wrong : {"", "x", "1:", "70000", "a:b", "9464x"}) {
    EXPECT_FALSE(parse_endpoint(wrong).ok()) << wrong;
  }
}

#if FARVERBS_HAS_PROMETHEUS
TEST(Top, PrometheusGetsTheSameNumbers) {
  const std::string text =
      prometheus::TextSerializer().Serialize(to_metrics(look(10, 11'000'000, 105)));
  for (const char* line :
       {"farverbs_devices 1", "# TYPE farverbs_qp_sent_payload_bytes_total counter",
        "farverbs_qp_sent_payload_bytes_total{pid=\"42\",process=\"\",address=\"192.0.2.1\","
        "qpn=\"0x123456\",peer=\"192.0.2.2:4791\"} 11000000",
        "flight=\"far\",path=\"0\"} 0.101", "transport=\"far\",state=\"RTS\",class=\"bulk\"} 1"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
}
#endif

}  // namespace
}  // namespace farverbs::tools::top
