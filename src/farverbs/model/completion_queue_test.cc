#include "farverbs/model/completion_queue.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace farverbs::model {
namespace {

struct Sink final : CompletionNotifier, AsyncEventSink {
  void on_completion_event(CompletionQueue&) override { ++notified; }
  void on_async_event(const AsyncEvent& event) override { events.push_back(event); }
  int notified = 0;
  std::vector<AsyncEvent> events;
};

WorkCompletion completion(uint64_t id, Qpn qpn = Qpn{1},
                          CompletionStatus status = CompletionStatus::kSuccess) {
  WorkCompletion c;
  c.wr_id = id;
  c.qpn = qpn;
  c.status = status;
  return c;
}

struct CompletionQueueTest : testing::Test {
  std::vector<uint64_t> drain(CompletionQueue& queue) {
    std::vector<uint64_t> ids;
    WorkCompletion some[3];
    while (const size_t n = queue.poll(some)) {
      for (size_t i = 0; i < n; ++i) ids.push_back(some[i].wr_id);
    }
    return ids;
  }
  Sink sink;
  int context = 0;
};

TEST_F(CompletionQueueTest, KeepsOrderThroughGrowthAndWrap) {
  CompletionQueue queue(1000, &context, &sink, &sink);
  EXPECT_EQ(queue.capacity(), 1024u);
  EXPECT_TRUE(queue.empty());
  uint64_t next_in = 0;
  uint64_t next_out = 0;
  WorkCompletion some[7];
  for (int round = 0; round < 300; ++round) {
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(queue.push(completion(next_in++), false));
    const size_t n = queue.poll(some);
    ASSERT_EQ(n, 7u);
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(some[i].wr_id, next_out++);
  }
  EXPECT_EQ(queue.size(), 900u);
  for (const uint64_t id : drain(queue)) ASSERT_EQ(id, next_out++);
  EXPECT_EQ(next_out, next_in);
}

TEST_F(CompletionQueueTest, OverflowLosesTheCompletionAndRaisesOneEvent) {
  CompletionQueue queue(4, &context, &sink, &sink);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(queue.push(completion(i), false));
  EXPECT_TRUE(sink.events.empty());
  EXPECT_FALSE(queue.push(completion(4), false));
  EXPECT_TRUE(queue.in_error());
  EXPECT_EQ(drain(queue), (std::vector<uint64_t>{0, 1, 2, 3}));
  EXPECT_FALSE(queue.push(completion(5), false)) << "the error is for good";
  ASSERT_EQ(sink.events.size(), 1u);
  EXPECT_EQ(sink.events[0].type, AsyncEventType::kCqError);
  EXPECT_EQ(sink.events[0].element, &context);
}

TEST_F(CompletionQueueTest, AnArmedQueueNotifiesOnce) {
  CompletionQueue queue(16, nullptr, &sink, nullptr);
  queue.push(completion(0), true);
  EXPECT_EQ(sink.notified, 0) << "not armed";
  queue.request_notification(false);
  EXPECT_EQ(sink.notified, 0) << "what is there already does not count";
  queue.push(completion(1), false);
  queue.push(completion(2), false);
  EXPECT_EQ(sink.notified, 1);
}

TEST_F(CompletionQueueTest, ASolicitedArmWaitsForASolicitedOrFailedCompletion) {
  CompletionQueue queue(16, nullptr, &sink, nullptr);
  queue.request_notification(true);
  queue.push(completion(0), false);
  EXPECT_EQ(sink.notified, 0);
  queue.push(completion(1), true);
  EXPECT_EQ(sink.notified, 1);
  queue.request_notification(true);
  queue.push(completion(2, Qpn{1}, CompletionStatus::kWorkRequestFlushed), false);
  EXPECT_EQ(sink.notified, 2);
  queue.request_notification(false);
  queue.request_notification(true);
  queue.push(completion(3), false);
  EXPECT_EQ(sink.notified, 3) << "a request for any completion is not weakened";
}

TEST_F(CompletionQueueTest, PurgeTakesOneQpsCompletionsAndKeepsTheOrderOfOthers) {
  CompletionQueue queue(8, nullptr, nullptr, nullptr);
  for (int i = 0; i < 6; ++i) queue.push(completion(i), false);  // so that the ring wraps
  drain(queue);
  for (int i = 0; i < 8; ++i) queue.push(completion(i, Qpn(i % 3 == 0 ? 5 : 6)), false);
  queue.purge(Qpn{5});
  EXPECT_EQ(queue.size(), 5u);
  EXPECT_EQ(drain(queue), (std::vector<uint64_t>{1, 2, 4, 5, 7}));
  queue.purge(Qpn{5});
  EXPECT_TRUE(queue.empty());
}

TEST_F(CompletionQueueTest, ResizeKeepsWhatIsQueuedOrRefuses) {
  CompletionQueue queue(256, nullptr, nullptr, nullptr);
  for (int i = 0; i < 200; ++i) queue.push(completion(i), false);
  EXPECT_EQ(queue.resize(100).error().message,
            "cqe is 100 but 200 completions are queued; poll them first");
  WorkCompletion some[190];
  queue.poll(some);
  ASSERT_TRUE(queue.resize(10).ok());
  EXPECT_EQ(queue.capacity(), 16u);
  for (int i = 200; i < 206; ++i) EXPECT_TRUE(queue.push(completion(i), false));
  EXPECT_EQ(drain(queue).front(), 190u);
  ASSERT_TRUE(queue.resize(1 << 20).ok());
  for (int i = 0; i < 5000; ++i) ASSERT_TRUE(queue.push(completion(i), false));
  EXPECT_EQ(drain(queue).size(), 5000u);
}

TEST_F(CompletionQueueTest, ProducersAndConsumersOnSeveralThreads) {
  CompletionQueue queue(1 << 16, nullptr, nullptr, nullptr);
  constexpr uint64_t kEach = 20000;
  const auto produce = [&queue](uint32_t qpn) {
    for (uint64_t i = 0; i < kEach; ++i) queue.push(completion(i, Qpn{qpn}), false);
  };
  std::thread first(produce, 1);
  std::thread second(produce, 2);
  uint64_t next[3] = {};
  uint64_t seen = 0;
  WorkCompletion some[16];
  while (seen < 2 * kEach) {
    const size_t n = queue.poll(some);
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(some[i].wr_id, next[some[i].qpn.value()]++);
    seen += n;
    if (n == 0) std::this_thread::yield();
  }
  first.join();
  second.join();
}

TEST_F(CompletionQueueTest, NamesOfStatusesAndEvents) {
  EXPECT_STREQ(to_string(CompletionStatus::kRemoteAccessError), "remote access error");
  EXPECT_STREQ(to_string(AsyncEventType::kCqError), "CQ error");
  EXPECT_STREQ(to_string(static_cast<CompletionStatus>(99)), "unknown status");
}

}  // namespace
}  // namespace farverbs::model
