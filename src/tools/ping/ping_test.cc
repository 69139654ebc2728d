#include "tools/ping/ping.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tools/command_line.h"
#include "tools/ping/pinger.h"
#include "tools/ping/responder.h"

namespace farverbs::tools::ping {
namespace {

// Answers one session on the loopback address.
class Responder {
 public:
  Responder() : listener_(listen()) {
    thread_ = std::thread([this] {
      auto connection = listener_.accept(Duration::seconds(10));
      if (!connection.ok()) return;
      auto text = connection->receive(Duration::seconds(10));
      if (!text.ok()) return;
      auto hello = parse_json_object(*text);
      if (!hello.ok()) return;
      auto device = verbs::Device::open({.address = connection->local_address()});
      if (!device.ok()) return;
      ok_ = respond(*device, *connection, *hello, [this] { return stopping_.load(); }).ok();
    });
  }
  ~Responder() { join(); }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  void stop() { stopping_ = true; }
  PingOptions options() const {
    PingOptions o;
    o.host = "127.0.0.1";
    o.port = listener_.port();
    o.interval = Duration::milliseconds(5);
    return o;
  }
  bool ok() const { return ok_; }

 private:
  static verbs::RendezvousListener listen() {
    auto listener = verbs::RendezvousListener::listen(IpAddress::v4(0x7F000001), 0);
    FV_CHECK(listener.ok());
    return std::move(listener).value();
  }
  verbs::RendezvousListener listener_;
  std::atomic<bool> ok_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

TEST(Ping, FindsRoundTripLossAndPathMtu) {
  Responder responder;
  PingOptions options = responder.options();
  options.count = 100;  // more than there are slots
  uint64_t replies = 0;
  const auto report = run_ping(options, [&](uint64_t, Duration) { ++replies; });
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->sent, 100u);
  EXPECT_EQ(report->received, 100u);
  EXPECT_EQ(replies, 100u);
  EXPECT_EQ(report->path_mtu, 4096u);  // loopback carries any
  EXPECT_EQ(report->loss_percent(), 0);
  EXPECT_EQ(report->transport, verbs::Transport::kFar);
  EXPECT_GT(report->round_trip.quantile(0.5).ns(), 0);
}

TEST(Ping, LargeMessagesPassInSeveralPackets) {
  Responder responder;
  PingOptions options = responder.options();
  options.size = 65'536;
  const auto report = run_ping(options);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->received, 5u);
}

TEST(Ping, ServerThatEndsIsTold) {
  Responder responder;
  PingOptions options = responder.options();
  options.count = 1000;
  options.interval = Duration::milliseconds(10);
  const auto report = run_ping(options, [&](uint64_t sequence, Duration) {
    if (sequence == 3) responder.stop();
  });
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.error().message.find("the server ends"), std::string::npos)
      << report.error().message;
  responder.join();
  EXPECT_FALSE(responder.ok());
}

TEST(Ping, HellosOfOthersAreNone) {
  EXPECT_TRUE(ping_hello(R"({"farverbs":"ping"})").has_value());
  for (const char* text : {"", "[]", "{}", R"({"farverbs":7})", R"({"farverbs":"perf"})"}) {
    EXPECT_FALSE(ping_hello(text).has_value()) << text;
  }
}

TEST(Ping, JsonHasTheSchemaThatProgramsRead) {
  PingReport report;
  report.sent = 4;
  report.received = 3;
  report.path_mtu = 1024;
  const Json json = to_json(report, {});
  EXPECT_DOUBLE_EQ(json["loss_percent"], 25);
  EXPECT_EQ(json["path_mtu"], 1024);
  EXPECT_EQ(json["transport"], "standard");
  for (const char* field : {"min", "mean", "p50", "p99", "max"}) {
    EXPECT_TRUE(json["round_trip_us"].contains(field)) << field;
  }
}

TEST(Ping, OptionsOutOfRangeAreNamed) {
  const auto message = [](auto change) {
    PingOptions options;
    options.host = "127.0.0.1";
    options.port = 1;
    change(options);
    const auto report = run_ping(options);
    return report.ok() ? std::string() : report.error().message;
  };
  EXPECT_NE(message([](PingOptions& o) { o.size = 7; }).find("--size"), std::string::npos);
  EXPECT_NE(message([](PingOptions& o) { o.size = 65'537; }).find("--size"), std::string::npos);
  EXPECT_NE(message([](PingOptions& o) { o.count = 0; }).find("--count"), std::string::npos);
  EXPECT_NE(message([](PingOptions&) {}).find("is the server running"), std::string::npos);
}

TEST(Ping, StrangersAreToldWhatIsWrong) {
  for (const char* hello :
       {R"({"farverbs":"ping","version":9})", R"({"farverbs":"ping","version":1})",
        R"({"farverbs":"ping","version":1,"endpoint":{"udp_port":4791,"qps":[]}})",
        R"({"farverbs":"ping","version":1,"endpoint":{"udp_port":4791,"qps":[[-1,"x"]]}})"}) {
    Responder responder;
    auto stranger =
        verbs::Rendezvous::connect("127.0.0.1", responder.options().port, Duration::seconds(5));
    ASSERT_TRUE(stranger.ok());
    ASSERT_TRUE(stranger->send(hello).ok());
    const auto answer = stranger->receive(Duration::seconds(5));
    ASSERT_TRUE(answer.ok());
    EXPECT_NE(answer->find("error"), std::string::npos) << *answer;
  }
}

TEST(PingCommandLine, NobodyThereFails) {
  const char* arguments[] = {"farverbs", "ping", "127.0.0.1", "--port", "1"};
  testing::internal::CaptureStderr();
  const int code = run_command_line(5, arguments, {{"ping", register_ping}});
  EXPECT_NE(testing::internal::GetCapturedStderr().find("cannot connect"), std::string::npos);
  EXPECT_EQ(code, kExitFailed);
}

}  // namespace
}  // namespace farverbs::tools::ping
