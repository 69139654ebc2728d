// Every kind of measurement, tiny, between a server and a client in this process.
#include <gtest/gtest.h>

#include <thread>

#include "tools/perf/client.h"
#include "tools/perf/server.h"

namespace farverbs::tools::perf {
namespace {

IpAddress loopback() { return IpAddress::v4(0x7F000001); }

class RunningServer {
 public:
  explicit RunningServer(const IpAddress& address = loopback(), ServerOptions options = {}) {
    options.bind = address;
    options.port = 0;
    options.limits.max_memory = 64 << 20;
    auto server = Server::listen(options, [](const std::string&) {});
    if (!server.ok()) return;
    server_ = std::move(server).value();
    thread_ = std::thread([this] { (void)server_->run(); });
  }
  ~RunningServer() {
    if (server_ == nullptr) return;
    server_->stop();
    thread_.join();
  }
  bool ok() const { return server_ != nullptr; }
  ClientPlace place() const {
    ClientPlace place;
    place.host = server_->endpoint().address.to_string();
    place.port = server_->endpoint().port;
    return place;
  }

 private:
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

Arguments tiny(Op op, Mode mode) {
  Arguments a;
  a.op = op;
  a.mode = mode;
  a.iterations = 50;
  a.warmup_seconds = 0;
  return a;
}

void expect_success(const Arguments& arguments, const ClientPlace& place) {
  const Result<Options> options = resolve(arguments);
  ASSERT_TRUE(options.ok()) << options.error().message;
  const Result<Report> report = run_client(place, *options);
  ASSERT_TRUE(report.ok()) << title(*options) << ": " << report.error().message;
  EXPECT_EQ(report->client.messages, 50u) << title(*options);
  if (options->size > 0) {
    EXPECT_GT(report->bits_per_second(), 0) << title(*options);
  }
  EXPECT_EQ(report->latency.count(), options->mode == Mode::kLatency ? 50u : 0u);
}

TEST(PerfLoopback, EveryOperationInBothModes) {
  const RunningServer server;
  ASSERT_TRUE(server.ok());
  for (Op op : {Op::kWrite, Op::kRead, Op::kSend, Op::kFetchAdd, Op::kCompareSwap}) {
    for (Mode mode : {Mode::kBandwidth, Mode::kLatency}) {
      expect_success(tiny(op, mode), server.place());
    }
  }
}

TEST(PerfLoopback, EveryOperationWaitingByBlocking) {
  const RunningServer server;
  ASSERT_TRUE(server.ok());
  for (Op op : {Op::kWrite, Op::kRead, Op::kSend, Op::kFetchAdd, Op::kCompareSwap}) {
    Arguments a = tiny(op, Mode::kLatency);
    a.wait = Wait::kBlock;
    a.target_idle = op != Op::kSend;
    a.spin_us = 0;
    expect_success(a, server.place());
    Arguments b = tiny(op, Mode::kBandwidth);
    b.wait = Wait::kPoll;
    expect_success(b, server.place());
  }
}

TEST(PerfLoopback, ManyQueuePairsListsAndSizes) {
  const RunningServer server;
  ASSERT_TRUE(server.ok());
  for (Op op : {Op::kWrite, Op::kRead, Op::kSend}) {
    for (uint64_t size : {0, 1, 1000, 100'000}) {
      Arguments a = tiny(op, Mode::kBandwidth);
      a.size = size;
      a.qps = 7;
      a.depth = 6;
      a.signal_every = 4;  // does not divide the depth
      a.region = 1 << 20;
      expect_success(a, server.place());
    }
  }
}

TEST(PerfLoopback, BothDirectionsAtOnce) {
  const RunningServer server;
  ASSERT_TRUE(server.ok());
  for (Op op : {Op::kWrite, Op::kRead, Op::kSend}) {
    Arguments a = tiny(op, Mode::kBandwidth);
    a.iterations.reset();
    a.seconds = 0.2;
    a.size = 10'000;
    a.bidirectional = true;
    const Result<Report> report = run_client(server.place(), resolve(a).value());
    ASSERT_TRUE(report.ok()) << to_string(op) << ": " << report.error().message;
    EXPECT_GT(report->client.messages, 0u);
    EXPECT_GT(report->server.messages, 0u);
  }
}

TEST(PerfLoopback, InlineMtuAndIntervals) {
  const RunningServer server;
  ASSERT_TRUE(server.ok());
  Arguments a = tiny(Op::kWrite, Mode::kBandwidth);
  a.size = 200;
  a.inlined = true;
  a.mtu = 256;
  a.iterations.reset();
  a.seconds = 0.3;
  int intervals = 0;
  const Result<Report> report =
      run_client(server.place(), resolve(a).value(), Duration::milliseconds(100),
                 [&](const Interval&) { ++intervals; });
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->path_mtu, 256u);
  EXPECT_GE(intervals, 2);
  EXPECT_EQ(report->intervals.size(), static_cast<size_t>(intervals));
}

// The measurement begins while the queues are full from warming up.
TEST(PerfLoopback, WarmingUpRunsIntoTheMeasurement) {
  const RunningServer server;
  ASSERT_TRUE(server.ok());
  for (uint32_t depth : {1, 5, 128}) {
    Arguments a = tiny(Op::kWrite, Mode::kBandwidth);
    a.size = 64;
    a.depth = depth;
    a.iterations.reset();
    a.seconds = 0.05;
    a.warmup_seconds = 0.05;
    const Result<Report> report = run_client(server.place(), resolve(a).value());
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_GT(report->client.messages, 0u);
  }
}

TEST(PerfLoopback, MovesSoManyBytesAndDrawsItsTimeLine) {
  const RunningServer server;
  ASSERT_TRUE(server.ok());
  Arguments a = tiny(Op::kWrite, Mode::kBandwidth);
  a.iterations.reset();
  a.warmup_seconds.reset();
  a.bytes = 2'500'001;
  a.size = 1'000'000;
  a.timeline_seconds = 0.001;
  const Result<Report> report = run_client(server.place(), resolve(a).value());
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->client.messages, 3u);
  // Probes of the path MTU may be among them.
  EXPECT_GE(report->client.counters["sent_payload_bytes"].get<uint64_t>(), 2'500'001u);
  uint64_t drawn = 0;
  for (const uint64_t bytes : report->timeline.bytes()) drawn += bytes;
  EXPECT_EQ(drawn, 2'500'001u);
  const Json json = to_json(*report);
  EXPECT_EQ(json["transfer"]["bytes"].get<uint64_t>(), 2'500'001u);
  EXPECT_GE(json["transfer"]["seconds"].get<double>(),
            json["transfer"]["seconds_after_setup"].get<double>());
  EXPECT_GT(json["full_packet"]["payload_bytes"].get<uint32_t>(), 1000u);
  EXPECT_GT(json["full_packet"]["ip_bytes"].get<uint32_t>(),
            json["full_packet"]["payload_bytes"].get<uint32_t>());
}

TEST(PerfLoopback, TheTransportIsChosenAndTold) {
  const RunningServer server;
  ASSERT_TRUE(server.ok());
  for (const auto& [asked, got] :
       {std::pair("auto", "far"), std::pair("far", "far"), std::pair("standard", "standard")}) {
    Arguments a = tiny(Op::kWrite, Mode::kBandwidth);
    a.transport = parse_transport(asked).value();
    a.traffic = verbs::TrafficClass::kRealtime;
    const Result<Report> report = run_client(server.place(), resolve(a).value());
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_EQ(to_json(*report)["transport"], got) << asked;
    EXPECT_EQ(to_json(*report)["class"], "realtime");
  }
}

TEST(PerfLoopback, AServerInsistsOnItsTransport) {
  ServerOptions options;
  options.transport = verbs::Transport::kStandard;
  const RunningServer server(loopback(), options);
  ASSERT_TRUE(server.ok());
  Arguments a = tiny(Op::kWrite, Mode::kBandwidth);
  const Result<Report> either = run_client(server.place(), resolve(a).value());
  ASSERT_TRUE(either.ok()) << either.error().message;
  EXPECT_EQ(either->transport, verbs::Transport::kStandard);
  a.transport = verbs::Transport::kFar;
  const Result<Report> far = run_client(server.place(), resolve(a).value());
  ASSERT_FALSE(far.ok());
  EXPECT_NE(far.error().message.find("far transport"), std::string::npos) << far.error().message;
}

// Neither side's requests wait for ever behind the responses that the other asks for, and responses
// that have arrived are forgotten.
TEST(PerfLoopback, BothReadAndManyAtomicsOverTheFarTransport) {
  const RunningServer server;
  ASSERT_TRUE(server.ok());
  Arguments a = tiny(Op::kRead, Mode::kBandwidth);
  a.transport = verbs::Transport::kFar;
  a.iterations.reset();
  a.seconds = 0.2;
  a.size = 10'000;
  a.bidirectional = true;
  const Result<Report> both = run_client(server.place(), resolve(a).value());
  ASSERT_TRUE(both.ok()) << both.error().message;
  EXPECT_GT(both->server.messages, both->client.messages / 20);
  EXPECT_GT(both->client.messages, both->server.messages / 20);
  a = tiny(Op::kFetchAdd, Mode::kLatency);
  a.transport = verbs::Transport::kFar;
  a.iterations = 200;
  const Result<Report> atomics = run_client(server.place(), resolve(a).value());
  ASSERT_TRUE(atomics.ok()) << atomics.error().message;
}

TEST(PerfLoopback, MessagesLeaveByTheClockAndAreTimed) {
  const RunningServer server;
  ASSERT_TRUE(server.ok());
  Arguments a = tiny(Op::kWrite, Mode::kBandwidth);
  a.iterations = 20;
  a.size = 10'000;
  a.message_rate = 200;
  const Result<Report> report = run_client(server.place(), resolve(a).value());
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->samples.size(), 20u);
  EXPECT_EQ(report->latency.count(), 20u);
  EXPECT_GE(report->client.elapsed, Duration::milliseconds(95));
  for (const Duration sample : report->samples) EXPECT_GT(sample, Duration());
  EXPECT_EQ(to_json(*report)["samples_us"].size(), 20u);
}

TEST(PerfTimeline, CountsWhatIsNewInItsStep) {
  Timeline line(Duration::milliseconds(10));
  line.begin(Time::from_ns(1'000'000'000));
  line.note(Time::from_ns(1'005'000'000), 0);
  line.note(Time::from_ns(1'012'000'000), 700);
  line.note(Time::from_ns(1'019'999'999), 1000);
  line.note(Time::from_ns(1'030'000'000), 1500);
  EXPECT_EQ(line.bytes(), (std::vector<uint64_t>{0, 1000, 0, 500}));
}

TEST(PerfLoopback, Ipv6) {
  std::array<std::byte, 16> one{};
  one[15] = std::byte{1};
  const RunningServer server(IpAddress::v6(one));
  if (!server.ok()) GTEST_SKIP() << "no IPv6 here";
  expect_success(tiny(Op::kWrite, Mode::kBandwidth), server.place());
}

TEST(PerfLoopback, SeveralClientsAtOnce) {
  const RunningServer server;
  ASSERT_TRUE(server.ok());
  std::vector<std::thread> clients;
  for (Op op : {Op::kWrite, Op::kSend, Op::kRead}) {
    clients.emplace_back([&, op] { expect_success(tiny(op, Mode::kBandwidth), server.place()); });
  }
  for (std::thread& client : clients) client.join();
}

TEST(PerfLoopback, TheServerRefusesMoreMemoryThanItGives) {
  const RunningServer server;
  ASSERT_TRUE(server.ok());
  Arguments a = tiny(Op::kWrite, Mode::kBandwidth);
  a.region = 40 << 20;
  const Result<Report> report = run_client(server.place(), resolve(a).value());
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.error().message.find("--max-memory"), std::string::npos)
      << report.error().message;
}

// What is no client of ours costs the server nothing, and others are served on.
TEST(PerfLoopback, StrangersAreTurnedAway) {
  const RunningServer server;
  ASSERT_TRUE(server.ok());
  const ClientPlace place = server.place();
  const std::string endpoint =
      R"("endpoint":{"address":"192.0.2.1","udp_port":4791,"path_mtu":1024,"far_version":0,)"
      R"("target":0,"rkey":1,"qps":[[1,1]]})";
  const std::string options = to_json(resolve(tiny(Op::kWrite, Mode::kBandwidth)).value()).dump();
  for (const std::string& message :
       {std::string("hello"), std::string("{}"), std::string(R"({"farverbs":"dance"})"),
        std::string(R"({"farverbs":"perf","version":1})"),
        std::string(R"({"farverbs":"perf","version":2,"options":{}})"),
        R"({"farverbs":"perf","version":2,"options":)" + options + "," + endpoint + "}"}) {
    auto stranger = verbs::Rendezvous::connect(place.host, place.port, Duration::seconds(5));
    ASSERT_TRUE(stranger.ok());
    ASSERT_TRUE(stranger->send(message).ok());
    const auto answer = stranger->receive(Duration::seconds(5));
    if (answer.ok()) {
      EXPECT_NE(answer->find("error"), std::string::npos) << message << *answer;
    } else {
      EXPECT_EQ(answer.error().code, EPIPE) << message;
    }
  }
  expect_success(tiny(Op::kWrite, Mode::kBandwidth), place);
}

}  // namespace
}  // namespace farverbs::tools::perf
