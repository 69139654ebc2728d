// Messages with deadlines on lines that lose packets, with forward error correction and without:
// docs/far-transport.md section 8. The table is kept, so that a change in behaviour is seen.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>

#include "farverbs/sim/snapshot_testing.h"
#include "farverbs/sim/world.h"

namespace farverbs::sim {
namespace {

constexpr model::PdId kPd = 1;
constexpr uint32_t kMessage = 62'000;

struct Outcome {
  double p50_ms = 0;
  double p99_ms = 0;
  double p999_ms = 0;
  double late_share = 0;  // more than 20 ms above what a message takes without loss
  double redundant_share = 0;
  uint64_t sent_again = 0;
};

// 60 messages a second for half a minute, over 100 Mb/s and 100 ms, that lose packets by chance.
Outcome stream(double loss, double burst, bool repairs) {
  World world(7);
  engine::LoopConfig config;
  config.datagram_ceiling = 1'472;
  config.transport.far_repairs = repairs ? proto::FarRepairs::kRealtime : proto::FarRepairs::kOff;
  Host& a = world.add_host("10.0.0.1", config);
  Host& b = world.add_host("10.0.0.2", config);
  LinkSpec link;
  link.rate = BitRate::bits_per_second(100'000'000);
  link.delay = Duration::milliseconds(50);
  link.queue_bytes = link.rate.bytes_for(Duration::milliseconds(100));
  world.network.link(b.address().address, a.address().address) = link;
  link.loss = loss;
  link.burst_loss_length = burst;
  world.network.link(a.address().address, b.address().address) = link;
  std::vector<std::byte> from(kMessage), to(kMessage);
  const auto address = [](const std::vector<std::byte>& memory) {
    return reinterpret_cast<uint64_t>(memory.data());
  };
  const auto local =
      *a.memory().register_region(kPd, from.data(), from.size(), address(from), model::kLocalWrite);
  const auto remote = *b.memory().register_region(kPd, to.data(), to.size(), address(to),
                                                  model::kLocalWrite | model::kRemoteWrite);
  model::CompletionQueue cq(256, nullptr, nullptr, nullptr);
  model::QpInit init;
  init.send_cq = init.receive_cq = &cq;
  init.capabilities = {128, 1, 1, 1, 0};
  init.pd = kPd;
  engine::LoopQp& qp = a.create_qp(init);
  engine::LoopQp& peer = b.create_qp(init);
  ConnectSpec spec;
  spec.far = true;
  spec.timeout = 18;
  spec.traffic = model::TrafficClass::kRealtime;
  connect(world.network.now(), a, qp, b, peer, spec);

  constexpr Duration kPeriod = Duration::microseconds(16'667);
  const Time start = world.network.now();
  // The path and its loss are learned in the first seconds.
  const Time counted_from = start + Duration::seconds(5);
  Time next = start;
  std::deque<Time> posted;
  std::vector<double> waits;
  const auto act = [&] {
    std::array<model::WorkCompletion, 16> completions;
    for (size_t n; (n = cq.poll(completions)) > 0;) {
      for (size_t i = 0; i < n; ++i) {
        EXPECT_EQ(completions[i].status, model::CompletionStatus::kSuccess);
        if (posted.front() >= counted_from) {
          waits.push_back((world.network.now() - posted.front()).to_seconds() * 1e3);
        }
        posted.pop_front();
      }
    }
    if (world.network.now() < next || posted.size() >= 120) return;
    next = next + kPeriod;
    const model::ScatterGatherElement sge{address(from), kMessage, MemoryKey(local->key.load())};
    model::SendWorkRequest wr;
    wr.opcode = model::SendOpcode::kWrite;
    wr.flags = model::kSignaled;
    wr.sges = {&sge, 1};
    wr.remote_address = address(to);
    wr.remote_key = MemoryKey(remote->key.load());
    ASSERT_TRUE(qp.pair.post_send(wr).ok());
    posted.push_back(world.network.now());
    a.loop().ring(qp);
  };
  world.run(Duration::seconds(35), Duration::microseconds(200), act, [] { return false; });
  Outcome outcome;
  std::sort(waits.begin(), waits.end());
  const auto at = [&](double share) {
    return waits[static_cast<size_t>(static_cast<double>(waits.size() - 1) * share)];
  };
  outcome.p50_ms = at(0.5);
  outcome.p99_ms = at(0.99);
  outcome.p999_ms = at(0.999);
  // 43 packets take 5.3 ms at 100 Mb/s, and a round trip.
  const auto late = std::upper_bound(waits.begin(), waits.end(), 105.3 + 20);
  outcome.late_share = static_cast<double>(waits.end() - late) / static_cast<double>(waits.size());
  const model::QpCounters& counters = qp.pair.qp().counters;
  outcome.redundant_share =
      static_cast<double>(counters.sent_repairs) / static_cast<double>(counters.sent_packets);
  outcome.sent_again = counters.retransmitted_packets;
  a.loop().destroy_qp(world.network.now(), &qp);
  b.loop().destroy_qp(world.network.now(), &peer);
  return outcome;
}

TEST(Repairs, KeepDeadlinesOnLinesThatLose) {
  struct Line {
    const char* name;
    double loss;
    double burst;
    double most_late;  // with repairs
  };
  constexpr Line kLines[] = {
      {"nothing lost", 0, 1, 0},    {"1 % lost", 0.01, 1, 0.001},
      {"2 % lost", 0.02, 1, 0.002}, {"3 % lost", 0.03, 1, 0.003},
      {"5 % lost", 0.05, 1, 0.005}, {"1 % lost in bursts of 3", 0.01, 3, 0.25},
  };
  std::string table;
  for (const Line& line : kLines) {
    for (const bool repairs : {false, true}) {
      const Outcome o = stream(line.loss, line.burst, repairs);
      char row[200];
      std::snprintf(row, sizeof row,
                    "%-26s %-8s p50 %6.1f  p99 %6.1f  p99.9 %6.1f ms  late %6.2f %%  redundant "
                    "%4.1f %%  again %llu\n",
                    line.name, repairs ? "repairs" : "none", o.p50_ms, o.p99_ms, o.p999_ms,
                    o.late_share * 100, o.redundant_share * 100,
                    static_cast<unsigned long long>(o.sent_again));
      table += row;
      if (repairs) {
        EXPECT_LE(o.late_share, line.most_late) << line.name;
      }
      if (line.loss == 0) {
        EXPECT_EQ(o.redundant_share, 0) << line.name;
      }
    }
  }
  expect_kept(table, "repairs.snapshot.txt");
}

}  // namespace
}  // namespace farverbs::sim
