// The API from end to end over loopback sockets: every operation, and what happens when it is
// wrong.
#include "farverbs/verbs/verbs.h"

#include <poll.h>

#include <thread>

#include "farverbs/io/os_clock.h"
#include "farverbs/verbs/test_pair.h"

namespace farverbs::verbs {
namespace {

class Operations : public testing::TestWithParam<const char*> {
 protected:
  EndOptions options() const {
    EndOptions o;
    o.address = GetParam();
    return o;
  }
};

TEST_P(Operations, WritesLand) {
  Pair pair(options());
  fill(pair.a.memory, 1);
  for (const uint32_t length : {0u, 1u, 63u, 1024u, 4097u, 100'001u, 1u << 20}) {
    std::fill(pair.b.memory.begin(), pair.b.memory.end(), std::byte{0});
    must(pair.a.post(SendOpcode::kWrite, length, 0, length, &pair.b.region, 0));
    const WorkCompletion wc = pair.a.completion();
    EXPECT_EQ(wc.status, CompletionStatus::kSuccess);
    EXPECT_EQ(wc.opcode, CompletionOpcode::kWrite);
    EXPECT_EQ(wc.wr_id, length);
    EXPECT_EQ(std::memcmp(pair.a.memory.data(), pair.b.memory.data(), length), 0);
    if (length < pair.b.memory.size()) {
      EXPECT_EQ(pair.b.memory[length], std::byte{0});
    }
  }
}

TEST_P(Operations, ReadsFetch) {
  Pair pair(options());
  fill(pair.b.memory, 2);
  for (const uint32_t length : {0u, 5u, 1025u, 1u << 20}) {
    std::fill(pair.a.memory.begin(), pair.a.memory.end(), std::byte{0});
    must(pair.a.post(SendOpcode::kRead, 7, 0, length, &pair.b.region, 0));
    EXPECT_EQ(pair.a.completion().status, CompletionStatus::kSuccess);
    EXPECT_EQ(std::memcmp(pair.a.memory.data(), pair.b.memory.data(), length), 0);
  }
}

TEST_P(Operations, SendsMeetTheirReceivesInOrder) {
  Pair pair(options());
  fill(pair.a.memory, 3);
  for (uint64_t i = 0; i < 10; ++i) must(pair.b.post_receive(100 + i, i * 5'000, 5'000));
  for (uint64_t i = 0; i < 10; ++i) {
    must(pair.a.post(SendOpcode::kSend, i, i * 5'000, static_cast<uint32_t>(i * 500), nullptr, 0));
  }
  for (uint64_t i = 0; i < 10; ++i) {
    const WorkCompletion wc = pair.b.completion();
    EXPECT_EQ(wc.status, CompletionStatus::kSuccess);
    EXPECT_EQ(wc.opcode, CompletionOpcode::kReceive);
    EXPECT_EQ(wc.wr_id, 100 + i);
    EXPECT_EQ(wc.byte_length, i * 500);
    EXPECT_EQ(std::memcmp(&pair.a.memory[i * 5'000], &pair.b.memory[i * 5'000], i * 500), 0);
  }
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(pair.a.completion().wr_id, i);
}

TEST_P(Operations, AtomicsCountOnce) {
  Pair pair(options());
  uint64_t start = 41;
  std::memcpy(pair.b.memory.data(), &start, 8);
  const ScatterGatherElement sge = pair.a.region.sge(64, 8);
  SendWorkRequest wr;
  wr.opcode = SendOpcode::kFetchAdd;
  wr.flags = model::kSignaled;
  wr.sges = {&sge, 1};
  wr.remote_address = pair.b.region.address();
  wr.remote_key = pair.b.region.rkey();
  wr.compare_add = 1;
  must(pair.a.qp.post_send(wr));
  EXPECT_EQ(pair.a.completion().opcode, CompletionOpcode::kFetchAdd);
  wr.opcode = SendOpcode::kCompareSwap;
  wr.compare_add = 42;
  wr.swap = 1'000;
  must(pair.a.qp.post_send(wr));
  EXPECT_EQ(pair.a.completion().status, CompletionStatus::kSuccess);
  uint64_t old = 0;
  uint64_t now = 0;
  std::memcpy(&old, &pair.a.memory[64], 8);
  std::memcpy(&now, pair.b.memory.data(), 8);
  EXPECT_EQ(old, 42u);
  EXPECT_EQ(now, 1'000u);
}

INSTANTIATE_TEST_SUITE_P(Addresses, Operations, testing::Values("127.0.0.1", "::1"),
                         [](const auto& param_info) {
                           return param_info.index == 0 ? "IPv4" : "IPv6";
                         });

TEST(Verbs, DatagramsCarryTheirSender) {
  EndOptions options;
  options.type = QpType::kUd;
  End a(options);
  End b(options);
  must(a.qp.activate_datagrams(0x1234));
  must(b.qp.activate_datagrams(0x1234));
  fill(a.memory, 4);
  must(b.post_receive(9, 0, 2'000));
  const ScatterGatherElement sge = a.region.sge(0, 300);
  AddressVector av;
  av.destination_gid = b.qp.address().gid;
  SendWorkRequest wr;
  wr.opcode = SendOpcode::kSendWithImmediate;
  wr.flags = model::kSignaled;
  wr.sges = {&sge, 1};
  wr.immediate = 0xCAFE;
  wr.address_vector = &av;
  wr.remote_qpn = b.qp.qpn();
  wr.remote_qkey = 0x1234;
  must(a.qp.post_send(wr));
  EXPECT_EQ(a.completion().status, CompletionStatus::kSuccess);
  const WorkCompletion wc = b.completion();
  EXPECT_EQ(wc.byte_length, 340u);
  EXPECT_EQ(wc.source_qpn, a.qp.qpn());
  EXPECT_EQ(wc.immediate, 0xCAFEu);
  EXPECT_EQ(std::memcmp(&b.memory[40], a.memory.data(), 300), 0);
}

TEST(Verbs, UnreliableConnectionsDeliverOnAGoodPath) {
  EndOptions options;
  options.type = QpType::kUc;
  Pair pair(options);
  fill(pair.a.memory, 5);
  must(pair.b.post_receive(1, 0, 10'000));
  must(pair.a.post(SendOpcode::kSend, 2, 0, 9'000, nullptr, 0));
  EXPECT_EQ(pair.a.completion().status, CompletionStatus::kSuccess);
  EXPECT_EQ(pair.b.completion().byte_length, 9'000u);
  EXPECT_EQ(std::memcmp(pair.a.memory.data(), pair.b.memory.data(), 9'000), 0);
}

// --- Progress ---

TEST(Progress, OneSidedOperationsNeedNobodyAtTheTarget) {
  Pair pair;
  fill(pair.a.memory, 6);
  // b's application does nothing at all meanwhile.
  for (int i = 0; i < 20; ++i) {
    must(pair.a.post(SendOpcode::kWrite, 1, 0, 50'000, &pair.b.region, 0));
    EXPECT_EQ(pair.a.completion().status, CompletionStatus::kSuccess);
  }
  EXPECT_EQ(std::memcmp(pair.a.memory.data(), pair.b.memory.data(), 50'000), 0);
  EXPECT_GT(pair.b.device.counters().background_steps, 0u);
  EXPECT_EQ(pair.b.device.counters().inline_steps, 0u);
}

TEST(Verbs, AnAddressOfAnotherVersionIsRefused) {
  End a{EndOptions{}}, b{EndOptions{}};
  QpAddress peer = b.qp.address();
  peer.gid = IpAddress::parse("2001:db8::7")->to_gid();
  const Result<void> connected = a.qp.connect(peer);
  ASSERT_FALSE(connected.ok());
  EXPECT_NE(connected.error().message.find("another IP version"), std::string::npos)
      << connected.error().message;
}

// As a client does that has its answer: it polls, sees it, and hangs up at once.
TEST(Progress, WhoHangsUpHasAcknowledgedFirst) {
  EndOptions options;
  options.background = false;
  for (int round = 0; round < 20; ++round) {
    Pair pair(options);
    End& a = pair.a;
    End& b = pair.b;
    const ScatterGatherElement sge = b.region.sge(0, 100);
    ReceiveWorkRequest receive;
    receive.sges = {&sge, 1};
    must(b.qp.post_receive(receive));
    must(a.post(SendOpcode::kSend, 1, 0, 64, nullptr, 0));
    const Time give_up = io::os_now() + kTestPatience;
    WorkCompletion wc;
    while (b.cq.poll({&wc, 1}) == 0 && io::os_now() < give_up) a.device.progress();
    QpAttributes error;
    error.state = QpState::kErr;
    must(b.qp.modify(error, model::kAttrState));
    EXPECT_EQ(a.completion().status, CompletionStatus::kSuccess);
  }
}

TEST(Progress, OnlyTheApplicationsCallsWithoutABackgroundThread) {
  EndOptions options;
  options.background = false;
  Pair pair(options);
  must(pair.a.post(SendOpcode::kWrite, 1, 0, 4'096, &pair.b.region, 0));
  WorkCompletion wc;
  EXPECT_EQ(pair.a.cq.wait({&wc, 1}, Duration::milliseconds(20)), 0u);  // nobody answers
  for (int i = 0; i < 2'000 && pair.a.cq.poll({&wc, 1}) == 0; ++i) {
    pair.b.device.progress();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  EXPECT_EQ(wc.status, CompletionStatus::kSuccess);
  EXPECT_EQ(wc.wr_id, 1u);
}

TEST(Progress, ArmedQueuesReportOnTheChannelsDescriptor) {
  Pair pair;
  pair.b.cq.request_notification();
  pollfd fd{pair.b.channel.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&fd, 1, 0), 0);
  must(pair.b.post_receive(1, 0, 100));
  must(pair.a.post(SendOpcode::kSend, 2, 0, 100, nullptr, 0));
  EXPECT_EQ(::poll(&fd, 1, 10'000), 1);
  EXPECT_TRUE(pair.b.channel.get_event(Duration()).has_value());
  WorkCompletion wc;
  EXPECT_EQ(pair.b.cq.poll({&wc, 1}), 1u);
  EXPECT_FALSE(pair.b.channel.get_event(Duration()).has_value());
}

TEST(Progress, ThreadsThatWaitOnSeveralQueuesAllGetTheirs) {
  constexpr int kThreads = 4;
  EndOptions options;
  End server(options);
  struct Client {
    CompletionQueue cq;
    QueuePair qp;
    QueuePair peer;
  };
  End device(options);
  std::vector<Client> clients;
  for (int i = 0; i < kThreads; ++i) {
    CompletionQueue cq = must(device.device.create_cq(64));
    QueuePairInit init;
    init.send_cq = init.receive_cq = &cq;
    init.capabilities = {16, 16, 1, 1, 0};
    QueuePair qp = must(device.pd.create_qp(init));
    QueuePair peer = server.new_qp(options);
    must(qp.connect(peer.address()));
    must(peer.connect(qp.address()));
    clients.push_back({std::move(cq), std::move(qp), std::move(peer)});
  }
  std::vector<std::thread> threads;
  std::atomic<int> completed{0};
  for (Client& client : clients) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        const ScatterGatherElement sge = device.region.sge(0, 2'000);
        SendWorkRequest wr;
        wr.opcode = SendOpcode::kWrite;
        wr.flags = model::kSignaled;
        wr.sges = {&sge, 1};
        wr.remote_address = server.region.address();
        wr.remote_key = server.region.rkey();
        if (!client.qp.post_send(wr).ok()) return;
        WorkCompletion wc;
        if (client.cq.wait({&wc, 1}, kTestPatience) != 1) return;
        if (wc.status == CompletionStatus::kSuccess) completed.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(completed.load(), kThreads * 100);
}

TEST(Progress, SeveralShardsShareTheWork) {
  EndOptions options;
  DeviceOptions device_options = End::device_options(options);
  device_options.shards = 3;
  Device device = must(Device::open(device_options));
  ProtectionDomain pd = must(device.allocate_pd());
  CompletionQueue cq = must(device.create_cq(64));
  std::vector<std::byte> memory(10'000);
  MemoryRegion region = must(pd.register_memory(memory.data(), memory.size(), kAllAccess));
  End server(options);
  std::vector<QueuePair> ours;
  std::vector<QueuePair> theirs;
  for (int i = 0; i < 6; ++i) {
    QueuePairInit init;
    init.send_cq = init.receive_cq = &cq;
    init.capabilities = {16, 16, 1, 1, 0};
    ours.push_back(must(pd.create_qp(init)));
    theirs.push_back(server.new_qp(options));
    must(ours.back().connect(theirs.back().address()));
    must(theirs.back().connect(ours.back().address()));
    const ScatterGatherElement sge = region.sge(0, 10'000);
    SendWorkRequest wr;
    wr.opcode = SendOpcode::kWrite;
    wr.flags = model::kSignaled;
    wr.sges = {&sge, 1};
    wr.remote_address = server.region.address();
    wr.remote_key = server.region.rkey();
    must(ours.back().post_send(wr));
  }
  for (int i = 0; i < 6; ++i) {
    WorkCompletion wc;
    ASSERT_EQ(cq.wait({&wc, 1}, kTestPatience), 1u);
    EXPECT_EQ(wc.status, CompletionStatus::kSuccess);
  }
}

}  // namespace
}  // namespace farverbs::verbs
