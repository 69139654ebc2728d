// Network: datagrams between virtual ports in virtual time. Each direction of a pair of addresses
// is a link with a rate, a delay, a drop-tail queue and faults drawn from the seed: loss,
// duplication, reordering, corruption, blackouts, an MTU that may shrink. It owns the clock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <queue>
#include <vector>

#include "farverbs/base/ip_address.h"
#include "farverbs/base/prng.h"
#include "farverbs/base/units.h"
#include "farverbs/io/port.h"

namespace farverbs::sim {

struct LinkSpec {
  BitRate rate = BitRate::bits_per_second(1'000'000'000);
  Duration delay = Duration::microseconds(50);
  Duration jitter;                 // uniform, added; keeps order unless reorder strikes
  uint64_t queue_bytes = 1 << 20;  // what may wait for the rate
  uint64_t mark_bytes = 0;         // ECN: packets that find so much waiting are marked; 0: none
  double loss = 0;
  double burst_loss_length = 1;  // mean length of a loss burst, in packets
  double duplicate = 0;
  double reorder = 0;  // chance to be held back by reorder_delay
  Duration reorder_delay = Duration::microseconds(300);
  bool reorder_up_to = false;  // ... or by any time up to that
  double corrupt = 0;          // chance of one flipped bit
  size_t max_datagram = 65'507;
  bool down = false;
  // When the queue will be empty: links that share this share a bottleneck. nullptr: its own.
  std::shared_ptr<Time> bottleneck;
};

// Bytes around a UDP payload on an Ethernet: preamble, gap, FCS, Ethernet, IPv4 and UDP headers.
inline constexpr uint64_t kWireOverhead = 20 + 4 + 14 + 20 + 8;

struct LinkCounters {
  uint64_t offered = 0;
  uint64_t delivered = 0;
  uint64_t lost = 0;
  uint64_t queue_dropped = 0;
  uint64_t marked = 0;
  uint64_t duplicated = 0;
  uint64_t reordered = 0;
  uint64_t corrupted = 0;
};

class Network;

class SimPort final : public io::Port {
 public:
  SimPort(Network& network, Endpoint local);
  Endpoint local() const override { return local_; }
  const io::PortLimits& limits() const override { return limits_; }
  const io::PortCounters& counters() const override { return counters_; }
  io::SendStatus send(const io::TxFlow& flow, const wire::TxBurst& burst) override;
  size_t receive(std::span<io::RxBurst> bursts) override;
  int wait_fd() const override { return -1; }

  bool has_arrivals() const { return !inbox_.empty(); }
  // What a socket's receive buffer holds; more is dropped.
  void set_receive_buffer(size_t bytes) { receive_buffer_ = bytes; }
  // Whether consecutive datagrams of one flow and size arrive as one burst.
  void set_merging(bool merging) { merging_ = merging; }

 private:
  friend class Network;
  struct Datagram {
    Endpoint source;
    uint8_t traffic_class = 0;
    std::vector<std::byte> bytes;
  };
  void arrive(Datagram datagram);

  Network& network_;
  Endpoint local_;
  io::PortLimits limits_;
  io::PortCounters counters_;
  std::deque<Datagram> inbox_;
  size_t inbox_bytes_ = 0;
  size_t receive_buffer_ = size_t{4} << 20;
  bool merging_ = true;
  std::vector<std::vector<std::byte>> handed_out_;
};

class Network {
 public:
  explicit Network(uint64_t seed) : prng_(seed) {}
  Time now() const { return now_; }

  // An address has one port at a time; a dead one's datagrams fall on the floor.
  std::unique_ptr<SimPort> open(Endpoint local);
  void close(SimPort& port);
  // An address translator: from now on what `host` sends is seen to come from `seen_as`, and what
  // is sent there reaches it. What is sent to where it was seen before is lost.
  void rebind(const Endpoint& host, const Endpoint& seen_as);
  const Endpoint& seen(const Endpoint& host) const;
  // Further addresses of two hosts, that they have for each other alone: another path between them.
  void pair(const Endpoint& host, const Endpoint& alias, const Endpoint& other,
            const Endpoint& other_alias);
  LinkSpec& link(const IpAddress& from, const IpAddress& to);
  const LinkCounters& counters(const IpAddress& from, const IpAddress& to);

  Time next_arrival() const { return arrivals_.empty() ? Time::never() : arrivals_.top().at; }
  // Moves the clock, delivering what falls due on the way.
  void advance(Time to);

 private:
  friend class SimPort;
  struct Link {
    LinkSpec spec;
    LinkCounters counters;
    Time busy_until;
    Time last_arrival;  // jitter keeps the order
    bool in_loss_burst = false;
  };
  struct Arrival {
    Time at;
    uint64_t order;
    Endpoint to;
    std::shared_ptr<SimPort::Datagram> datagram;
    bool operator>(const Arrival& o) const { return at != o.at ? at > o.at : order > o.order; }
  };
  Link& find_link(const IpAddress& from, const IpAddress& to);
  void transmit(const Endpoint& host, const io::TxFlow& flow, std::span<const std::byte> bytes);
  bool lose(Link& link);
  void schedule(Link& link, Time at, const Endpoint& to, SimPort::Datagram datagram);

  Prng prng_;
  Time now_ = Time::from_ns(1'000'000'000);
  uint64_t order_ = 0;
  std::map<Endpoint, SimPort*> ports_;
  std::map<Endpoint, Endpoint> seen_as_;
  std::map<Endpoint, Endpoint> twins_;   // what is sent to the first comes from the second
  std::map<Endpoint, Endpoint> behind_;  // the same, the other way round
  std::map<std::pair<IpAddress, IpAddress>, Link> links_;
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> arrivals_;
};

}  // namespace farverbs::sim
