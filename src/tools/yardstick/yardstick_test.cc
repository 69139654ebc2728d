// Each yardstick runs for a moment, so that none can rot.
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "tools/yardstick/yardsticks.h"

namespace farverbs::tools::yardstick {
namespace {

constexpr double kMoment = 0.05;

Result<Json> run(const std::string& name, const Settings& settings,
                 const char* address = "127.0.0.1") {
  const IpAddress local = IpAddress::parse(address).value();
  std::promise<uint16_t> port;
  Result<Json> served = invalid("not served");
  std::thread server([&] { served = serve({local, 0}, [&](uint16_t p) { port.set_value(p); }); });
  Result<Json> result = measure(name, {local, port.get_future().get()}, settings);
  server.join();
  EXPECT_TRUE(served.ok()) << served.error().message;
  if (result.ok() && served.ok()) {
    EXPECT_EQ((*result)["server"], *served);
  }
  return result;
}

Settings moment(const std::string& name) {
  Settings settings = default_settings(name);
  settings.seconds = kMoment;
  return settings;
}

TEST(Yardstick, PingPongs) {
  for (const char* name : {"udp-pingpong", "tcp-pingpong", "port-pingpong"}) {
    for (const bool spin : {false, true}) {
      Settings settings = moment(name);
      settings.spin = spin;
      const auto result = run(name, settings);
      ASSERT_TRUE(result.ok()) << result.error().message;
      const Json& times = (*result)["round_trip_us"];
      EXPECT_GT(times["count"], 0) << name;  // spinning on a busy machine gives few
      EXPECT_GT(times["p50"], 1.0);
      EXPECT_LE(times["p50"], times["p99"]);
      EXPECT_LE(times["p99"], times["p99_9"]);
      EXPECT_EQ((*result)["server"]["count"].get<uint64_t>(),
                times["count"].get<uint64_t>() + (*result)["lost"].get<uint64_t>());
      EXPECT_GT((*result)["cpu_seconds"], 0.0);
    }
  }
}

TEST(Yardstick, Streams) {
  for (const char* name : {"gso-blast", "port-blast", "mmsg-rate"}) {
    for (const char* address : {"127.0.0.1", "::1"}) {
      const auto result = run(name, moment(name), address);
      ASSERT_TRUE(result.ok()) << name << ": " << result.error().message;
      EXPECT_GT((*result)["server"]["messages"], 100);
      EXPECT_GT((*result)["bits_per_second"], 1e6);
      EXPECT_GT((*result)["messages_per_second"], 1000.0);
      EXPECT_GT((*result)["cpu_seconds_per_gigabyte"], 0.0);
      EXPECT_LE((*result)["server"]["messages"], (*result)["messages"]);
    }
  }
}

TEST(Yardstick, StreamWithoutWindowEndsToo) {
  Settings settings = moment("gso-blast");
  settings.window = 0;
  const auto result = run("gso-blast", settings);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_GT((*result)["bits_per_second"], 0.0);
}

TEST(Yardstick, TcpCold) {
  Settings settings = default_settings("tcp-cold");
  settings.region = 3'000'000;
  settings.rounds = 2;
  const auto result = run("tcp-cold", settings);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ((*result)["bytes"], 6'000'000);
  EXPECT_EQ((*result)["server"]["bytes"], 6'000'000);
  EXPECT_EQ((*result)["rounds_bits_per_second"].size(), 2u);
  EXPECT_GT((*result)["bits_per_second"], 1e6);
}

TEST(Yardstick, Memcpy) {
  const Json copies = measure_memcpy({1024, 65'536}, 0.005);
  ASSERT_EQ(copies.size(), 2u);
  for (const Json& copy : copies) EXPECT_GT(copy["bytes_per_second"], 1e8);
}

TEST(Yardstick, UnknownNameAndBadSettingsAreRefused) {
  EXPECT_FALSE(measure("nothing", {IpAddress::v4(0x7F000001), 1}, {}).ok());
  Json settings = Settings().to_json();
  EXPECT_TRUE(Settings::from_json(settings).ok());
  settings["batch"] = 0;
  EXPECT_FALSE(Settings::from_json(settings).ok());
}

TEST(Yardstick, UnknownCongestionControlIsAnError) {
  Settings settings = moment("tcp-pingpong");
  settings.congestion = "no-such-thing";
  const IpAddress local = IpAddress::v4(0x7F000001);
  std::promise<uint16_t> port;
  Result<Json> served = invalid("not served");
  std::thread server([&] { served = serve({local, 0}, [&](uint16_t p) { port.set_value(p); }); });
  const auto result = measure("tcp-pingpong", {local, port.get_future().get()}, settings);
  server.join();
  EXPECT_FALSE(result.ok());
  ASSERT_FALSE(served.ok());
  EXPECT_NE(served.error().message.find("no-such-thing"), std::string::npos);
}

}  // namespace
}  // namespace farverbs::tools::yardstick
