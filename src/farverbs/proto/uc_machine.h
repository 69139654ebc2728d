// UcMachine: the unreliable connection (IBTA vol. 1 chapter 9.8.3). Requests are sent once and are
// complete when they are sent; whoever receives drops the rest of a message after a gap and takes
// the next FIRST or ONLY packet, whatever its PSN. Nothing is acknowledged and nothing refused
// aloud.
#pragma once

#include "farverbs/proto/inbound.h"
#include "farverbs/proto/outbox.h"

namespace farverbs::proto {

class UcMachine {
 public:
  UcMachine(model::Qp& qp, const TransportConfig&) : qp_(qp), inbound_(qp), outbox_(qp) {}

  void on_state(Time now, model::QpState from, model::QpState to);
  void on_packet(Time now, const wire::PacketView& packet, const PacketContext& context);
  void on_work(Time now);
  void on_timer(Time) {}
  TransmitResult poll_transmit(const TransmitContext& context);
  bool wants_transmit() const { return outbox_.ready(); }
  bool ack_pending() const { return false; }
  Time next_timer() const { return Time::never(); }
  void fail(Time now);
  size_t memory_bytes() const { return inbound_.memory_bytes(); }

 private:
  Verdict receive(Arrival& arrival);
  void enter_error();
  void flush();

  model::Qp& qp_;
  Inbound inbound_;
  Outbox outbox_;
  SgeWalker source_;
  PacketNumber expected_ = 0;
  PacketNumber next_ = 0;
  bool established_ = false;
};

}  // namespace farverbs::proto
