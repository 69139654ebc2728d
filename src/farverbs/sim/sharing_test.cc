// How the QPs of one loop share a path: nobody starves, equals get equal parts, idle ones cost
// little.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "farverbs/sim/world.h"

namespace farverbs::sim {
namespace {

constexpr model::PdId kPd = 1;

// A writes to B over QPs that share one path.
class Sharing : public testing::Test {
 protected:
  struct Writer {
    engine::LoopQp* qp = nullptr;
    engine::LoopQp* peer = nullptr;
    std::unique_ptr<model::CompletionQueue> cq;
    uint64_t completed = 0;
  };

  Sharing()
      : a_(world_.add_host("10.0.0.1", engine::LoopConfig{})),
        b_(world_.add_host("10.0.0.2", engine::LoopConfig{})),
        from_(1 << 20),
        to_(1 << 20) {
    LinkSpec link;
    link.rate = BitRate::bits_per_second(1'000'000'000);
    link.delay = Duration::microseconds(100);
    link.queue_bytes = 4 << 20;
    world_.network.link(a_.address().address, b_.address().address) = link;
    world_.network.link(b_.address().address, a_.address().address) = link;
    local_ = *a_.memory().register_region(kPd, from_.data(), from_.size(), address(from_),
                                          model::kLocalWrite);
    remote_ = *b_.memory().register_region(kPd, to_.data(), to_.size(), address(to_),
                                           model::kLocalWrite | model::kRemoteWrite);
  }
  ~Sharing() override {
    for (auto& writer : writers_) {
      a_.loop().destroy_qp(world_.network.now(), writer->qp);
      b_.loop().destroy_qp(world_.network.now(), writer->peer);
    }
  }

  static uint64_t address(const std::vector<std::byte>& memory) {
    return reinterpret_cast<uint64_t>(memory.data());
  }
  Writer& add_writer(uint32_t depth = 64) {
    auto writer = std::make_unique<Writer>();
    writer->cq = std::make_unique<model::CompletionQueue>(256, nullptr, nullptr, nullptr);
    model::QpInit init;
    init.send_cq = init.receive_cq = writer->cq.get();
    init.capabilities = {depth, 1, 1, 1, 0};
    init.pd = kPd;
    writer->qp = &a_.create_qp(init);
    writer->peer = &b_.create_qp(init);
    ConnectSpec spec;
    spec.timeout = 18;
    connect(world_.network.now(), a_, *writer->qp, b_, *writer->peer, spec);
    writers_.push_back(std::move(writer));
    return *writers_.back();
  }
  void post(Writer& writer, uint32_t length) {
    const model::ScatterGatherElement sge{address(from_), length, MemoryKey(local_->key.load())};
    model::SendWorkRequest wr;
    wr.opcode = model::SendOpcode::kWrite;
    wr.flags = model::kSignaled;
    wr.sges = {&sge, 1};
    wr.remote_address = address(to_);
    wr.remote_key = MemoryKey(remote_->key.load());
    ASSERT_TRUE(writer.qp->pair.post_send(wr).ok());
    a_.loop().ring(*writer.qp);
  }
  size_t reap(Writer& writer) {
    std::array<model::WorkCompletion, 16> completions;
    size_t n = 0;
    for (size_t got; (got = writer.cq->poll(completions)) > 0; n += got) {
      for (size_t i = 0; i < got; ++i) {
        EXPECT_EQ(completions[i].status, model::CompletionStatus::kSuccess);
      }
    }
    writer.completed += n;
    return n;
  }

  World world_{1};
  Host& a_;
  Host& b_;
  std::vector<std::byte> from_;
  std::vector<std::byte> to_;
  model::MemoryEntry* local_;
  model::MemoryEntry* remote_;
  std::vector<std::unique_ptr<Writer>> writers_;
};

TEST_F(Sharing, ASmallRequestDoesNotWaitBehindBulk) {
  Writer& bulk = add_writer();
  Writer& small = add_writer();
  std::vector<Duration> waits;
  Time posted;
  bool under_way = false;
  Time next = world_.network.now() + Duration::milliseconds(50);
  for (int i = 0; i < 32; ++i) post(bulk, 1 << 20);
  auto act = [&] {
    for (size_t n = reap(bulk); n > 0; --n) post(bulk, 1 << 20);
    const Time now = world_.network.now();
    if (reap(small) > 0) {
      waits.push_back(now - posted);
      under_way = false;
      next = now + Duration::milliseconds(1);
    }
    if (!under_way && now >= next) {
      post(small, 64);
      posted = now;
      under_way = true;
    }
  };
  world_.run(Duration::milliseconds(600), Duration::microseconds(100), act, [] { return false; });
  ASSERT_GT(waits.size(), 100u);
  std::sort(waits.begin(), waits.end());
  // What is in flight for the path lies before it in the network's queue; that is a few
  // milliseconds. Behind the bulk QP's queue of 32 MiB it would be 270.
  EXPECT_LT(waits[waits.size() * 99 / 100].ns(), Duration::milliseconds(6).ns());
  EXPECT_GT(bulk.completed, 40u);  // of about 65 MB that the line carries in that time
}

TEST_F(Sharing, EqualsGetEqualParts) {
  for (int i = 0; i < 20; ++i) add_writer();
  for (auto& writer : writers_) {
    for (int i = 0; i < 8; ++i) post(*writer, 100'000);
  }
  auto act = [&] {
    for (auto& writer : writers_) {
      for (size_t n = reap(*writer); n > 0; --n) post(*writer, 100'000);
    }
  };
  world_.run(Duration::milliseconds(800), Duration::microseconds(100), act, [] { return false; });
  uint64_t least = UINT64_MAX;
  uint64_t most = 0;
  for (auto& writer : writers_) {
    least = std::min(least, writer->completed);
    most = std::max(most, writer->completed);
  }
  EXPECT_GT(least, 10u);
  EXPECT_LT(most - least, most / 4 + 2);
}

TEST_F(Sharing, AHeavierWeightGetsMore) {
  Writer& heavy = add_writer();
  Writer& light = add_writer();
  heavy.qp->weight = 4;
  for (Writer* writer : {&heavy, &light}) {
    for (int i = 0; i < 32; ++i) post(*writer, 1 << 20);
  }
  auto act = [&] {
    for (Writer* writer : {&heavy, &light}) {
      for (size_t n = reap(*writer); n > 0; --n) post(*writer, 1 << 20);
    }
  };
  world_.run(Duration::milliseconds(800), Duration::microseconds(100), act, [] { return false; });
  EXPECT_GT(heavy.completed, 2 * light.completed);
  EXPECT_GT(light.completed, 5u);
}

TEST_F(Sharing, TenThousandQueuePairsTakeTurns) {
  for (int i = 0; i < 10'000; ++i) add_writer(2);
  for (auto& writer : writers_) post(*writer, 3'000);
  size_t completed = 0;
  int steps = 0;
  world_.run(
      Duration::seconds(30), Duration::milliseconds(5),
      [&] {
        if (++steps % 200 != 0) return;
        for (auto& writer : writers_) completed += reap(*writer);
      },
      [&] { return completed == writers_.size(); });
  for (auto& writer : writers_) ASSERT_EQ(writer->completed, 1u);
}

TEST_F(Sharing, AnIdleQueuePairIsSmall) {
  Writer& writer = add_writer();
  const proto::QueuePair::Footprint footprint = writer.qp->pair.footprint();
  const size_t loop_part = sizeof(engine::LoopQp) - sizeof(proto::QueuePair);
  EXPECT_LE(footprint.total_bytes - footprint.ring_bytes + loop_part, 2'048u);
}

}  // namespace
}  // namespace farverbs::sim
