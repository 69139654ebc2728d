// UdMachine: unreliable datagrams (IBTA vol. 1 chapters 9.8.4 and 10.2.3): one packet per message,
// an address with every request, a Q_Key to keep strangers out, and the IP header in the first 40
// bytes of every receive.
#pragma once

#include "farverbs/proto/outbox.h"
#include "farverbs/proto/placing.h"
#include "farverbs/proto/sge_walker.h"

namespace farverbs::proto {

class UdMachine {
 public:
  UdMachine(model::Qp& qp, const TransportConfig&) : qp_(qp), outbox_(qp) {}

  void on_state(Time now, model::QpState from, model::QpState to);
  void on_packet(Time now, const wire::PacketView& packet, const PacketContext& context);
  void on_work(Time now);
  void on_timer(Time) {}
  // Appends datagrams as long as they go to one address.
  TransmitResult poll_transmit(const TransmitContext& context);
  bool wants_transmit() const { return outbox_.ready(); }
  bool ack_pending() const { return false; }
  Time next_timer() const { return Time::never(); }
  const model::AddressVector* next_flow() const;
  void fail(Time now);
  size_t memory_bytes() const;

 private:
  bool build(Turn& turn, const model::SendWqe& wqe, size_t size);
  void receive(const wire::PacketView& packet, const PacketContext& context);
  void enter_error();
  void flush();

  model::Qp& qp_;
  Outbox outbox_;
  model::ReceiveWqe receive_;
  bool has_receive_ = false;  // one that a datagram was too long for waits for the next
  Psn psn_;
};

}  // namespace farverbs::proto
