// FarMachine: one end of a far connection (docs/far-transport.md): what arrives goes to the
// requester's or the responder's half, what both have to send goes out under one sequence of packet
// numbers, and this keeps the timers. RcMachine owns it, and moves the QP between states.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "farverbs/base/ring.h"
#include "farverbs/proto/far_arrivals.h"
#include "farverbs/proto/far_move.h"
#include "farverbs/proto/far_out.h"
#include "farverbs/proto/far_protector.h"
#include "farverbs/proto/far_requester.h"
#include "farverbs/proto/far_responder.h"
#include "farverbs/proto/far_restorer.h"
#include "farverbs/proto/far_sent.h"

namespace farverbs::proto {

class FarMachine {
 public:
  FarMachine(model::Qp& qp, const TransportConfig& config)
      : qp_(qp), config_(config), requester_(qp, config), responder_(qp, config) {}

  void start_responder();  // RTR
  void start_sending();    // RTS: from here on it may send numbered packets ...
  void start_requester();  // ... and requests
  void reset();            // RESET
  bool sending() const { return sending_; }

  void on_packet(Time now, const wire::PacketView& packet, const PacketContext& context);
  // Takes packets from the front of a burst that go on with a message; gives how many.
  size_t on_run(Time now, const ReceivedRun& run);
  void on_timer(Time now);
  Time next_timer() const;
  // Everything but acknowledgements; then one of those, if it is owed.
  TransmitStatus transmit(Turn& turn);
  TransmitStatus acknowledge(Turn& turn);
  // Path challenges and responses: see QueuePair::write_aside().
  std::optional<Endpoint> write_aside(wire::TxBurst& burst);

  bool ready() const;
  // `packet` is one that a peer of this connection could have sent.
  bool proves(const wire::PacketView& packet, const PacketContext& context) const;
  bool must_send() const { return forced_ > 0 && sending_; }
  bool ack_pending() const { return arrivals_.owed_now(); }
  bool take_feedback(Feedback& told);

  bool failed() const { return requester_.failed() || responder_.failed(); }
  bool refusing() const { return responder_.failed(); }
  model::AsyncEventType failure_event() const { return responder_.failure_event(); }
  bool drained() const { return requester_.drained(); }
  // In ERR a refused peer is answered for as long as it asks.
  void on_packet_in_error(const wire::PacketView& packet, const PacketContext& context);
  void stop();                  // ERR: what is in flight leaves it
  void flush();                 // receives
  size_t memory_bytes() const;  // of heap
  bool trim(Time now);          // see QueuePair::trim()

 private:
  struct Resend {
    uint32_t message;
    uint32_t offset;
    uint32_t length;
  };

  bool on_numbered(Time now, const wire::PacketView& packet, const PacketContext& context);
  void on_acknowledge(Time now, const wire::PacketView& packet, const PacketContext& context);
  void on_acked(const FarPacket& packet);
  void on_lost(const FarPacket& packet);
  void on_probe_timeout(Time now);
  // Where a packet came from that goes `ahead` numbers beyond all before.
  void note_source(Time now, const PacketContext& context, uint64_t ahead, size_t bytes);
  bool on_path_packet(Time now, const wire::PacketView& packet, const PacketContext& context);
  void settle_move(Time now);
  void move(Time now, const Endpoint& to);
  Endpoint home() const;
  FarMove& moves();
  FarOut out(Turn& turn);
  TransmitStatus send_probe(FarOut& out, FarContent content, size_t bytes);
  TransmitStatus send_responses(FarOut& out);
  void send_response_run(FarOut& out, FarResponder::Response& response);
  TransmitStatus send_response(FarOut& out, FarResponder::Response& response, uint32_t offset,
                               uint32_t& length);
  static bool may_join(Turn& turn, size_t size);
  // Forward error correction (far_repair.cc).
  bool protects() const;
  void note_restored(const wire::FarAck& ack, uint32_t acked);
  void keep(PacketNumber number, const wire::PacketView& packet);
  bool on_repair(PacketNumber number, const wire::PacketView& packet);
  void restore(Time now, const PacketContext& context);
  TransmitStatus send_repairs(FarOut& out);
  Duration probe_timeout() const;
  Duration give_up_after() const;
  Time probe_deadline() const;
  Time keepalive_deadline() const;
  void arrived(Time now);

  model::Qp& qp_;
  const TransportConfig& config_;
  FarArrivals arrivals_;
  FarSent sent_;
  FarRequester requester_;
  FarResponder responder_;
  Ring<Resend> response_resends_;
  std::unique_ptr<FarProtector> protector_;  // once something was lost that asks for it
  std::unique_ptr<FarRestorer> restorer_;    // once the peer protects something
  std::unique_ptr<FarMove> move_;            // once an address has changed or been asked for
  Feedback feedback_;
  bool sending_ = false;
  bool probe_wanted_ = false;    // an empty packet that asks for an acknowledgement
  bool gave_up_ = false;         // responses wait until the peer is heard again
  bool requests_first_ = false;  // this time, before responses
  uint32_t forced_ = 0;
  uint32_t timeouts_ = 0;  // probe timeouts in a row
  uint32_t marks_told_ = 0;
  uint8_t restored_ = 0;       // low 6 bits count
  uint8_t restored_told_ = 0;  // the peer's
  bool peer_restores_ = false;
  bool restoring_ = false;
  wire::FarStatus told_status_ = wire::FarStatus::ok;
  Time timed_out_;     // the last probe timeout
  Time heard_;         // the peer last acknowledged something, or the flight began
  Time last_arrival_;  // anything
  Time last_said_;     // acknowledgement
  Time last_use_;      // anything but keepalives, either way
};

}  // namespace farverbs::proto
