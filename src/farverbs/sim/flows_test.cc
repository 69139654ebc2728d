// A thousand flows, each with a path and a controller of its own, through one bottleneck: a server
// and its clients. The line stays in use, and the table says who gets what of it and what is lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "farverbs/sim/snapshot_testing.h"
#include "farverbs/sim/world.h"

namespace farverbs::sim {
namespace {

constexpr model::PdId kPd = 1;
constexpr uint32_t kMessage = 32 << 10;

struct FlowsReport {
  double used = 0;  // of the link's payload capacity
  double jain = 0;
  double least = 0;  // share of the mean
  double most = 0;
  double lost = 0;  // of all packets, once it has settled
};

FlowsReport run_flows(size_t flows, uint64_t mbps, Duration round_trip, double loss,
                      Duration settle, Duration measure) {
  World world(11);
  engine::LoopConfig config;
  config.datagram_ceiling = 1'472;
  Host& a = world.add_host("10.0.0.1", config);
  Host& b = world.add_host("10.0.0.2", config);
  a.port().set_receive_buffer(size_t{64} << 20);
  b.port().set_receive_buffer(size_t{64} << 20);
  LinkSpec link;
  link.rate = BitRate::bits_per_second(mbps * 1'000'000);
  link.delay = round_trip / 2;
  link.queue_bytes = link.rate.bytes_for(round_trip);
  link.loss = loss;
  link.bottleneck = std::make_shared<Time>();
  LinkSpec back = link;
  back.bottleneck = std::make_shared<Time>();
  back.loss = 0;
  std::vector<std::byte> from(kMessage), to(kMessage);
  const auto address = [](const std::vector<std::byte>& memory) {
    return reinterpret_cast<uint64_t>(memory.data());
  };
  const auto local =
      *a.memory().register_region(kPd, from.data(), from.size(), address(from), model::kLocalWrite);
  const auto remote = *b.memory().register_region(kPd, to.data(), to.size(), address(to),
                                                  model::kLocalWrite | model::kRemoteWrite);
  model::CompletionQueue cq(static_cast<uint32_t>(flows * 8), nullptr, nullptr, nullptr);
  model::QpInit init;
  init.send_cq = init.receive_cq = &cq;
  init.capabilities = {8, 1, 1, 1, 0};
  init.pd = kPd;
  std::vector<engine::LoopQp*> senders, targets;
  for (size_t i = 0; i < flows; ++i) {
    const auto alias = [&](uint32_t net) {
      return Endpoint{IpAddress::v4(net << 24 | static_cast<uint32_t>(i + 1)), kRoceUdpPort};
    };
    const Endpoint at_a = alias(11), at_b = alias(12);
    world.network.pair(a.address(), at_a, b.address(), at_b);
    world.network.link(at_a.address, at_b.address) = link;
    world.network.link(at_b.address, at_a.address) = back;
    senders.push_back(&a.create_qp(init));
    targets.push_back(&b.create_qp(init));
    ConnectSpec spec;
    spec.far = true;
    spec.timeout = 18;
    connect(world.network.now(), a, *senders[i], at_a, b, *targets[i], at_b, spec);
  }
  std::vector<uint64_t> bytes(flows);
  const auto post = [&](size_t flow) {
    const model::ScatterGatherElement sge{address(from), kMessage, MemoryKey(local->key.load())};
    model::SendWorkRequest wr;
    wr.wr_id = flow;
    wr.opcode = model::SendOpcode::kWrite;
    wr.flags = model::kSignaled;
    wr.sges = {&sge, 1};
    wr.remote_address = address(to);
    wr.remote_key = MemoryKey(remote->key.load());
    ASSERT_TRUE(senders[flow]->pair.post_send(wr).ok());
    a.loop().ring(*senders[flow]);
  };
  struct Count {
    uint64_t offered = 0;
    uint64_t lost = 0;
  };
  const auto count = [&] {
    Count all;
    for (size_t i = 0; i < flows; ++i) {
      const LinkCounters& counters =
          world.network.counters(IpAddress::v4(11u << 24 | static_cast<uint32_t>(i + 1)),
                                 IpAddress::v4(12u << 24 | static_cast<uint32_t>(i + 1)));
      all.offered += counters.offered;
      all.lost += counters.lost + counters.queue_dropped;
    }
    return all;
  };
  Count before;
  const Time start = world.network.now();
  bool counting = false;
  std::vector<model::WorkCompletion> completions(256);
  const auto act = [&] {
    if (!counting && world.network.now() - start >= settle) {
      counting = true;
      std::fill(bytes.begin(), bytes.end(), 0);
      before = count();
    }
    for (size_t n; (n = cq.poll(completions)) > 0;) {
      for (size_t i = 0; i < n; ++i) {
        ASSERT_EQ(completions[i].status, model::CompletionStatus::kSuccess);
        bytes[completions[i].wr_id] += kMessage;
        post(completions[i].wr_id);
      }
    }
  };
  // They do not all begin at once.
  for (size_t i = 0; i < flows; ++i) {
    for (int n = 0; n < 4; ++n) post(i);
    if (i % 50 == 49) {
      world.run(Duration::milliseconds(40), Duration::milliseconds(1), act, [] { return false; });
    }
  }
  world.run(start + settle + measure - world.network.now(), Duration::milliseconds(1), act,
            [] { return false; });
  FlowsReport report;
  double sum = 0, squares = 0;
  for (const uint64_t each : bytes) {
    const auto x = static_cast<double>(each);
    sum += x;
    squares += x * x;
  }
  const double mean = sum / static_cast<double>(flows);
  report.jain = sum * sum / (static_cast<double>(flows) * squares);
  report.least = static_cast<double>(*std::min_element(bytes.begin(), bytes.end())) / mean;
  report.most = static_cast<double>(*std::max_element(bytes.begin(), bytes.end())) / mean;
  constexpr double kPayloadShare = 1'432.0 / (1'472 + kWireOverhead);
  report.used = sum * 8 / (static_cast<double>(mbps) * 1e6 * kPayloadShare * measure.to_seconds());
  const Count after = count();
  report.lost = static_cast<double>(after.lost - before.lost) /
                static_cast<double>(after.offered - before.offered);
  for (size_t i = 0; i < flows; ++i) {
    a.loop().destroy_qp(world.network.now(), senders[i]);
    b.loop().destroy_qp(world.network.now(), targets[i]);
  }
  return report;
}

TEST(Flows, AThousandShareOneBottleneck) {
  struct Line {
    const char* name;
    size_t flows;
    uint64_t mbps;
    double loss;
    double least_used;
    double least_jain;
  };
  constexpr Line kLines[] = {
      {"10 flows, 200 Mb/s", 10, 200, 0, 0.85, 0.95},
      {"100 flows, 200 Mb/s", 100, 200, 0, 0.85, 0.5},
      {"1,000 flows, 1 Gb/s", 1'000, 1'000, 0, 0.85, 0.5},
  };
  std::string table;
  for (const Line& line : kLines) {
    const bool many = line.flows > 500;
    const FlowsReport report = run_flows(line.flows, line.mbps, Duration::milliseconds(60),
                                         line.loss, Duration::milliseconds(many ? 2'500 : 6'000),
                                         Duration::milliseconds(many ? 1'500 : 3'000));
    EXPECT_GE(report.used / (1 - line.loss), line.least_used) << line.name;
    EXPECT_GE(report.jain, line.least_jain) << line.name;
    char row[160];
    std::snprintf(row, sizeof row,
                  "%-32s used %5.1f %%  Jain %5.3f  least %4.2f  most %4.2f  lost %5.2f %%\n",
                  line.name, report.used / (1 - line.loss) * 100, report.jain, report.least,
                  report.most, report.lost * 100);
    table += row;
  }
  expect_kept(table, "flows.snapshot.txt");
}

}  // namespace
}  // namespace farverbs::sim
