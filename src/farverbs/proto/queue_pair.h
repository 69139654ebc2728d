// QueuePair: the transport of one QP, sans-IO. Packets and time go in, packets and deadlines come
// out; it touches no OS, no clock and no source of chance. The engine's loop drives it, under the
// loop's lock:
//
//   on_packet()      a parsed packet for this QP                       (RC, UC, UD machines behind
//   it) on_work()        the application posted something on_timer()       the deadline that
//   next_timer() named has come poll_transmit()  writes packets into a burst until it has no more
//   to say, the burst has no room
//                    for its next packet, or an allowance is used up
//   next_timer()     the next deadline; changes only inside the calls above and modify()
//   take_feedback()  what acknowledgements told since the last call, for congestion control; again
//                    until it has nothing more to say
//
// After any call the loop asks wants_transmit(), ack_pending(), next_timer() and take_feedback().
// Completions and asynchronous events go straight to the queues of model::Qp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "farverbs/base/result.h"
#include "farverbs/base/time.h"
#include "farverbs/model/qp.h"
#include "farverbs/model/qp_state.h"
#include "farverbs/wire/icrc.h"
#include "farverbs/wire/roce.h"
#include "farverbs/wire/tx_burst.h"

namespace farverbs::proto {

// The longest message that there is.
inline constexpr uint32_t kMostMessageBytes = uint32_t{1} << 31;

// What a packet's surroundings say: its source (for UD completions and address checks).
struct PacketContext {
  Endpoint source;
  Endpoint destination;
  uint8_t traffic_class = 0;
  // Set: the packet's ICRC has not been checked yet, and this is its flow. The machine then checks
  // it in one pass with placing the payload where the place is known from its own state, and before
  // everything else otherwise. nullptr: the ICRC holds.
  const wire::IcrcFlow* unchecked = nullptr;
  uint16_t expected_ip_id = 0;  // see wire::verify
  // What the flow's identifications are known to be; may be nullptr.
  wire::IdentificationGuard* identifications = nullptr;
};

// What is left of a received burst: datagrams of `segment_size` bytes end to end, the last may be
// shorter. All are of the flow of `context`, whose expected_ip_id is the first one's.
struct ReceivedRun {
  std::span<const std::byte> bytes;
  size_t segment_size = 0;
  const PacketContext& context;
};

// What a path was like when a packet left, so that its acknowledgement tells the rate of delivery
// since (draft-cheng-iccrg-delivery-rate-estimation). The far transport keeps one with its packets.
struct FlightMark {
  uint64_t delivered_bytes = 0;
  Time delivered_time;  // when that count was reached
  Time first_sent;      // when the packet left that was acknowledged last then
  uint64_t inflight_bytes = 0;
  bool application_limited = false;
};

struct TransmitContext {
  Time now;
  wire::TxBurst* burst = nullptr;
  // ICRC start states of the flow the burst goes to. UD: the engine asks next_flow() first.
  wire::IcrcFlow* icrc = nullptr;
  // Bytes of requests (UDP payload) that may be put in flight now, and bytes of READ responses that
  // may be asked for now. A packet may exceed what is left of a non-zero allowance: a
  // window or a pacer's credit can be smaller than the path MTU.
  uint64_t request_allowance = 0;
  uint64_t read_allowance = 0;
  // The path's count of delivered bytes, kept with probes so that feedback can tell delivery rates.
  uint64_t delivered_bytes = 0;
  // The same for the read flight: bytes of READ responses that arrived.
  uint64_t read_delivered_bytes = 0;
  // Packets this QP may write in this turn (the scheduler's quantum).
  uint32_t max_packets = 0;
  // Do not write a bare acknowledgement unless a request or a response was written in this call:
  // the application may be about to send something that it can ride behind.
  bool defer_acks = false;
  // The far transport's: the path as it is now, the longest UDP payload it is known to carry, and a
  // longer one to be tried (0: none). It takes all allowance from request_allowance; `paced`: it
  // is the pacer that limits that, so there is no need to ask for an acknowledgement at its end.
  FlightMark mark;
  uint32_t datagram_bytes = 0;
  uint32_t probe_bytes = 0;
  bool paced = false;
  // An acknowledgement may share the datagram of what it follows.
  bool join_acks = false;
  // The burst may leave from a port that nobody is to answer to.
  bool side_port = false;
};

enum class TransmitStatus : uint8_t {
  kIdle,       // nothing more to say for now
  kBurstFull,  // send the burst and call again
  kWindow,     // an allowance is used up; call again when the path has room
  kQuantum,    // max_packets written; call again in its next turn
};

struct TransmitResult {
  TransmitStatus status = TransmitStatus::kIdle;
  uint32_t packets = 0;
  // Put in flight: charged to the request allowance. UC and UD obey the allowance but are never
  // acknowledged: 0.
  uint64_t request_bytes = 0;
  uint64_t read_bytes = 0;  // asked for: charged to the read allowance
  bool probed = false;      // a packet of probe_bytes was written; it is not in request_bytes
};

// Since the last take_feedback().
struct Feedback {
  uint64_t acked_bytes = 0;  // requests acknowledged: leave the flight
  uint64_t lost_bytes = 0;   // requests taken back to be sent again, or given up: leave the flight
  // Left the flight, and nothing is known about the path: the peer is elsewhere by now.
  uint64_t withdrawn_bytes = 0;
  uint64_t read_bytes_arrived = 0;  // of READ responses: leave the read flight
  uint64_t read_bytes_lost = 0;     // asked for and given up: leave the read flight
  bool has_rtt = false;
  Duration rtt;                  // of the newest acknowledged probe
  Time probe_sent;               // when that probe left ...
  uint64_t probe_delivered = 0;  // ... and the path's delivered count then
  // Likewise for a READ request: the round trip to its first response, told with its last one, so
  // that the delivered count since then includes all of them.
  bool has_read_rtt = false;
  Duration read_rtt;
  Time read_probe_sent;
  uint64_t read_probe_delivered = 0;
  bool timed_out = false;
  // The far transport's: bytes acknowledged that had been told lost, packets that arrived with ECN
  // CE, and the mark of the newest packet acknowledged, with its time.
  uint64_t spurious_bytes = 0;
  uint32_t congestion_marks = 0;
  uint32_t restored_packets = 0;  // were lost on the path all the same
  bool has_mark = false;
  FlightMark mark;
  Time mark_sent;
  // Path MTU: the probe arrived, was lost, and: packets of this size seem to pass no more.
  uint32_t probe_arrived_bytes = 0;
  bool probe_lost = false;
  bool black_hole = false;
  // The peer has a new address, which the QP's address vector has by now, or the QP has changed
  // over to the far transport: it has another path. What else this says is about the old one.
  bool moved = false;
  bool aside = false;  // write_aside() has something
  // All of this is about the far transport's flight.
  bool far = false;
  bool any() const {
    return acked_bytes != 0 || lost_bytes != 0 || read_bytes_arrived != 0 || read_bytes_lost != 0 ||
           has_rtt || has_read_rtt || timed_out || spurious_bytes != 0 || congestion_marks != 0 ||
           probe_arrived_bytes != 0 || probe_lost || black_hole || withdrawn_bytes != 0 || moved ||
           aside;
  }
};

// Whether RC QPs whose connection set-up says nothing offer the far transport to their peers
// (docs/far-transport.md section 10, way 2).
enum class FarUse : uint8_t { kOff, kNegotiate };

// Which far QPs send redundancy while packets get lost (docs/far-transport.md section 8), to peers
// that can use it. kOff: nor does this end.
enum class FarRepairs : uint8_t { kOff, kRealtime, kAll };

struct TransportConfig {
  // A requester's most unacknowledged packets, whatever the congestion window says.
  uint32_t max_window_packets = 16'384;
  // Longest wire READ request; a longer READ goes out as several, so that its responses obey the
  // read window and a lost one costs little. A multiple of 4096.
  uint32_t read_chunk_bytes = 256 * 1024;
  // A responder acknowledges at the latest after this many unacknowledged packets ...
  uint32_t ack_every_packets = 128;
  // ... and asks for an acknowledgement (AckReq) at least this often inside a message.
  uint32_t ack_request_every_packets = 64;
  bool end_to_end_credits = true;

  // What a far responder keeps for a peer whose packets come out of order: copies of packets that
  // must wait for earlier ones and what it remembers of messages (bytes), and how far ahead of the
  // next message to be carried out a message may be. Packets beyond are dropped.
  uint32_t far_hold_bytes = 16 * 1024 * 1024;
  uint32_t far_messages_ahead = 65'536;
  FarUse far_use = FarUse::kOff;
  FarRepairs far_repairs = FarRepairs::kRealtime;
  // The far transport (docs/far-transport.md). A connection ends after so long without any answer,
  // or as the QP's timeout and retry count say if that is longer. Where the round trip is below a
  // millisecond it is what they say, and a second at least.
  Duration far_give_up = Duration::seconds(45);
  // Random, the loop's: what peers must not foretell is drawn from it.
  uint64_t secret = 0;
};

// A QP without packets for so long is idle.
inline constexpr Duration kQuiet = Duration::seconds(1);

class RcMachine;
class UcMachine;
class UdMachine;

class QueuePair {
 public:
  QueuePair(const model::QpInit& init, Qpn qpn, model::MemoryTable& memory,
            model::AsyncEventSink* events, const TransportConfig& config);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  model::Qp& qp() { return qp_; }
  const model::Qp& qp() const { return qp_; }

  // ibv_modify_qp(3). A refused request changes nothing. To ERR: flushes in order; to RESET: purges
  // this QP's completions and forgets everything; RTS: what was posted before goes out.
  Result<void> modify(Time now, const model::QpAttributes& attributes, uint32_t mask,
                      const model::QpLimits& limits);

  // RC, in INIT: the peer speaks the far transport, and this connection will. EINVAL otherwise.
  Result<void> use_far();
  // RC, in INIT: this connection is standard RC, whatever TransportConfig::far_use says.
  Result<void> use_standard();
  // What carries this QP's requests is the far transport.
  bool far() const;
  // What the next poll_transmit() would put in flight is the far transport's: its allowance is of
  // that flight. A QP that is about to change over has something in both now and then.
  bool sends_far() const;
  // The next poll_transmit() may write packets that are not the far transport's: their ICRC binds
  // them to the port's own address, as a side port's datagrams are not.
  bool may_write_standard() const;

  // Thread safe, without the loop's lock: checks the state (EINVAL before INIT / RTS as the manual
  // says; in ERR and SQE the request is accepted and flushed) and queues. The caller then sees to
  // it that the loop calls on_work().
  Result<void> post_send(const model::SendWorkRequest& request);
  Result<void> post_receive(const model::ReceiveWorkRequest& request);

  void on_packet(Time now, const wire::PacketView& packet, const PacketContext& context);
  // Takes packets from the front of the run that go on with the message this QP is in the midst of,
  // in one go, and returns how many. 0 is always a right answer: then on_packet() takes the first.
  size_t on_run(Time now, const ReceivedRun& run);
  void on_work(Time now);
  void on_timer(Time now);
  TransmitResult poll_transmit(const TransmitContext& context);
  // A packet beside the QP's flow, about the path itself: writes it into the empty `burst`, and
  // gives where it goes. No allowance is asked. nullopt: no more.
  std::optional<Endpoint> write_aside(wire::TxBurst& burst);

  // Something other than a bare acknowledgement is ready to be sent, allowances permitting.
  bool wants_transmit() const;
  // So is something that needs no allowance: a response or a NAK.
  bool wants_respond() const;
  // Only an acknowledgement that may wait a little is owed.
  bool ack_pending() const;
  Time next_timer() const;
  // False: there is nothing (more) to tell.
  bool take_feedback(Feedback& told);

  // UD: the address vector of the next datagram (nullptr: none ready). RC, UC: the QP's own.
  const model::AddressVector* next_flow() const;
  // Puts the QP in the error state because of something local (an overflowed CQ of another QP, the
  // device going away): flushes, raises QP_FATAL.
  void fail(Time now);

  // Gives back memory that only a busy connection needs, if there was no packet for kQuiet. True:
  // there may be something to give back later.
  bool trim(Time now);

  // Heap and object bytes, and of those the rings sized by the user.
  struct Footprint {
    size_t total_bytes;
    size_t ring_bytes;
  };
  Footprint footprint() const;

 private:
  template <typename F>
  auto with_machine(F&& f);
  template <typename F>
  auto with_machine(F&& f) const;
  void forget();

  model::Qp qp_;
  TransportConfig config_;
  // Exactly one is set, by type.
  std::unique_ptr<RcMachine> rc_;
  std::unique_ptr<UcMachine> uc_;
  std::unique_ptr<UdMachine> ud_;
};

}  // namespace farverbs::proto
