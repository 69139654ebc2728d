// FarRequester: the half of a far QP that sends requests and completes them (docs/far-transport.md
// section 4). Which packets arrived is FarSent's matter; this knows messages: what of them is still
// to be sent, again or for the first time, and how many the responder has carried out.
#pragma once

#include <cstdint>
#include "farverbs/base/ring.h"
#include "farverbs/proto/byte_ranges.h"
#include "farverbs/proto/far_out.h"
#include "farverbs/proto/sge_walker.h"

namespace farverbs::proto {

// a before b, in 32 bits.
constexpr bool precedes(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }

class FarRequester {
 public:
  FarRequester(model::Qp& qp, const TransportConfig& config) : qp_(qp), config_(config) {}

  void start();  // messages begin with the oldest request of the send queue; none before that
  void reset();

  // There is something that may be sent, allowances permitting.
  bool ready() const;
  TransmitStatus transmit(FarOut& out);

  // READ_RESPONSE, ATOMIC_RESPONSE. False: damaged or impossible; it must not be acknowledged.
  bool on_response(const wire::PacketView& packet, const PacketContext& context);
  // What an acknowledgement says beyond packets.
  // `round_trip`: how soon an answer to what is sent now can come.
  void on_told(Time now, uint32_t executed, const wire::FarAck& ack, Duration round_trip);
  void on_lost(const FarPacket& packet);
  void on_timer(Time now);
  Time next_timer() const { return not_ready_until_; }

  // Something was started that is not complete.
  bool open() const { return qp_.send_queue.head() < next_index_; }
  bool drained() const { return !open(); }
  bool failed() const { return failed_; }
  void fail_oldest(model::CompletionStatus status);
  void stop();
  // A quiet time: gives back what nothing is kept in.
  void trim();
  size_t memory_bytes() const;

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};

  struct Resend {
    uint64_t index;
    uint32_t offset;
    uint32_t length;
    bool whole;  // a READ request, an atomic, an empty message
  };
  // A READ or atomic whose response is on its way, oldest first.
  struct OpenResponse {
    uint64_t index = 0;
    uint32_t message = 0;
    bool complete = false;
    uint32_t next = 0;  // where the packet after the newest would begin
    ByteRanges arrived;
    SgeWalker target;
  };

  bool may_start(const model::SendWqe& wqe) const;
  bool has_receive(const model::SendWqe& wqe) const;
  bool may_go_on() const;
  bool start_next();
  void do_local(model::SendWqe& wqe);
  TransmitStatus send_resends(FarOut& out);
  TransmitStatus send_new(FarOut& out);
  TransmitStatus send_piece(FarOut& out, uint64_t index, uint32_t offset, uint32_t& length,
                            bool again);
  uint32_t send_run(FarOut& out, uint64_t index, uint32_t offset);
  TransmitStatus send_whole(FarOut& out, uint64_t index);
  bool more_after(bool ends) const;
  bool may_start_next() const;
  uint64_t most_executed() const;
  void on_not_ready(Time now, const wire::FarAck& ack, Duration round_trip);
  OpenResponse* find_open(uint32_t message);
  bool place_read(OpenResponse& open, const wire::PacketView& packet, const PacketContext& context);
  bool place_atomic(OpenResponse& open, const wire::PacketView& packet);
  void complete_finished();
  void fail_at(uint64_t index, model::CompletionStatus status);
  void settle_error();
  uint64_t index_of(uint32_t low) const {
    const uint64_t head = qp_.send_queue.head();
    return head + static_cast<uint64_t>(static_cast<int64_t>(
                      static_cast<int32_t>(low - static_cast<uint32_t>(head))));
  }
  SgeWalker& source_for(uint64_t index);

  model::Qp& qp_;
  const TransportConfig& config_;

  uint64_t next_index_ = 0;    // first request that was not started
  uint64_t next_message_ = 0;  // its number, if it takes one
  uint64_t executed_ = 0;      // messages that the responder has carried out
  uint32_t next_receive_ = 0;  // sequence of the next message that takes a receive
  uint32_t receive_limit_ = 0;
  bool has_receive_limit_ = false;
  // The request being sent for the first time.
  uint64_t sending_index_ = kNone;
  uint32_t sending_offset_ = 0;

  Ring<Resend> resends_;
  Ring<Resend> held_resends_;  // until not_ready_until_
  Ring<OpenResponse> responses_;
  Time not_ready_until_ = Time::never();
  Time not_ready_again_;  // what is told before is about the time before the pause
  uint32_t not_ready_limit_ = 0;
  uint8_t not_ready_retries_ = 0;

  uint64_t error_index_ = kNone;
  model::CompletionStatus error_ = model::CompletionStatus::kSuccess;
  bool failed_ = false;
  bool started_ = false;

  SgeWalker source_;
  uint64_t source_index_ = kNone;
};

}  // namespace farverbs::proto
