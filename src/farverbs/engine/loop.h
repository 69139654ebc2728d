// Loop: the packet loop of one shard: one port, the QPs that live there, their timers and their
// turn to send. The production device drives it with sockets and the kernel's clock, the simulator
// with a virtual network and virtual time; it reads neither a clock nor a source of chance itself.
//
// A packet's way in:  step -> receive -> wire::parse -> QpTable::find -> wire::verify ->
// proto::QueuePair::on_packet -> model (memory, completion queue).  Its way out: step -> transmit
// -> proto::QueuePair::poll_transmit (writes into the burst) -> io::Port::send.
//
// Everything but ring() and has_work() needs the loop's lock, which its owner holds.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "farverbs/base/intrusive_list.h"
#include "farverbs/base/result.h"
#include "farverbs/engine/path.h"
#include "farverbs/engine/qp_table.h"
#include "farverbs/engine/timers.h"
#include "farverbs/io/management.h"
#include "farverbs/io/port.h"
#include "farverbs/proto/queue_pair.h"

namespace farverbs::engine {

struct LoopConfig {
  proto::TransportConfig transport;
  model::QpLimits limits;
  // Packets a QP of weight 1 may send before the next one's turn: as many small ones as a burst may
  // have, two bursts of large ones.
  uint32_t quantum_packets = 128;
  // Received bursts handled before it is the senders' turn again.
  uint32_t receive_bursts_per_step = 16;
  // Bursts sent in one step before what has arrived is looked at again.
  uint32_t send_bursts_per_step = 8;
  // How long an owed acknowledgement may wait for something to ride on while the application polls.
  Duration ack_delay = Duration::microseconds(4);
  // A fixed congestion window; 0: measured.
  uint64_t fixed_window_bytes = 0;
  // How far paths are controlled, but for the background class's.
  cc::ControlChoice far_control = cc::ControlChoice::kBySigns;
  // The longest UDP payload that the port's interface lets out: where the far transport's search
  // for a path's MTU ends.
  uint32_t datagram_ceiling = 1'452;
};

struct LoopCounters {
  uint64_t steps = 0;
  uint64_t malformed_packets = 0;
  uint64_t unknown_qpn = 0;
};

enum class StepKind : uint8_t {
  kPolling,  // the caller comes back at once: acknowledgements may wait a little
  kLeaving,  // the caller goes to sleep or away: owe nothing
};

class Loop {
 public:
  Loop(io::Port& port, model::MemoryTable& memory, Entropy& entropy, const LoopConfig& config,
       uint8_t slot);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // ENOMEM: all QPNs of the slot are taken.
  Result<LoopQp*> create_qp(const model::QpInit& init, model::AsyncEventSink* events);
  // Owed acknowledgements leave first.
  void destroy_qp(Time now, LoopQp* qp);
  Result<void> modify(Time now, LoopQp& qp, const model::QpAttributes& attributes, uint32_t mask);
  void fail(Time now, LoopQp& qp);
  // Datagrams that come to the group go to every QP attached; the port is the caller's to join.
  void attach(LoopQp& qp, const IpAddress& group);
  bool detach(const LoopQp& qp, const IpAddress& group);  // false: it was not
  // Which of the port's addresses it is; the first if it is none.
  uint8_t source_of(const IpAddress& address) const;

  // One turn: receive, timers, new work, transmit. True if a packet moved either way.
  bool step(Time now, StepKind kind);
  // New work and transmit only: what post_send does when the loop is free.
  bool step_transmit(Time now, StepKind kind);
  // The last step found that nothing more had arrived, or most likely so.
  bool drained() const { return drained_; }
  // What arrived last was a large burst: more of a long message is likely to follow.
  bool streaming() const { return streaming_; }
  // When step must run though nothing arrives and nobody posts.
  Time next_deadline() const;

  // From any thread, without the lock: this QP has new work. Whoever holds the lock sees it before
  // or after its release (has_work()).
  void ring(LoopQp& qp);
  bool has_work() const { return rung_.load(std::memory_order_seq_cst) != nullptr; }
  size_t qp_count() const { return qps_.size(); }
  const LoopCounters& counters() const { return counters_; }
  io::Port& port() { return port_; }
  const LoopConfig& config() const { return config_; }
  // Where datagrams to QP1 go from here on; without it they are dropped.
  void route_management(std::unique_ptr<io::ManagementRouter> router) {
    management_ = std::move(router);
  }
  // Every QP of this loop, for shutting down and for tools.
  template <typename F>
  void for_each_qp(F&& f) const {
    qps_.for_each(f);
  }

 private:
  using TurnList = IntrusiveList<LoopQp, &LoopQp::turn_link>;

  struct ReceiveFlow {
    Endpoint source;
    Endpoint destination;
    wire::IcrcFlow icrc;
    wire::IdentificationGuard identifications;
    bool known = false;
  };

  size_t receive(Time now);
  void on_burst(Time now, const io::RxBurst& burst);
  void on_management(Time now, const wire::PacketView& packet, const proto::PacketContext& context);
  void answer_management(Time now);
  void on_multicast(Time now, const wire::PacketView& packet, proto::PacketContext context);
  void send_management(const io::ManagementRouter::Answer& answer);
  // Gives a packet to its QP, and returns that; nullptr if there is none. `before`: whose the
  // packet before was; that one has been settled if it is another.
  LoopQp* deliver(Time now, const wire::ParseResult& packet, const proto::PacketContext& context,
                  LoopQp* before);
  ReceiveFlow& receive_flow(const io::RxBurst& burst);
  void run_timers(Time now);
  // QPs that were quiet give back what they do not need: once a second while packets move, with a
  // step that is taken anyway, and a second after they did.
  void tidy(Time now);
  void take_rung(Time now);
  // After any call into a QP: feedback to its path, timer, its place among the senders.
  void settle(Time now, LoopQp& qp);
  void activate(LoopQp& qp);
  // Whether a far QP has something to send, for who shares its line.
  static void note_demand(LoopQp& qp, bool demands);
  bool transmit(Time now, StepKind kind);
  // Whose turn it is: the first class that has anybody, but a class that was passed over for long
  // gets its share nevertheless. nullptr: nobody's.
  LoopQp* next_turn();
  void count_turn(model::TrafficClass traffic, uint32_t packets);
  // Lets one QP write; gives how many packets.
  uint32_t transmit_qp(Time now, LoopQp& qp, bool defer_acks);
  // Whether the port has the source, and it can send to the destination.
  Result<void> check_source(const model::AddressVector& av) const;
  // Sends what the QP owes in acknowledgements, before it goes.
  void pay_acks(Time now, LoopQp& qp);
  // Where its next packets go; nullptr: nowhere yet.
  Path* flow_of(LoopQp& qp);
  // What it may write now; `paced` if the pacer is what limits it.
  // `far`: the flight is that of the far transport.
  proto::TransmitContext offer(Time now, const LoopQp& qp, Path& path, bool far, bool& paced);
  static void charge(Time now, const LoopQp& qp, Path& path, bool far,
                     const proto::TransmitContext& context, const proto::TransmitResult& result);
  // What acknowledgements told goes to the path's controllers.
  static void credit(Time now, Path& path, const proto::Feedback& feedback);
  void end_turn(LoopQp& qp, TurnList* next_list);
  static void forget_woken(const LoopQp& qp);
  void transmit_acks(Time now, StepKind kind);
  // Sends what has gathered; false if the port has no room, then the burst stays.
  bool flush_burst(Time now);
  void begin_burst();
  static bool goes_sideways(Path& path);
  // The burst is for `path` and a slot of the peer from here on; false if what was in it cannot
  // leave yet.
  bool begin_flow(Time now, Path& path, uint8_t slot);
  Path& path_for(const model::AddressVector& av, bool far);
  std::shared_ptr<FarLine> line_for(const Endpoint& destination, bool background);
  void leave_path(LoopQp& qp);
  // The peer has a new address.
  void follow(LoopQp& qp);
  void send_aside(LoopQp& qp);
  void wake_waiting(Path& path);
  void wake(Path::Waiting& waiting, uint64_t room);
  void release_paced(Time now);
  std::unique_ptr<cc::Controller> new_controller() const;
  // Takes what the path has learned, for the next connection to that address.
  void remember(const Path& path);

  io::Port& port_;
  model::MemoryTable& memory_;
  Entropy& entropy_;
  LoopConfig config_;
  QpTable<LoopQp> qps_;
  TimerHeap timers_;
  struct Turns {
    TurnList fresh;  // QPs that just began to send: before those that keep sending
    TurnList steady;
    uint32_t passed_over = 0;  // packets of higher classes while somebody was here
    bool empty() const { return fresh.empty() && steady.empty(); }
    LoopQp* pop() {
      LoopQp* qp = fresh.pop_front();
      return qp != nullptr ? qp : steady.pop_front();
    }
  };
  Turns& turns_of(const LoopQp& qp) { return turns_[static_cast<size_t>(qp.traffic)]; }
  std::array<Turns, model::kTrafficClasses> turns_;
  IntrusiveList<LoopQp, &LoopQp::ack_link> owing_;  // oldest debt first
  IntrusiveList<Path, &Path::paced_link> paced_;    // paths whose pacer holds QPs back
  std::unique_ptr<io::ManagementRouter> management_;
  std::atomic<LoopQp*> rung_{nullptr};
  struct AddressHash {
    size_t operator()(const IpAddress& address) const { return address.hash(); }
  };
  struct PathKey {
    io::TxFlow flow;
    model::TrafficClass traffic;
    bool operator==(const PathKey&) const = default;
  };
  struct PathHash {
    size_t operator()(const PathKey& key) const {
      const io::TxFlow& flow = key.flow;
      return flow.destination.address.hash() ^ (flow.destination.port * 0x9E3779B1u) ^
             (static_cast<size_t>(flow.traffic_class) << 8) ^ flow.hop_limit ^
             (static_cast<size_t>(flow.source) << 24) ^ (static_cast<size_t>(key.traffic) << 16);
    }
  };
  std::unordered_map<PathKey, std::unique_ptr<Path>, PathHash> paths_;
  // By peer, and whether it is the background class's.
  std::map<std::pair<Endpoint, bool>, std::weak_ptr<FarLine>> lines_;
  std::unordered_map<IpAddress, cc::RememberedPath, AddressHash> remembered_;
  std::vector<std::pair<IpAddress, LoopQp*>> members_;  // of multicast groups
  std::vector<std::byte> burst_storage_;
  wire::TxBurst burst_;
  Path* burst_path_ = nullptr;
  bool burst_sideways_ = false;  // its packets say that they come from a side port
  uint8_t burst_slot_ = 0;       // of the QPNs in it: the peer's kernel steers a burst as a whole
  uint32_t bursts_left_ = 0;     // of this step's budget
  bool drained_ = false;
  bool streaming_ = false;
  bool port_blocked_ = false;  // burst_ waits for room in the port
  Time port_retry_ = Time::never();
  Time tidy_due_ = Time::never();
  Time quiet_at_ = Time::never();  // nothing has moved for kQuiet then

  // Not on the stack: to initialize them costs a poll that finds nothing a quarter of its time.
  std::array<io::RxBurst, 32> received_;
  std::array<ReceiveFlow, 64> receive_flows_;
  LoopCounters counters_;
};

}  // namespace farverbs::engine
