// World: hosts with the production packet loop on a virtual network, driven in virtual time. A host
// is stepped when something arrived, when its loop's deadline comes, and after its application
// acted; a step may come late, as a real thread does, by chance drawn from the seed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "farverbs/engine/loop.h"
#include "farverbs/sim/network.h"

namespace farverbs::sim {

struct RecordedEvents final : model::AsyncEventSink {
  void on_async_event(const model::AsyncEvent& event) override { events.push_back(event); }
  std::vector<model::AsyncEvent> events;
};

// A process on a machine of the simulated network.
class Host {
 public:
  Host(Network& network, Endpoint address, uint64_t seed, const engine::LoopConfig& config);
  ~Host();

  engine::Loop& loop() { return *loop_; }
  SimPort& port() { return *port_; }
  model::MemoryTable& memory() { return memory_; }
  RecordedEvents& events() { return events_; }
  const Endpoint& address() const { return address_; }
  engine::LoopQp& create_qp(const model::QpInit& init);

 private:
  friend class World;
  Network& network_;
  Endpoint address_;
  SeededEntropy entropy_;
  model::MemoryTable memory_;
  RecordedEvents events_;
  std::unique_ptr<SimPort> port_;
  std::unique_ptr<engine::Loop> loop_;
  Time stalled_until_;
};

struct ConnectSpec {
  model::PathMtu path_mtu = model::PathMtu::k1024;
  uint8_t timeout = 14;
  uint8_t retry_count = 7;
  uint8_t rnr_retry = 7;
  uint8_t min_rnr_timer = 1;
  uint8_t max_rd_atomic = 4;
  uint32_t access = model::kRemoteWrite | model::kRemoteRead | model::kRemoteAtomic;
  Psn first_psn_a;
  Psn first_psn_b;
  bool far = false;      // RC over the far transport
  bool in_band = false;  // ... that the ends agree on by themselves: the hosts negotiate
  model::TrafficClass traffic = model::TrafficClass::kBulk;
};
// Takes two RC or UC QPs from RESET to RTS.
void connect(Time now, Host& a, engine::LoopQp& qp_a, Host& b, engine::LoopQp& qp_b,
             const ConnectSpec& spec);
// The same by the addresses that they have for each other.
void connect(Time now, Host& a, engine::LoopQp& qp_a, const Endpoint& at_a, Host& b,
             engine::LoopQp& qp_b, const Endpoint& at_b, const ConnectSpec& spec);

class World {
 public:
  explicit World(uint64_t seed) : network(seed), prng_(seed + 1) {}

  Network network;
  // Chance that a step comes late, and the most that it is late.
  double lateness = 0;
  Duration max_lateness = Duration::microseconds(200);

  // `address` is an IPv4 or IPv6 literal.
  Host& add_host(const std::string& address, const engine::LoopConfig& config);
  // The host's process dies at once: its QPs say nothing more.
  void kill(Host& host);

  // Runs until done() (true) or until `limit` of virtual time has passed. `act` is the
  // applications' code, called after every step and at the latest every `act_every`: it polls and
  // posts.
  bool run(Duration limit, Duration act_every, const std::function<void()>& act,
           const std::function<bool()>& done);
  uint64_t steps() const { return steps_; }

 private:
  Time next_event() const;
  void step_ready_hosts();
  std::vector<std::unique_ptr<Host>> hosts_;
  Prng prng_;
  uint64_t steps_ = 0;
};

}  // namespace farverbs::sim
