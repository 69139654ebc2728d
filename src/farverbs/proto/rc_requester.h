// RcRequester: the half of an RC QP that sends requests and takes their acknowledgements (IBTA
// vol. 1 chapter 9.7.5). Go-back-N as every RC responder expects it: on a loss the send position
// goes back to the oldest unacknowledged packet, mid-message if need be.
//
// Packet numbers are the PSNs in 64 bits. A request takes its numbers when it is started, a READ as
// many as its response has packets, so every position in a message is arithmetic:
//
//     head request          send position        frontier
//   ----|=====.=====|=====|====.=====|............|---->
//        unacked_              cursor_    sent_end_ next_
//
//   [unacked_, cursor_)   in flight
//   [cursor_, sent_end_)  sent before a rewind; an old acknowledgement may still name them
//   [.., next_)           given to requests that were started
#pragma once

#include <cstdint>
#include <memory>

#include "farverbs/proto/request_packet.h"
#include "farverbs/proto/round_trips.h"
#include "farverbs/wire/syndrome.h"

namespace farverbs::proto {

class RcRequester {
 public:
  RcRequester(model::Qp& qp, const TransportConfig& config) : qp_(qp), config_(config) {}

  void start();  // the QP becomes RTS: numbers begin at sq_psn
  void reset();  // the QP becomes RESET

  // ACK, READ response, atomic response.
  void on_response(Time now, const wire::PacketView& packet, const PacketContext& context);
  // See QueuePair::on_run(): MIDDLE packets of the READ response that is arriving.
  size_t on_run(Time now, const ReceivedRun& run);
  void on_timer(Time now);
  Time next_timer() const { return std::min({retry_deadline_, rnr_deadline_, repair_deadline_}); }
  // Writes what may be written. kIdle if nothing is left that may.
  TransmitStatus transmit(Turn& turn);
  bool ready() const;
  bool take_feedback(Feedback& told);

  // A request failed or a CQ overflowed: the QP must go to the error state, and the rest be
  // flushed.
  bool failed() const { return failed_; }
  // The QP is in the error state: what is in flight leaves the flight as lost.
  void stop();
  // No further request is started, as soon as what was sent will be acknowledged.
  void hold() { held_ = true; }
  // An acknowledgement of this PSN is possible: of what was sent, or of nothing.
  bool may_answer(Psn psn) const {
    const PacketNumber number = psn.extend(unacked_);
    return number + 1 >= unacked_ && number < std::max(sent_end_, unacked_);
  }
  // Nothing that was started is unfinished (SQD's question).
  bool drained() const;
  size_t memory_bytes() const;

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};

  // A READ request or atomic that has been on the wire, oldest first in a ring of max_rd_atomic.
  // They stay over a rewind: what is asked for again must be part of one request that was seen
  // before, or the responder takes it for a mistake (IBTA vol. 1 section 9.7.4.1).
  struct Outstanding {
    PacketNumber begin;
    PacketNumber end;
    Time sent;
    uint64_t delivered;
    Duration rtt;  // of its first response, once that has come
    bool again;    // sent twice: its responses tell no time
  };

  // rc_requester.cc
  bool may_start(const model::SendWqe& wqe) const;
  bool has_credit(const model::SendWqe& wqe) const;
  bool start_request(model::SendWqe& wqe);
  void do_local(model::SendWqe& wqe);
  model::SendWqe* next_request();
  TransmitStatus send_packet(Turn& turn, model::SendWqe& wqe);
  bool send_run(Turn& turn, const model::SendWqe& wqe);
  TransmitStatus send_read(Turn& turn, model::SendWqe& wqe);
  TransmitStatus send_atomic(Turn& turn, model::SendWqe& wqe);
  bool wants_ack(const Turn& turn, const RequestPacket& packet) const;
  void sent(Turn& turn, uint64_t numbers, uint64_t bytes, uint32_t packets = 1);
  void remember(const Turn& turn, uint64_t packets);
  bool window_open() const { return cursor_ - unacked_ < config_.max_window_packets; }
  bool outstanding_full() const;
  Outstanding& outstanding(size_t i) {
    return outstanding_[(outstanding_head_ + i) % outstanding_size_];
  }
  uint32_t read_chunk_packets() const;

  // rc_acknowledge.cc
  void on_acknowledge(Time now, PacketNumber number, const wire::Aeth& aeth);
  void on_not_ready(Time now, PacketNumber number, uint8_t timer_code);
  void on_refusal(Time now, PacketNumber number, wire::NakCode code);
  void on_read_response(Time now, PacketNumber number, const wire::PacketView& packet,
                        const PacketContext& context);
  void on_atomic_response(Time now, PacketNumber number, const wire::PacketView& packet);
  SgeWalker& target_of_head();
  void measure_read(Time now, PacketNumber number);
  bool reach(Time now, PacketNumber number);
  bool acknowledge_until(Time now, PacketNumber end);
  void advance(Time now, const model::SendWqe& head, PacketNumber end);
  void complete_finished();
  void take_credits(const wire::Aeth& aeth);
  void on_loss(Time now);
  void rewind(Time now);
  void arm_repair(Time now);
  void take_back();
  void fail_head(model::CompletionStatus status);
  void fail_at_send_position(model::CompletionStatus status);
  void settle_local_error();

  uint32_t mtu() const { return model::bytes_of(qp_.attributes.path_mtu); }
  bool in_flight() const { return cursor_ != unacked_; }
  model::SendWqe& head() { return qp_.send_queue.at(qp_.send_queue.head()); }
  Duration retry_timeout() const;

  model::Qp& qp_;
  const TransportConfig& config_;

  PacketNumber unacked_ = 0;
  PacketNumber cursor_ = 0;
  PacketNumber sent_end_ = 0;
  PacketNumber next_ = 0;
  uint64_t send_index_ = 0;        // the request at the send position
  uint64_t error_index_ = kNone;   // a request that can't go on; told when it is the oldest
  uint32_t since_request_ = 0;     // packets since the last AckReq
  uint32_t started_messages_ = 0;  // SSN of the newest
  uint32_t credit_limit_ = 0;      // LSN
  uint32_t open_responses_ = 0;    // started READs and atomics that are not complete
  bool has_credit_limit_ = false;
  bool ack_next_ = false;  // after a rewind the first packet asks for an ACK
  bool failed_ = false;
  bool held_ = false;
  bool rewound_ = false;  // rewound_at_ holds
  model::CompletionStatus local_error_ = model::CompletionStatus::kSuccess;
  uint8_t retries_ = 0;
  uint8_t rnr_retries_ = 0;
  uint8_t repairs_ = 0;  // of the packet at unacked_, without an answer
  PacketNumber rewound_at_ = 0;
  Time rewound_time_;
  Time retry_deadline_ = Time::never();
  Time repair_deadline_ = Time::never();  // what was sent again should have been answered by then
  Time rnr_deadline_ = Time::never();

  std::unique_ptr<Outstanding[]> outstanding_;
  uint8_t outstanding_head_ = 0;
  uint8_t outstanding_count_ = 0;
  uint8_t outstanding_size_ = 0;
  uint8_t outstanding_sent_ = 0;  // of the ring, since the last rewind

  SgeWalker source_;  // of the request at the send position
  SgeWalker target_;  // of the oldest READ
  uint64_t source_index_ = kNone;
  uint64_t target_index_ = kNone;
  RoundTrips round_trips_;
  Feedback feedback_;
};

}  // namespace farverbs::proto
