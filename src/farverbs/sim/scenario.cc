#include "farverbs/sim/scenario.h"

#include <algorithm>
#include <array>

namespace farverbs::sim {
namespace {

struct Plan {
  size_t hosts = 2;
  size_t conversations = 1;
  LinkSpec faulty;
  LinkSpec clean;
  Duration fault_time;
  Duration blackout_at;
  Duration blackout_for;
  Duration shrink_at;  // the MTU shrinks below a full packet for a while
  Duration shrink_for;
  Duration kill_at;    // zero: nobody is killed
  Duration rebind_at;  // zero: all keep the address that others see
  bool rebind_address = false;
  double lateness = 0;
  bool merging = true;
  bool ipv6 = false;
  size_t receive_buffer = size_t{4} << 20;
  ConversationSpec conversation;
};

template <typename T, size_t N>
T pick(Prng& prng, const std::array<T, N>& values) {
  return values[prng.below(N)];
}

Plan draw(Prng& prng) {
  Plan p;
  p.hosts = 2 + prng.below(3);
  p.conversations = 1 + prng.below(4);
  p.ipv6 = prng.chance(0.3);
  p.clean.rate = BitRate::bits_per_second(
      pick(prng, std::array<uint64_t, 4>{20'000'000, 200'000'000, 1'000'000'000, 10'000'000'000}));
  p.clean.delay =
      Duration::microseconds(pick(prng, std::array<int64_t, 5>{5, 50, 500, 5'000, 40'000}));
  p.clean.queue_bytes = pick(prng, std::array<uint64_t, 4>{20'000, 100'000, 1'000'000, 8'000'000});
  p.faulty = p.clean;
  if (prng.chance(0.6)) p.faulty.loss = prng.unit() * 0.1;
  if (prng.chance(0.2)) p.faulty.burst_loss_length = 1 + prng.unit() * 10;
  if (prng.chance(0.4)) p.faulty.duplicate = prng.unit() * 0.1;
  if (prng.chance(0.4)) p.faulty.reorder = prng.unit() * 0.1;
  p.faulty.reorder_delay = Duration::microseconds(static_cast<int64_t>(prng.between(1, 3'000)));
  if (prng.chance(0.3)) p.faulty.corrupt = prng.unit() * 0.05;
  if (prng.chance(0.3)) {
    p.faulty.jitter = Duration::microseconds(static_cast<int64_t>(prng.between(1, 2'000)));
  }
  p.fault_time = Duration::milliseconds(static_cast<int64_t>(prng.between(5, 2'000)));
  if (prng.chance(0.15)) {
    p.blackout_at = Duration::microseconds(static_cast<int64_t>(prng.between(100, 100'000)));
    p.blackout_for = Duration::milliseconds(static_cast<int64_t>(prng.between(1, 400)));
  }
  if (prng.chance(0.1)) {
    p.shrink_at = Duration::microseconds(static_cast<int64_t>(prng.between(100, 50'000)));
    p.shrink_for = Duration::milliseconds(static_cast<int64_t>(prng.between(1, 300)));
  }
  if (prng.chance(0.05)) {
    p.kill_at = Duration::microseconds(static_cast<int64_t>(prng.between(50, 50'000)));
  }
  if (prng.chance(0.3)) p.lateness = prng.unit() * 0.3;
  p.merging = prng.chance(0.8);
  if (prng.chance(0.1)) p.receive_buffer = 30'000;

  ConversationSpec& c = p.conversation;
  c.requests_per_side = static_cast<uint32_t>(prng.between(1, 40));
  c.max_message_bytes = pick(prng, std::array<uint32_t, 4>{64, 1'500, 9'000, 24'000});
  c.depth = static_cast<uint32_t>(prng.between(1, 16));
  c.receives = static_cast<uint32_t>(prng.between(1, 12));
  c.receive_starvation = prng.chance(0.3) ? 0.6 : 0.05;
  c.signaled = prng.unit();
  c.shared_receives = prng.chance(0.2);
  c.connection.path_mtu =
      pick(prng, std::array<model::PathMtu, 4>{model::PathMtu::k256, model::PathMtu::k1024,
                                               model::PathMtu::k1024, model::PathMtu::k4096});
  c.connection.max_rd_atomic = static_cast<uint8_t>(prng.between(1, 8));
  c.connection.min_rnr_timer = static_cast<uint8_t>(prng.between(1, 14));
  c.connection.far = prng.chance(0.6);
  c.connection.in_band = c.connection.far && prng.chance(0.5);
  // Drawn apart, so that the rest of what a seed means stays.
  Prng more(prng.next());
  if (c.connection.far && !c.connection.in_band && more.chance(0.2)) {
    p.rebind_at = Duration::microseconds(static_cast<int64_t>(more.between(100, 100'000)));
    p.rebind_address = more.chance(0.5);
  }
  return p;
}

std::string describe(const Plan& p) {
  std::string text = std::to_string(p.hosts) + " hosts, " + std::to_string(p.conversations) +
                     " conversations of " + std::to_string(p.conversation.requests_per_side) +
                     " requests a side up to " + std::to_string(p.conversation.max_message_bytes) +
                     " bytes, depth " + std::to_string(p.conversation.depth) + ", path MTU " +
                     std::to_string(model::bytes_of(p.conversation.connection.path_mtu)) +
                     "; link " + std::to_string(p.clean.rate.bps() / 1'000'000) + " Mb/s, " +
                     std::to_string(p.clean.delay.ns() / 1000) + " us, queue " +
                     std::to_string(p.clean.queue_bytes) +
                     (p.conversation.connection.in_band ? ", far transport negotiated in band"
                      : p.conversation.connection.far   ? ", far transport"
                                                        : ", standard RC");
  auto percent = [&](const char* name, double value) {
    if (value > 0) text += std::string(", ") + name + " " + std::to_string(value * 100) + "%";
  };
  percent("loss", p.faulty.loss);
  percent("duplication", p.faulty.duplicate);
  percent("reordering", p.faulty.reorder);
  percent("corruption", p.faulty.corrupt);
  percent("lateness", p.lateness);
  if (p.blackout_for.ns() > 0) text += ", blackout";
  if (p.shrink_for.ns() > 0) text += ", MTU shrinks";
  if (p.kill_at.ns() > 0) text += ", a process is killed";
  if (p.rebind_at.ns() > 0) text += p.rebind_address ? ", an address changes" : ", a port changes";
  return text;
}

// Puts the links of all pairs of hosts into the state that the plan has for `elapsed`.
void set_links(Network& network, const std::vector<Host*>& hosts, const Plan& plan,
               Duration elapsed) {
  LinkSpec spec = elapsed < plan.fault_time ? plan.faulty : plan.clean;
  auto inside = [&](Duration at, Duration length) {
    return length.ns() > 0 && elapsed >= at && elapsed < at + length;
  };
  spec.down = inside(plan.blackout_at, plan.blackout_for);
  if (inside(plan.shrink_at, plan.shrink_for)) spec.max_datagram = 200;
  for (Host* from : hosts) {
    for (Host* to : hosts) {
      if (from == to) continue;
      network.link(network.seen(from->address()).address, network.seen(to->address()).address) =
          spec;
    }
  }
}

}  // namespace

ScenarioReport run_scenario(uint64_t seed) {
  Prng prng(seed);
  const Plan plan = draw(prng);
  ScenarioReport report;
  report.seed = seed;
  report.description = describe(plan);

  World world(prng.next());
  world.lateness = plan.lateness;
  std::vector<Host*> hosts;
  for (size_t i = 0; i < plan.hosts; ++i) {
    const std::string address = (plan.ipv6 ? "fd00::" : "10.0.0.") + std::to_string(i + 1);
    engine::LoopConfig config;
    config.transport.far_give_up = Duration::seconds(10);
    config.transport.far_use = proto::FarUse::kNegotiate;
    hosts.push_back(&world.add_host(address, config));
    hosts.back()->port().set_merging(plan.merging);
    hosts.back()->port().set_receive_buffer(plan.receive_buffer);
  }
  const Time start = world.network.now();
  set_links(world.network, hosts, plan, Duration());

  std::vector<std::unique_ptr<Conversation>> conversations;
  for (size_t i = 0; i < plan.conversations; ++i) {
    const size_t a = prng.below(plan.hosts);
    const size_t b = (a + 1 + prng.below(plan.hosts - 1)) % plan.hosts;
    conversations.push_back(std::make_unique<Conversation>(world, *hosts[a], *hosts[b],
                                                           plan.conversation, prng.next()));
  }
  // A killed process takes the second host with it; only what it was the passive side of is
  // checked.
  bool rebind_pending = plan.rebind_at.ns() > 0;
  bool kill_pending = plan.kill_at.ns() > 0 && plan.conversations == 1;
  auto act = [&] {
    const Duration elapsed = world.network.now() - start;
    if (rebind_pending && elapsed >= plan.rebind_at) {
      rebind_pending = false;
      Endpoint to = hosts.back()->address();
      to.port = 40'000;
      if (plan.rebind_address) to.address = *IpAddress::parse(plan.ipv6 ? "fd00::99" : "10.0.0.99");
      world.network.rebind(hosts.back()->address(), to);
    }
    set_links(world.network, hosts, plan, elapsed);
    if (kill_pending && elapsed >= plan.kill_at) {
      kill_pending = false;
      ++report.killed;
      Host* victim = conversations[0]->passive_host();
      conversations[0]->peer_died();
      std::erase(hosts, victim);
      world.kill(*victim);
    }
    for (auto& conversation : conversations) conversation->act();
  };
  auto done = [&] {
    return std::all_of(conversations.begin(), conversations.end(),
                       [](const auto& c) { return c->done(); });
  };
  const bool finished =
      world.run(plan.fault_time + Duration::seconds(60), Duration::microseconds(500), act, done);
  for (size_t i = 0; i < conversations.size(); ++i) {
    Conversation& c = *conversations[i];
    std::string failure = c.failure();
    if (failure.empty() && c.done()) {
      c.check_memory();
      failure = c.failure();
    }
    if (failure.empty() && !c.done()) failure = "no end in sight: " + c.describe();
    if (!failure.empty() && report.failure.empty()) {
      report.failure = "conversation " + std::to_string(i) + ": " + failure;
    }
    report.broken += c.broken() ? 1 : 0;
    report.requests += c.posted();
  }
  if (!finished && report.failure.empty()) report.failure = "the run did not finish";
  report.steps = world.steps();
  report.virtual_time = world.network.now() - start;
  return report;
}

BulkReport run_bulk(const BulkSpec& spec) {
  World world(spec.seed);
  engine::LoopConfig config;
  config.datagram_ceiling = 1'472;
  config.transport.max_window_packets = spec.max_window_packets;
  Host& a = world.add_host("10.0.0.1", config);
  Host& b = world.add_host("10.0.0.2", config);
  LinkSpec link;
  link.rate = spec.rate;
  link.delay = spec.round_trip / 2;
  const uint64_t bdp = spec.rate.bytes_for(spec.round_trip);
  link.queue_bytes =
      std::max<uint64_t>(static_cast<uint64_t>(static_cast<double>(bdp) * spec.queue_bdp), 50'000);
  link.loss = spec.loss;
  link.mark_bytes = spec.mark_bytes;
  link.burst_loss_length = spec.burst_loss_length;
  link.reorder = spec.reorder;
  link.reorder_delay = spec.reorder_delay;
  link.reorder_up_to = spec.reorder_up_to;
  world.network.link(a.address().address, b.address().address) = link;
  world.network.link(b.address().address, a.address().address) = link;
  a.port().set_receive_buffer(size_t{64} << 20);
  b.port().set_receive_buffer(size_t{64} << 20);

  constexpr model::PdId kPd = 1;
  std::vector<std::byte> from(spec.message_bytes, std::byte{1});
  std::vector<std::byte> to(spec.message_bytes);
  auto local = a.memory().register_region(
      kPd, from.data(), from.size(), reinterpret_cast<uint64_t>(from.data()), model::kLocalWrite);
  auto remote =
      b.memory().register_region(kPd, to.data(), to.size(), reinterpret_cast<uint64_t>(to.data()),
                                 model::kLocalWrite | model::kRemoteWrite | model::kRemoteRead);
  model::CompletionQueue cq_a(4096, nullptr, nullptr, nullptr);
  model::CompletionQueue cq_b(4096, nullptr, nullptr, nullptr);
  model::QpInit init;
  init.send_cq = init.receive_cq = &cq_a;
  init.capabilities = {spec.depth, 1, 1, 1, 0};
  init.pd = kPd;
  engine::LoopQp& qp_a = a.create_qp(init);
  init.send_cq = init.receive_cq = &cq_b;
  engine::LoopQp& qp_b = b.create_qp(init);
  ConnectSpec connection;
  connection.path_mtu = spec.path_mtu;
  connection.max_rd_atomic = 128;
  connection.far = spec.far;
  connection.timeout = 18;  // 1.07 s: beyond any queueing here
  connect(world.network.now(), a, qp_a, b, qp_b, connection);

  BulkReport report;
  const Time start = world.network.now();
  uint64_t posted = 0;
  uint64_t completed = 0;
  uint32_t outstanding = 0;
  bool failed = false;
  Time next_trace = start;
  const Time measure_from = start + spec.measure_after;
  uint64_t before = 0;  // completed when the measurement began
  Time last_post = start;
  uint64_t at_last_post = 0;  // completed then
  Time last_completion = start;
  bool rebound = spec.rebind_at.ns() == 0;
  auto act = [&] {
    if (spec.trace != nullptr && world.network.now() >= next_trace) {
      next_trace = next_trace + spec.trace_every;
      const engine::Path& path = *qp_a.path;
      const engine::Path& path_b = *qp_b.path;
      const engine::Flight& flight = spec.far    ? (spec.read ? path_b.far : path.far)
                                     : spec.read ? path.reads
                                                 : path.requests;
      const engine::LoopQp& sender = spec.far && spec.read ? qp_b : qp_a;
      const auto* controller = (spec.read ? path_b : path).far_controller;
      std::fprintf(
          spec.trace,
          "%7.2f s  done %6.1f MB  window %8.1f KB  in flight %8.1f KB  rate %8.1f Mb/s  "
          "rtt %7.2f ms  again %llu %s\n",
          (world.network.now() - start).to_seconds(), static_cast<double>(completed) / 1e6,
          static_cast<double>(flight.window()) / 1e3, static_cast<double>(flight.inflight()) / 1e3,
          static_cast<double>(flight.rate().bps()) / 1e6, flight.last_rtt().to_seconds() * 1e3,
          static_cast<unsigned long long>(sender.pair.qp().counters.retransmitted_packets),
          spec.far && controller != nullptr ? (spec.read ? path_b : path).line->phase() : "");
    }
    if (!rebound && world.network.now() - start >= spec.rebind_at) {
      rebound = true;
      const Host& moved = spec.rebind_active ? a : b;
      const Host& other = spec.rebind_active ? b : a;
      Endpoint seen_as = moved.address();
      seen_as.port = 40'000;
      if (spec.rebind_address) seen_as.address = *IpAddress::parse("10.0.0.9");
      world.network.link(seen_as.address, other.address().address) = link;
      world.network.link(other.address().address, seen_as.address) = link;
      world.network.rebind(moved.address(), seen_as);
    }
    std::array<model::WorkCompletion, 16> completions;
    for (size_t n; (n = cq_a.poll(completions)) > 0;) {
      for (size_t i = 0; i < n; ++i) {
        failed |= completions[i].status != model::CompletionStatus::kSuccess;
        completed += spec.message_bytes;
        report.longest_pause =
            std::max(report.longest_pause, world.network.now() - last_completion);
        last_completion = world.network.now();
        if (world.network.now() < measure_from) before = completed;
        --outstanding;
      }
    }
    while (!failed && outstanding < spec.depth && posted < spec.total_bytes) {
      const model::ScatterGatherElement sge{reinterpret_cast<uint64_t>(from.data()),
                                            spec.message_bytes, MemoryKey((*local)->key.load())};
      model::SendWorkRequest wr;
      wr.opcode = spec.read ? model::SendOpcode::kRead : model::SendOpcode::kWrite;
      wr.flags = model::kSignaled;
      wr.sges = std::span(&sge, 1);
      wr.remote_address = reinterpret_cast<uint64_t>(to.data());
      wr.remote_key = MemoryKey((*remote)->key.load());
      if (!qp_a.pair.post_send(wr).ok()) break;
      a.loop().ring(qp_a);
      posted += spec.message_bytes;
      ++outstanding;
    }
    if (posted < spec.total_bytes) {
      last_post = world.network.now();
      at_last_post = completed;
    }
  };
  world.run(Duration::seconds(600), Duration::milliseconds(1), act,
            [&] { return failed || completed >= spec.total_bytes; });
  report.completed = !failed && completed >= spec.total_bytes;
  report.elapsed = world.network.now() - start;
  const uint32_t mtu = model::bytes_of(spec.path_mtu);
  const double payload_share = spec.far ? 1'432.0 / (1'472 + kWireOverhead)
                                        : static_cast<double>(mtu) / (mtu + 16 + kWireOverhead);
  const Time measured_to = spec.until_last_post ? last_post : start + report.elapsed;
  const uint64_t measured = (spec.until_last_post ? at_last_post : completed) - before;
  report.share_of_capacity = static_cast<double>(measured) * 8 /
                             (static_cast<double>(spec.rate.bps()) * payload_share *
                              (measured_to - measure_from).to_seconds());
  report.timeouts = qp_a.pair.qp().counters.timeouts;
  report.retransmitted_packets =
      qp_a.pair.qp().counters.retransmitted_packets + qp_b.pair.qp().counters.retransmitted_packets;
  report.lost_packets =
      world.network.counters(a.address().address, b.address().address).lost +
      world.network.counters(a.address().address, b.address().address).queue_dropped;
  const engine::Path& sender_path = spec.read ? *qp_b.path : *qp_a.path;
  if (const char* phase = sender_path.line->phase(); phase != nullptr) report.phase = phase;
  report.marked_packets = world.network.counters(a.address().address, b.address().address).marked;
  const engine::LoopQp& follower = spec.rebind_active ? qp_b : qp_a;
  report.followed =
      follower.path->flow.destination == world.network.seen((spec.rebind_active ? a : b).address());
  a.loop().destroy_qp(world.network.now(), &qp_a);
  b.loop().destroy_qp(world.network.now(), &qp_b);
  return report;
}

}  // namespace farverbs::sim
