// RcResponder: the half of an RC QP that carries out requests and answers them (IBTA vol. 1 chapter
// 9.7.4). A packet goes through the steps of kSteps; the verdict decides the answer:
//
//   number == expected_   carried out; an acknowledgement is owed (one for many)
//   number <  expected_   a duplicate: acknowledged again, a READ replayed, an atomic's result
//   retold number >  expected_   a gap: one NAK, then silence until the expected packet comes
//
// READs and atomics live in a ring of max_dest_rd_atomic, so that they can be answered again.
// Answers leave in packet order: READ and atomic responses by their numbers, then a NAK, then an
// ACK.
#pragma once

#include <cstdint>
#include <memory>

#include "farverbs/proto/inbound.h"
#include "farverbs/proto/turn.h"
#include "farverbs/wire/syndrome.h"

namespace farverbs::proto {

class RcResponder {
 public:
  RcResponder(model::Qp& qp, const TransportConfig& config)
      : qp_(qp), config_(config), inbound_(qp) {}

  void start();  // the QP becomes RTR: numbers begin at rq_psn
  void reset();  // the QP becomes RESET

  void on_request(Time now, const wire::PacketView& packet, const PacketContext& context);
  // See QueuePair::on_run(): MIDDLE packets of the SEND or WRITE that is arriving.
  size_t on_run(const ReceivedRun& run);

  // READ and atomic responses, then a NAK. kIdle: all are written.
  TransmitStatus respond(Turn& turn);
  // An acknowledgement, if one is owed.
  TransmitStatus acknowledge(Turn& turn);
  bool ready() const { return pending_ > 0 || nak_pending_ || ack_now_; }
  // An acknowledgement of nothing new: its headers are what the peer is to see.
  void say_hello() { ack_owed_ = ack_now_ = true; }
  // No request is in progress, and no receive in hand.
  bool idle() const { return inbound_.idle() && !inbound_.has_receive(); }
  // The packet is the next one, or one of the newest half of the number space before it.
  bool expects(Psn psn) const { return psn.extend(expected_) <= expected_; }
  bool ack_pending() const { return ack_owed_ && !ack_now_; }

  // A request was refused for good or a CQ overflowed: the QP must go to the error state. What is
  // still to be said (responses and the NAK) is said from there.
  bool failed() const { return failed_; }
  // What the failure means for the application, kDeviceFatal: nothing beyond the completion.
  model::AsyncEventType failure_event() const { return failure_event_; }
  // The QP is in the error state: flushes the receives.
  void flush();
  size_t memory_bytes() const;

 private:
  // A READ or atomic that was accepted.
  struct Resource {
    PacketNumber first;
    uint32_t packets;  // PSNs it takes
    uint32_t length;   // READ: bytes
    uint64_t address;
    uint64_t original;  // atomics: the value before
    MemoryKey key;
    wire::OpKind kind;
    bool pending;        // [next, end) is still to be sent
    bool answered;       // was answered in full once
    PacketNumber begin;  // of the answer asked for last
    PacketNumber next;
    PacketNumber end;
  };

  using Step = Verdict (RcResponder::*)(Arrival&);
  Verdict check_psn(Arrival& arrival);
  Verdict check_opcode_sequence(Arrival& arrival);
  Verdict check_operation(Arrival& arrival);
  Verdict check_resources(Arrival& arrival);
  Verdict check_length(Arrival& arrival);
  Verdict check_rkey(Arrival& arrival);
  Verdict execute(Arrival& arrival);
  Verdict execute_atomic(Arrival& arrival);
  static const Step kSteps[7];

  void conclude(Arrival& arrival, Verdict verdict);
  void accept(const Arrival& arrival);
  void owe_acknowledgement(size_t packets, bool asked);
  void on_duplicate(const Arrival& arrival);
  void replay_read(Resource& resource, const Arrival& arrival);
  void on_gap();
  void on_not_ready(const Arrival& arrival);
  void refuse(PacketNumber number, wire::NakCode code, model::AsyncEventType event);
  void answer(Resource& resource, PacketNumber begin, PacketNumber end);

  bool is_read_or_atomic(const Arrival& arrival) const {
    return arrival.kind() == wire::OpKind::read_request || is_atomic(arrival.kind());
  }
  static bool is_atomic(wire::OpKind kind) {
    return kind == wire::OpKind::compare_swap || kind == wire::OpKind::fetch_add;
  }
  Resource& add_resource();
  Resource* find_resource(PacketNumber number);
  Resource* first_pending();
  Resource& resource(size_t i) { return resources_[(resource_head_ + i) % resource_size_]; }
  uint8_t resource_limit() const;

  TransmitStatus send_read_responses(Turn& turn, Resource& resource);
  bool write_response(Turn& turn, wire::Opcode opcode, PacketNumber number,
                      std::span<const std::byte> payload, bool with_aeth) const;
  void refuse_read(const Resource& read, wire::NakCode code, model::AsyncEventType event);
  TransmitStatus send_atomic_response(Turn& turn, Resource& resource);
  TransmitStatus send_nak(Turn& turn);
  void answered(Resource& resource);
  wire::Aeth aeth() const;
  void wrote_acknowledgement(PacketNumber number);
  uint32_t mtu() const { return model::bytes_of(qp_.attributes.path_mtu); }

  model::Qp& qp_;
  const TransportConfig& config_;
  Inbound inbound_;
  PacketNumber expected_ = 0;
  PacketNumber nak_number_ = 0;
  uint32_t msn_ = 0;
  uint32_t unacknowledged_ = 0;  // packets since the last acknowledgement
  wire::Syndrome nak_{0};
  bool nak_pending_ = false;
  bool silent_ = false;  // after a NAK or RNR NAK, until the expected packet comes
  bool ack_owed_ = false;
  bool ack_now_ = false;  // ... and should not wait for company
  bool failed_ = false;
  model::AsyncEventType failure_event_ = model::AsyncEventType::kDeviceFatal;

  std::unique_ptr<Resource[]> resources_;
  uint8_t resource_head_ = 0;  // oldest
  uint8_t resource_count_ = 0;
  uint8_t resource_size_ = 0;
  uint8_t pending_ = 0;
};

}  // namespace farverbs::proto
