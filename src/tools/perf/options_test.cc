#include "tools/perf/options.h"

#include <gtest/gtest.h>

#include <functional>

namespace farverbs::tools::perf {
namespace {

Arguments arguments(Op op, Mode mode) {
  Arguments a;
  a.op = op;
  a.mode = mode;
  return a;
}

TEST(PerfOptions, DefaultsSuitTheMode) {
  const Options write = resolve(arguments(Op::kWrite, Mode::kBandwidth)).value();
  EXPECT_EQ(write.size, 1u << 20);
  EXPECT_EQ(write.depth, 32u);
  EXPECT_EQ(write.signal_every, 1u);
  EXPECT_EQ(write.slots(), 1u);
  EXPECT_EQ(write.wait, Wait::kBlock);
  EXPECT_EQ(write.run_time, Duration::seconds(5));
  const Options latency = resolve(arguments(Op::kSend, Mode::kLatency)).value();
  EXPECT_EQ(latency.size, 64u);
  EXPECT_EQ(latency.depth, 1u);
  EXPECT_EQ(latency.wait, Wait::kPoll);
  EXPECT_EQ(resolve(arguments(Op::kFetchAdd, Mode::kBandwidth)).value().size, 8u);
}

TEST(PerfOptions, TheClassGoesToTheServer) {
  Arguments a = arguments(Op::kWrite, Mode::kBandwidth);
  a.traffic = verbs::TrafficClass::kInteractive;
  Json json = parse_json_object(to_json(resolve(a).value()).dump()).value();
  EXPECT_EQ(from_json(json).value().traffic, verbs::TrafficClass::kInteractive);
  json["class"] = "urgent";
  EXPECT_FALSE(from_json(json).ok());
}

TEST(PerfOptions, SmallMessagesAreSignaledNowAndThen) {
  Arguments a = arguments(Op::kWrite, Mode::kBandwidth);
  a.size = 64;
  const Options o = resolve(a).value();
  EXPECT_EQ(o.depth, 128u);
  EXPECT_EQ(o.signal_every, 32u);
  a.depth = 1;
  EXPECT_EQ(resolve(a).value().signal_every, 1u);
}

TEST(PerfOptions, ColdMemoryIsFarLargerThanCaches) {
  Arguments a = arguments(Op::kWrite, Mode::kBandwidth);
  a.cold = true;
  EXPECT_EQ(resolve(a).value().slots(), 1024u);
  a.region = 3u << 20;
  EXPECT_EQ(resolve(a).value().slots(), 3u);
}

TEST(PerfOptions, EmptyMessagesHaveSlotsToo) {
  Arguments a = arguments(Op::kSend, Mode::kBandwidth);
  a.size = 0;
  const Options o = resolve(a).value();
  EXPECT_EQ(o.stride(), 64u);
  EXPECT_GE(o.slots(), 1u);
}

struct Refused {
  const char* names;  // what the message has to speak of
  Op op;
  Mode mode;
  std::function<void(Arguments&)> change;
};

TEST(PerfOptions, WrongCombinationsAreRefusedByName) {
  const Refused cases[] = {
      {"--size 8", Op::kFetchAdd, Mode::kBandwidth, [](Arguments& a) { a.size = 16; }},
      {"--size 8", Op::kCompareSwap, Mode::kLatency, [](Arguments& a) { a.size = 4; }},
      {"--size", Op::kWrite, Mode::kBandwidth, [](Arguments& a) { a.size = UINT64_C(1) << 32; }},
      {"--inline", Op::kRead, Mode::kBandwidth, [](Arguments& a) { a.inlined = true; }},
      {"--inline", Op::kWrite, Mode::kBandwidth, [](Arguments& a) { a.inlined = true; }},
      {"--mtu", Op::kWrite, Mode::kBandwidth, [](Arguments& a) { a.mtu = 1500; }},
      {"--qps", Op::kWrite, Mode::kBandwidth, [](Arguments& a) { a.qps = 0; }},
      {"--depth", Op::kWrite, Mode::kBandwidth, [](Arguments& a) { a.depth = 0; }},
      {"--depth", Op::kWrite, Mode::kBandwidth, [](Arguments& a) { a.depth = 1 << 20; }},
      {"--signal-every", Op::kWrite, Mode::kBandwidth, [](Arguments& a) { a.signal_every = 33; }},
      {"--region", Op::kWrite, Mode::kBandwidth, [](Arguments& a) { a.region = 4096; }},
      {"--target-idle", Op::kWrite, Mode::kBandwidth, [](Arguments& a) { a.target_idle = true; }},
      {"--target-idle", Op::kSend, Mode::kLatency, [](Arguments& a) { a.target_idle = true; }},
      {"--interval", Op::kWrite, Mode::kBandwidth, [](Arguments& a) { a.interval_us = 5; }},
      {"--qps", Op::kRead, Mode::kLatency, [](Arguments& a) { a.qps = 2; }},
      {"--bidirectional", Op::kRead, Mode::kLatency, [](Arguments& a) { a.bidirectional = true; }},
      {"--size", Op::kWrite, Mode::kLatency, [](Arguments& a) { a.size = 0; }},
      {"--target-idle", Op::kWrite, Mode::kLatency, [](Arguments& a) { a.wait = Wait::kBlock; }},
      {"--seconds", Op::kWrite, Mode::kBandwidth, [](Arguments& a) { a.seconds = -1; }},
      {"--seconds", Op::kWrite, Mode::kBandwidth,
       [](Arguments& a) {
         a.seconds = 1;
         a.iterations = 1;
       }},
      {"--iterations", Op::kWrite, Mode::kBandwidth, [](Arguments& a) { a.iterations = 0; }},
      {"--warmup", Op::kWrite, Mode::kBandwidth, [](Arguments& a) { a.warmup_seconds = -1; }},
      {"--spin", Op::kWrite, Mode::kBandwidth, [](Arguments& a) { a.spin_us = 1e12; }},
      {"--bytes", Op::kWrite, Mode::kLatency, [](Arguments& a) { a.bytes = 1; }},
      {"--bytes", Op::kWrite, Mode::kBandwidth, [](Arguments& a) { a.bytes = 0; }},
      {"--bytes", Op::kWrite, Mode::kBandwidth,
       [](Arguments& a) {
         a.bytes = 1;
         a.seconds = 1;
       }},
      {"--warmup", Op::kWrite, Mode::kBandwidth,
       [](Arguments& a) {
         a.bytes = 1;
         a.warmup_seconds = 1;
       }},
      {"--rate-messages", Op::kWrite, Mode::kBandwidth,
       [](Arguments& a) {
         a.message_rate = 60;
         a.qps = 2;
       }},
      {"--rate-messages", Op::kWrite, Mode::kBandwidth, [](Arguments& a) { a.message_rate = 0; }},
      {"--timeline", Op::kWrite, Mode::kBandwidth, [](Arguments& a) { a.timeline_seconds = 1e-6; }},
  };
  for (const Refused& refused : cases) {
    Arguments a = arguments(refused.op, refused.mode);
    refused.change(a);
    const Result<Options> got = resolve(a);
    ASSERT_FALSE(got.ok()) << refused.names;
    EXPECT_NE(got.error().message.find(refused.names), std::string::npos) << got.error().message;
  }
}

TEST(PerfOptions, BytesAreWholeMessagesAndAShorterLastOne) {
  Arguments a = arguments(Op::kWrite, Mode::kBandwidth);
  a.bytes = 2'500'000;
  a.size = 1'000'000;
  const Options some = resolve(a).value();
  EXPECT_EQ(some.iterations, 3u);
  EXPECT_EQ(some.last_size(), 500'000u);
  EXPECT_EQ(some.warmup, Duration());
  a.bytes = 3'000'000;
  EXPECT_EQ(resolve(a).value().last_size(), 1'000'000u);
  a.bytes = 7;
  EXPECT_EQ(resolve(a).value().iterations, 1u);
  EXPECT_EQ(resolve(a).value().last_size(), 7u);
}

TEST(PerfOptions, WordsAreParsedAndListedWhenWrong) {
  for (Op op : {Op::kWrite, Op::kRead, Op::kSend, Op::kFetchAdd, Op::kCompareSwap}) {
    EXPECT_EQ(parse_op(to_string(op)).value(), op);
  }
  const auto wrong = parse_op("writ");
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("compare-swap"), std::string::npos);
  EXPECT_FALSE(parse_mode("speed").ok());
  EXPECT_FALSE(parse_wait("sleep").ok());
}

TEST(PerfOptions, TravelAsJson) {
  Arguments a = arguments(Op::kSend, Mode::kBandwidth);
  a.qps = 3;
  a.size = 100;
  a.bidirectional = true;
  const Options sent = resolve(a).value();
  const Options got = from_json(parse_json_object(to_json(sent).dump()).value()).value();
  EXPECT_EQ(to_json(got), to_json(sent));
  EXPECT_EQ(got.qps, 3u);
}

TEST(PerfOptions, WhatAPeerSendsIsCheckedAgain) {
  const Json good = to_json(resolve(arguments(Op::kWrite, Mode::kBandwidth)).value());
  ASSERT_TRUE(from_json(parse_json_object(good.dump()).value()).ok());
  const std::pair<const char*, Json> lies[] = {{"op", "erase"},
                                               {"transport", "pigeon"},
                                               {"op", 7},
                                               {"size", UINT64_MAX},
                                               {"size", -1},
                                               {"depth", 0},
                                               {"depth", UINT64_MAX},
                                               {"qps", 1u << 30},
                                               {"region_bytes", 1},
                                               {"mtu", 1000},
                                               {"signal_every", 0},
                                               {"spin_ns", 1u << 31},
                                               {"bidirectional", "yes"},
                                               {"target_idle", true},
                                               {"region_bytes", UINT64_MAX}};
  for (const auto& [field, value] : lies) {
    Json bad = good;
    bad[field] = value;
    EXPECT_FALSE(from_json(parse_json_object(bad.dump()).value()).ok()) << field << " " << value;
  }
  for (const auto& field : good.items()) {
    Json bad = good;
    bad.erase(field.key());
    EXPECT_FALSE(from_json(bad).ok()) << "without " << field.key();
  }
}

}  // namespace
}  // namespace farverbs::tools::perf
