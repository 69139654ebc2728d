#include "farverbs/model/work_queues.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "farverbs/model/qp.h"

namespace farverbs::model {
namespace {

QpCapabilities capabilities(uint32_t requests = 4) {
  QpCapabilities c;
  c.max_send_wr = requests;
  c.max_send_sge = 3;
  c.max_inline_data = 20;
  return c;
}

ScatterGatherElement element(const void* memory, uint32_t length, uint32_t key = 1) {
  return {reinterpret_cast<uintptr_t>(memory), length, MemoryKey(key)};
}

struct SendQueueTest : testing::Test {
  // "" if it was taken.
  std::string post(const SendWorkRequest& request, QpType type = QpType::kRc) {
    const auto result = queue.post(type, request);
    if (result.ok()) return "";
    code = result.error().code;
    return result.error().message;
  }
  SendWorkRequest request(SendOpcode opcode, std::span<const ScatterGatherElement> sges) {
    SendWorkRequest r;
    r.opcode = opcode;
    r.sges = sges;
    return r;
  }
  SendQueue queue{capabilities()};
  int code = 0;
  std::byte memory[64] = {};
  ScatterGatherElement two[2] = {element(memory, 10), element(memory + 20, 30, 2)};
};

TEST_F(SendQueueTest, CopiesWhatWasPosted) {
  EXPECT_EQ(queue.memory_bytes(), 0u) << "nothing is allocated before the first post";
  SendWorkRequest r = request(SendOpcode::kWriteWithImmediate, two);
  r.wr_id = 11;
  r.flags = kSignaled | kFence | kSolicited;
  r.immediate = 5;
  r.remote_address = 1000;
  r.remote_key = MemoryKey(9);
  ASSERT_EQ(post(r), "");
  two[0].length = 99;  // the array is the caller's again
  ASSERT_EQ(queue.tail(), 1u);
  const SendWqe& wqe = queue.at(0);
  EXPECT_EQ(wqe.wr_id, 11u);
  EXPECT_EQ(wqe.opcode, SendOpcode::kWriteWithImmediate);
  EXPECT_EQ(wqe.flags, kSignaled | kFence | kSolicited);
  EXPECT_EQ(wqe.immediate, 5u);
  EXPECT_EQ(wqe.remote_address, 1000u);
  EXPECT_EQ(wqe.remote_key, MemoryKey(9));
  EXPECT_EQ(wqe.length, 40u);
  EXPECT_FALSE(wqe.inlined);
  EXPECT_FALSE(wqe.started);
  ASSERT_EQ(wqe.sges().size(), 2u);
  EXPECT_EQ(wqe.sges()[0].length, 10u);
  EXPECT_EQ(wqe.sges()[1].lkey, MemoryKey(2));
  EXPECT_GT(queue.memory_bytes(), 0u);
}

TEST_F(SendQueueTest, CapacityCountsUntilPopFrontAndIndicesOnlyGrow) {
  for (uint64_t round = 0; round < 20; ++round) {
    SendWorkRequest r = request(SendOpcode::kSend, two);
    while (queue.tail() - queue.head() < 4) {
      r.wr_id = queue.tail();
      ASSERT_EQ(post(r), "");
    }
    ASSERT_EQ(post(r),
              "send queue is full (max_send_wr is 4); poll completions before posting more");
    ASSERT_EQ(code, ENOMEM);
    for (uint64_t i = queue.head(); i < queue.tail(); ++i) ASSERT_EQ(queue.at(i).wr_id, i);
    queue.pop_front();
    if (round % 2 == 0) queue.pop_front();
  }
  const uint64_t tail = queue.tail();
  queue.clear();
  EXPECT_EQ(queue.head(), tail);
  EXPECT_EQ(queue.tail(), tail);
}

TEST_F(SendQueueTest, ACapacityThatIsNoPowerOfTwoIsKeptExactly) {
  SendQueue five{capabilities(5)};
  for (int i = 0; i < 5; ++i)
    ASSERT_TRUE(five.post(QpType::kRc, request(SendOpcode::kSend, {})).ok());
  EXPECT_EQ(five.post(QpType::kRc, request(SendOpcode::kSend, {})).error().code, ENOMEM);
  SendQueue none{capabilities(0)};
  EXPECT_EQ(none.post(QpType::kRc, request(SendOpcode::kSend, {})).error().code, ENOMEM);
}

TEST_F(SendQueueTest, InlineDataIsCopiedAtPost) {
  std::memcpy(memory, "hello ", 6);
  std::memcpy(memory + 32, "world", 5);
  const ScatterGatherElement parts[] = {element(memory, 6), element(nullptr, 0),
                                        element(memory + 32, 5)};
  SendWorkRequest r = request(SendOpcode::kSend, parts);
  r.flags = kInline;
  ASSERT_EQ(post(r), "");
  std::memset(memory, 'x', sizeof memory);
  const SendWqe& wqe = queue.at(0);
  EXPECT_TRUE(wqe.inlined);
  EXPECT_EQ(wqe.length, 11u);
  EXPECT_TRUE(wqe.sges().empty());
  EXPECT_EQ(std::memcmp(wqe.inline_data(), "hello world", 11), 0);
}

TEST_F(SendQueueTest, RefusesWhatDoesNotFitByName) {
  const ScatterGatherElement four[4] = {};
  EXPECT_EQ(post(request(SendOpcode::kSend, four)), "sges has 4 elements, max_send_sge is 3");
  EXPECT_EQ(code, EINVAL);

  ScatterGatherElement one[1] = {element(memory, 21)};
  SendWorkRequest r = request(SendOpcode::kWrite, one);
  r.flags = kInline;
  EXPECT_EQ(post(r), "inline data has 21 bytes, max_inline_data is 20");
  one[0].length = 20;
  EXPECT_EQ(post(r), "");
  r.opcode = SendOpcode::kRead;
  EXPECT_EQ(post(r), "flags has inline, but READ sends no data");
  r.opcode = SendOpcode::kFetchAdd;
  EXPECT_EQ(post(r), "flags has inline, but FETCH_ADD sends no data");

  r = request(SendOpcode::kSend, {});
  r.flags = 1 << 7;
  EXPECT_EQ(post(r), "flags has unknown bits, got 128");
  r.flags = kFence;
  EXPECT_EQ(post(r, QpType::kUc), "flags has fence, which only an RC QP can obey");
  r.flags = 0;
  r.opcode = static_cast<SendOpcode>(200);
  EXPECT_EQ(post(r), "opcode 200 is unknown");
  r.opcode = SendOpcode::kBindWindow;
  EXPECT_EQ(post(r), "window is missing; a bind needs one");
}

TEST_F(SendQueueTest, MessagesHave2To31BytesAtMost) {
  ScatterGatherElement big[2] = {element(memory, 1u << 30), element(memory, 1u << 30)};
  ASSERT_EQ(post(request(SendOpcode::kRead, big)), "");
  EXPECT_EQ(queue.at(0).length, 1u << 31);
  big[1].length += 1;
  EXPECT_EQ(post(request(SendOpcode::kRead, big)),
            "length of the sges is 2147483649 bytes, a message has 2147483648 at most");
  big[0].length = big[1].length = UINT32_MAX;
  EXPECT_EQ(post(request(SendOpcode::kSend, big)),
            "length of the sges is 8589934590 bytes, a message has 2147483648 at most")
      << "the sum does not wrap";
}

TEST_F(SendQueueTest, AtomicsHaveEightBytes) {
  ScatterGatherElement one[1] = {element(memory, 8)};
  SendWorkRequest r = request(SendOpcode::kCompareSwap, one);
  r.compare_add = 3;
  r.swap = 4;
  ASSERT_EQ(post(r), "");
  EXPECT_EQ(queue.at(0).compare_add, 3u);
  EXPECT_EQ(queue.at(0).swap, 4u);
  for (const uint32_t length : {0u, 7u, 9u, 16u}) {
    one[0].length = length;
    EXPECT_EQ(post(r), "length of an atomic's sges must be 8 bytes, got " + std::to_string(length));
  }
}

TEST_F(SendQueueTest, EachTypeHasItsOpcodes) {
  const AddressVector av;
  int window = 0;
  std::string table;
  for (unsigned i = 0; i <= static_cast<unsigned>(SendOpcode::kSendWithInvalidate); ++i) {
    const auto opcode = static_cast<SendOpcode>(i);
    table += std::string(to_string(opcode)) + ":";
    for (const QpType type : {QpType::kRc, QpType::kUc, QpType::kUd}) {
      SendQueue fresh{capabilities()};
      ScatterGatherElement one[1] = {element(memory, 8)};
      SendWorkRequest r = request(opcode, one);
      r.address_vector = &av;
      r.window = reinterpret_cast<MemoryEntry*>(&window);
      if (fresh.post(type, r).ok()) {
        table += type == QpType::kRc ? " RC" : type == QpType::kUc ? " UC" : " UD";
      }
    }
    table += "\n";
  }
  EXPECT_EQ(table,
            "WRITE: RC UC\n"
            "WRITE with immediate: RC UC\n"
            "SEND: RC UC UD\n"
            "SEND with immediate: RC UC UD\n"
            "READ: RC\n"
            "CMP_SWP: RC\n"
            "FETCH_ADD: RC\n"
            "local invalidate: RC UC\n"
            "bind window: RC UC\n"
            "SEND with invalidate: RC\n");
  EXPECT_EQ(post(request(SendOpcode::kRead, two), QpType::kUc),
            "opcode READ does not exist on a UC QP");
}

TEST_F(SendQueueTest, DatagramsCarryTheirDestination) {
  SendWorkRequest r = request(SendOpcode::kSend, two);
  EXPECT_EQ(post(r, QpType::kUd), "address_vector is missing; a UD request needs one");
  {
    AddressVector av;
    av.flow_label = 77;
    r.address_vector = &av;
    r.remote_qpn = Qpn(3);
    r.remote_qkey = 4;
    ASSERT_EQ(post(r, QpType::kUd), "");
  }
  EXPECT_EQ(queue.at(0).address_vector.flow_label, 77u);
  EXPECT_EQ(queue.at(0).remote_qpn, Qpn(3));
  EXPECT_EQ(queue.at(0).remote_qkey, 4u);
}

TEST_F(SendQueueTest, InvalidateAndBindHaveNoPayload) {
  SendWorkRequest r = request(SendOpcode::kLocalInvalidate, two);
  r.invalidate_key = MemoryKey(0xABCD);
  ASSERT_EQ(post(r), "");
  EXPECT_EQ(queue.at(0).immediate, 0xABCDu);
  EXPECT_EQ(queue.at(0).length, 0u);
  EXPECT_TRUE(queue.at(0).sges().empty());

  MemoryEntry window;
  r = request(SendOpcode::kBindWindow, {});
  r.window = &window;
  r.bind_region_lkey = MemoryKey(6);
  r.bind_address = 500;
  r.bind_length = 600;
  r.bind_access = kRemoteRead;
  r.remote_key = MemoryKey(0x42);
  ASSERT_EQ(post(r), "");
  const SendWqe& wqe = queue.at(1);
  EXPECT_EQ(wqe.window, &window);
  EXPECT_EQ(wqe.bind_region_lkey, MemoryKey(6));
  EXPECT_EQ(wqe.remote_address, 500u);
  EXPECT_EQ(wqe.bind_length, 600u);
  EXPECT_EQ(wqe.bind_access, static_cast<uint32_t>(kRemoteRead));
  EXPECT_EQ(wqe.remote_key, MemoryKey(0x42));
}

TEST_F(SendQueueTest, PostingAndTakingOnTwoThreads) {
  SendQueue shared{capabilities(64)};
  constexpr uint64_t kCount = 20000;
  std::thread poster([&] {
    ScatterGatherElement one[1] = {element(memory, 8)};
    SendWorkRequest r = request(SendOpcode::kSend, one);
    for (uint64_t i = 0; i < kCount;) {
      r.wr_id = i;
      if (shared.post(QpType::kRc, r).ok()) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  for (uint64_t i = 0; i < kCount;) {
    if (shared.tail() == i) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(shared.at(i).wr_id, i);
    shared.pop_front();
    ++i;
  }
  poster.join();
}

struct Events final : AsyncEventSink {
  void on_async_event(const AsyncEvent& event) override { seen.push_back(event); }
  std::vector<AsyncEvent> seen;
};

TEST(ReceiveQueue, GivesReceivesInOrderWithTheirElements) {
  ReceiveQueue queue(3, 2, false);
  EXPECT_EQ(queue.memory_bytes(), 0u);
  ReceiveWqe taken;
  EXPECT_FALSE(queue.pop(taken));
  for (uint64_t id = 0; id < 30; ++id) {
    const ScatterGatherElement sges[2] = {{id, 10, MemoryKey(1)}, {id + 1, 5, MemoryKey(2)}};
    ReceiveWorkRequest request{id, std::span(sges).first(id % 3)};
    ASSERT_TRUE(queue.post(request).ok());
    ASSERT_EQ(queue.count(), 1u);
    ASSERT_TRUE(queue.pop(taken));
    EXPECT_EQ(taken.wr_id, id);
    EXPECT_EQ(taken.sge_count, id % 3);
    EXPECT_EQ(taken.length, id % 3 == 0 ? 0u : id % 3 == 1 ? 10u : 15u);
    for (size_t i = 0; i < taken.sge_count; ++i) EXPECT_EQ(taken.sges()[i].address, id + i);
  }
}

TEST(ReceiveQueue, RefusesByName) {
  ReceiveQueue queue(3, 2, false);
  const ScatterGatherElement sges[3] = {};
  EXPECT_EQ(queue.post({0, sges}).error().message, "sges has 3 elements, max_recv_sge is 2");
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(queue.post({0, {}}).ok());
  EXPECT_EQ(queue.post({0, {}}).error().message,
            "receive queue is full (max_recv_wr is 3); poll completions before posting more");
  EXPECT_EQ(queue.post({0, {}}).error().code, ENOMEM);
  queue.clear();
  EXPECT_EQ(queue.count(), 0u);
  EXPECT_TRUE(queue.post({0, {}}).ok());
}

TEST(ReceiveQueue, LengthsBeyond32BitsDoNotWrap) {
  ReceiveQueue queue(1, 2, false);
  const ScatterGatherElement sges[2] = {{0, UINT32_MAX, {}}, {0, 7, {}}};
  ASSERT_TRUE(queue.post({0, sges}).ok());
  ReceiveWqe taken;
  ASSERT_TRUE(queue.pop(taken));
  EXPECT_EQ(taken.length, UINT32_MAX);
}

TEST(ReceiveQueue, TheLimitEventComesOnceWhenFewerAreLeft) {
  Events events;
  int context = 0;
  ReceiveQueue queue(8, 1, true);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(queue.post({0, {}}).ok());
  queue.arm_limit(3, &events, &context);
  EXPECT_EQ(queue.limit(), 3u);
  ReceiveWqe taken;
  queue.pop(taken);
  queue.pop(taken);
  EXPECT_TRUE(events.seen.empty()) << "three are left";
  queue.pop(taken);
  ASSERT_EQ(events.seen.size(), 1u);
  EXPECT_EQ(events.seen[0].type, AsyncEventType::kSrqLimitReached);
  EXPECT_EQ(events.seen[0].element, &context);
  EXPECT_EQ(queue.limit(), 0u) << "it has to be armed again";
  queue.pop(taken);
  EXPECT_EQ(events.seen.size(), 1u);
}

TEST(ReceiveQueue, SeveralLoopsTakeFromASharedQueueEachReceiveOnce) {
  ReceiveQueue queue(64, 1, true);
  constexpr uint64_t kCount = 20000;
  std::vector<std::atomic<uint8_t>> seen(kCount);
  std::atomic<uint64_t> total{0};
  const auto take = [&] {
    ReceiveWqe taken;
    while (total.load() < kCount) {
      if (!queue.pop(taken)) {
        std::this_thread::yield();
        continue;
      }
      seen[taken.wr_id].fetch_add(1);
      total.fetch_add(1);
    }
  };
  std::thread first(take);
  std::thread second(take);
  for (uint64_t i = 0; i < kCount;) {
    if (queue.post({i, {}}).ok()) {
      ++i;
    } else {
      std::this_thread::yield();
    }
  }
  first.join();
  second.join();
  for (const auto& times : seen) ASSERT_EQ(times.load(), 1);
}

TEST(Qp, UsesItsSrqOrItsOwnReceives) {
  SeededEntropy entropy(1);
  MemoryTable memory(entropy);
  Events events;
  ReceiveQueue srq(4, 1, true);
  QpInit init;
  init.capabilities = capabilities();
  Qp plain(init, Qpn(1), memory, &events);
  EXPECT_EQ(&plain.receives(), &plain.receive_queue);
  init.srq = &srq;
  init.context = &srq;
  Qp sharing(init, Qpn(2), memory, &events);
  EXPECT_EQ(&sharing.receives(), &srq);
  sharing.raise(AsyncEventType::kLastWqeReached);
  ASSERT_EQ(events.seen.size(), 1u);
  EXPECT_EQ(events.seen[0].element, &srq);
}

}  // namespace
}  // namespace farverbs::model
