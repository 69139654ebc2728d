#include "farverbs/proto/rc_requester.h"

#include <algorithm>
#include <utility>

#include "farverbs/proto/completions.h"
#include "farverbs/proto/packet_run.h"

namespace farverbs::proto {

using model::CompletionStatus;
using model::QpState;
using model::SendWqe;

namespace {

// PSNs compare over half of their space; READs never let more than this stand open.
constexpr uint64_t kMostOpenPackets = uint64_t{1} << 22;
// A READ that the read allowance would cut to less than a third of what is in flight waits for more
// room, within these bounds in packets. Responses that begin and end often make short bursts.
constexpr uint64_t kLeastReadPackets = 16;
constexpr uint64_t kMostReadPatience = 256;

}  // namespace

void RcRequester::start() {
  unacked_ = cursor_ = sent_end_ = next_ = first_packet_number(qp_.attributes.sq_psn);
  send_index_ = qp_.send_queue.head();
}

void RcRequester::reset() {
  take_back();
  round_trips_ = RoundTrips{};
  unacked_ = cursor_ = sent_end_ = next_ = 0;
  send_index_ = qp_.send_queue.head();
  since_request_ = started_messages_ = credit_limit_ = open_responses_ = 0;
  has_credit_limit_ = ack_next_ = failed_ = held_ = rewound_ = false;
  error_index_ = kNone;
  retries_ = rnr_retries_ = 0;
  retry_deadline_ = rnr_deadline_ = repair_deadline_ = Time::never();
  outstanding_.reset();
  outstanding_head_ = outstanding_count_ = outstanding_size_ = outstanding_sent_ = 0;
  source_index_ = target_index_ = kNone;
}

bool RcRequester::drained() const {
  const uint64_t head = qp_.send_queue.head();
  return head == qp_.send_queue.tail() || !qp_.send_queue.at(head).started;
}

size_t RcRequester::memory_bytes() const {
  return outstanding_size_ * sizeof(Outstanding) + round_trips_.memory_bytes();
}

bool RcRequester::take_feedback(Feedback& told) {
  if (!feedback_.any()) return false;
  told = std::exchange(feedback_, {});
  return true;
}

// --- What may be sent
// -----------------------------------------------------------------------------

bool RcRequester::outstanding_full() const {
  if (outstanding_sent_ < outstanding_count_) return false;  // one to be sent again
  const uint8_t most = std::max<uint8_t>(qp_.attributes.max_rd_atomic, 1);
  return outstanding_count_ >= most ||
         (outstanding_count_ > 0 && outstanding_count_ == outstanding_size_);
}

uint32_t RcRequester::read_chunk_packets() const {
  const uint64_t most = kMostOpenPackets / 128;  // max_rd_atomic of them at once
  return static_cast<uint32_t>(std::clamp<uint64_t>(config_.read_chunk_bytes / mtu(), 1, most));
}

// What a request must wait for before its first packet; bytes and packets of windows aside.
bool RcRequester::may_start(const SendWqe& wqe) const {
  if (qp_.state.load(std::memory_order_relaxed) != QpState::kRts) return false;
  if (held_ && since_request_ == 0) return false;
  if ((wqe.flags & model::kFence) != 0 && open_responses_ != 0) return false;
  // What came before may still have to be sent again from the memory it names.
  if (wqe.opcode == model::SendOpcode::kLocalInvalidate) return unacked_ == next_;
  // With nothing in flight a request goes out without credit: only its acknowledgement can tell
  // that there are receives again.
  return has_credit(wqe) || !in_flight();
}

bool RcRequester::has_credit(const SendWqe& wqe) const {
  if (!takes_receive(wqe.opcode) || !has_credit_limit_) return true;
  return Psn(credit_limit_) - Psn(started_messages_ + 1) >= 0;  // SSN <= LSN in 24 bits
}

bool RcRequester::ready() const {
  if (failed_ || !rnr_deadline_.is_never()) return false;
  const uint64_t tail = qp_.send_queue.tail();
  uint64_t index = std::max(send_index_, qp_.send_queue.head());
  // What was started is either sent to its end, or it is the next to be sent.
  for (; index < tail; ++index) {
    const SendWqe& wqe = qp_.send_queue.at(index);
    if (!wqe.started || cursor_ < wqe.first_packet + wqe.packet_count) break;
  }
  if (index >= tail || index == error_index_) return false;
  const SendWqe& wqe = qp_.send_queue.at(index);
  if (!wqe.started && !may_start(wqe)) return false;
  if (is_local(wqe.opcode)) return true;
  if (is_read(wqe.opcode)) return !outstanding_full();
  return window_open() && !(is_atomic(wqe.opcode) && outstanding_full());
}

// The request at the send position, started; local ones on the way are done at once. nullptr: there
// is none that may be sent.
SendWqe* RcRequester::next_request() {
  send_index_ = std::max(send_index_, qp_.send_queue.head());
  while (send_index_ < qp_.send_queue.tail()) {
    SendWqe& wqe = qp_.send_queue.at(send_index_);
    if (send_index_ == error_index_) return nullptr;
    if (!wqe.started) {
      if (!start_request(wqe)) return nullptr;
      if (failed_) return nullptr;
      send_index_ = std::max(send_index_, qp_.send_queue.head());
      continue;  // a local one is done, and perhaps gone
    }
    if (cursor_ < wqe.first_packet + wqe.packet_count) return &wqe;
    ++send_index_;
  }
  return nullptr;
}

bool RcRequester::start_request(SendWqe& wqe) {
  if (!may_start(wqe)) return false;
  wqe.started = true;
  wqe.first_packet = next_;
  wqe.packet_count = 0;
  if (is_local(wqe.opcode)) {
    do_local(wqe);
    return true;
  }
  wqe.packet_count = static_cast<uint32_t>(packets_for(wqe.length, mtu()));
  next_ += wqe.packet_count;
  ++started_messages_;
  if (!wants_response(wqe.opcode)) return true;
  ++open_responses_;
  if (qp_.attributes.max_rd_atomic == 0) {
    fail_at_send_position(CompletionStatus::kLocalQpOperationError);
    return true;
  }
  // The response must find writable memory: better told now than when it comes.
  SgeWalker walker;
  TargetPieces pieces;
  if (walker.find(wqe.sges(), 0, wqe.length, qp_.memory, qp_.pd, model::kLocalWrite, pieces) !=
      model::MemoryVerdict::kOk) {
    fail_at_send_position(CompletionStatus::kLocalProtectionError);
  }
  return true;
}

void RcRequester::do_local(SendWqe& wqe) {
  if (wqe.opcode == model::SendOpcode::kLocalInvalidate) {
    if (qp_.memory.invalidate(MemoryKey(wqe.immediate), qp_.pd, qp_.qpn) !=
        model::MemoryVerdict::kOk) {
      return fail_at_send_position(CompletionStatus::kLocalProtectionError);
    }
  } else {
    const uint32_t tag = wqe.immediate & 0xFF;
    const auto bound = qp_.memory.bind_window(wqe.window, qp_.pd, wqe.bind_region_lkey,
                                              wqe.remote_address, wqe.bind_length, wqe.bind_access,
                                              qp_.qpn, static_cast<uint8_t>(tag));
    if (!bound.ok()) return fail_at_send_position(CompletionStatus::kWindowBindError);
  }
  complete_finished();
}

// The request at the send position fails, but those before it may still succeed: it is told when it
// is the oldest.
void RcRequester::fail_at_send_position(CompletionStatus status) {
  error_index_ = send_index_;
  local_error_ = status;
  settle_local_error();
}

void RcRequester::settle_local_error() {
  if (!failed_ && qp_.send_queue.head() == error_index_) fail_head(local_error_);
}

// --- Sending
// --------------------------------------------------------------------------------------

TransmitStatus RcRequester::transmit(Turn& turn) {
  while (!failed_ && rnr_deadline_.is_never()) {
    SendWqe* wqe = next_request();
    if (wqe == nullptr) break;
    if (turn.quantum_used()) return TransmitStatus::kQuantum;
    if (source_index_ != send_index_) {
      source_.reset();
      source_index_ = send_index_;
    }
    const uint32_t before = turn.result.packets;
    const TransmitStatus status = is_read(wqe->opcode)     ? send_read(turn, *wqe)
                                  : is_atomic(wqe->opcode) ? send_atomic(turn, *wqe)
                                                           : send_packet(turn, *wqe);
    if (turn.result.packets == before) return status;
  }
  return TransmitStatus::kIdle;
}

// Whether the packet must ask for an acknowledgement: whenever nothing that follows at once would.
// Otherwise what was sent could wait for ever for an answer that nobody asked for.
bool RcRequester::wants_ack(const Turn& turn, const RequestPacket& packet) const {
  if (ack_next_ || since_request_ + 1 >= config_.ack_request_every_packets) return true;
  if (cursor_ + 1 - unacked_ >= config_.max_window_packets) return true;
  if (turn.request_left <= packet.size) return true;  // the path's window ends here
  // Others may use the room up before this QP's next turn.
  if (turn.last_of_quantum()) return true;
  if (!packet.ends) return false;
  if (held_) return true;
  if (send_index_ + 1 >= qp_.send_queue.tail()) return true;
  const SendWqe& next = qp_.send_queue.at(send_index_ + 1);
  // What was started goes on after a rewind. A READ's or atomic's response acknowledges as well,
  // but it may have to wait for its place, and what comes before it should not.
  return wants_response(next.opcode) || (!next.started && (!may_start(next) || !has_credit(next)));
}

// The MIDDLE packets that can be written in one go (packet_run.h): new ones, none of which has to
// ask for an acknowledgement. False: send_packet() has to look at the next packet.
bool RcRequester::send_run(Turn& turn, const SendWqe& wqe) {
  const uint64_t index = cursor_ - wqe.first_packet;
  if (index == 0 || index + 2 >= wqe.packet_count || wqe.inlined) return false;
  if (ack_next_ || cursor_ < sent_end_) return false;
  const size_t size = wire::packet_size(wire::Opcode::rc_send_middle, mtu());
  // One less of each: wants_ack() has something to say about what ends it.
  const uint64_t in_window = config_.max_window_packets - (cursor_ - unacked_) - 1;
  const uint64_t unasked = config_.ack_request_every_packets - since_request_ - 1;
  const uint64_t allowed = (turn.request_left - 1) / size;
  uint64_t count = std::min({wqe.packet_count - 1 - index, in_window, unasked, allowed});
  count = std::min(count, turn.run_room(size));
  if (turn.result.packets + count >= turn.context.max_packets) --count;
  if (count < 2) return false;
  const std::span<std::byte> piece =
      source_.rest_of_element(wqe.sges(), index * mtu(), qp_.memory, qp_.pd, 0);
  count = std::min<uint64_t>(count, piece.size() / mtu());
  if (count == 0) return false;
  const auto opcode =
      is_write(wqe.opcode) ? wire::Opcode::rc_write_middle : wire::Opcode::rc_send_middle;
  const auto written =
      static_cast<uint32_t>(write_run(turn, qp_, opcode, Psn(cursor_), piece.data(), count));
  if (written == 0) return false;
  qp_.counters.sent_payload_bytes += uint64_t{written} * mtu();
  since_request_ += written;
  sent(turn, written, uint64_t{written} * size, written);
  return true;
}

TransmitStatus RcRequester::send_packet(Turn& turn, SendWqe& wqe) {
  if (!window_open()) return TransmitStatus::kIdle;
  if (wqe.packet_count > 3 && turn.request_left > 0 && send_run(turn, wqe)) {
    return TransmitStatus::kIdle;
  }
  const auto index = static_cast<uint32_t>(cursor_ - wqe.first_packet);
  const RequestPacket packet = plan_packet(wqe, index, mtu(), wire::Service::rc);
  if (turn.request_left == 0) return TransmitStatus::kWindow;
  if (!turn.fits(packet.size)) return TransmitStatus::kBurstFull;
  const bool ack = wants_ack(turn, packet);
  if (!build_packet(turn, qp_, wqe, packet, Psn(cursor_), ack, source_)) {
    fail_at_send_position(CompletionStatus::kLocalProtectionError);
    return TransmitStatus::kIdle;
  }
  qp_.counters.sent_payload_bytes += packet.length;
  if (cursor_ < sent_end_) {
    ++qp_.counters.retransmitted_packets;
    qp_.counters.retransmitted_bytes += packet.length;
  } else if (ack) {
    round_trips_.add({cursor_, turn.now(), turn.context.delivered_bytes});
  }
  if (ack) {
    since_request_ = 0;
    ack_next_ = false;
  } else {
    ++since_request_;
  }
  sent(turn, 1, packet.size);
  return TransmitStatus::kIdle;
}

TransmitStatus RcRequester::send_read(Turn& turn, SendWqe& wqe) {
  if (outstanding_full()) return TransmitStatus::kIdle;
  const uint64_t begin = cursor_ - wqe.first_packet;
  uint64_t packets = std::min<uint64_t>(wqe.packet_count - begin, read_chunk_packets());
  const bool again = outstanding_sent_ < outstanding_count_;
  if (again) packets = outstanding(outstanding_sent_).end - cursor_;
  if (cursor_ + packets - unacked_ > kMostOpenPackets) return TransmitStatus::kIdle;
  const uint64_t bytes = response_bytes(wqe.length, begin, begin + packets, mtu());
  if (bytes > turn.read_left) {
    if (turn.read_left == 0) return TransmitStatus::kWindow;
    const uint64_t most = turn.read_left / response_bytes(mtu(), 0, 1, mtu());
    // Crumbs would cost a request and an AETH each; with responses on their way room will come.
    const uint64_t least =
        std::clamp((cursor_ - unacked_) / 3, kLeastReadPackets, kMostReadPatience);
    if (most < std::min(packets, least) && outstanding_sent_ > 0) {
      return TransmitStatus::kWindow;
    }
    if (!again) packets = std::clamp<uint64_t>(most, 1, packets);
  }
  const size_t size = wire::packet_size(wire::Opcode::rc_read_request, 0);
  if (!turn.fits(size)) return TransmitStatus::kBurstFull;
  const uint64_t offset = begin * mtu();
  const uint64_t length = std::min<uint64_t>(packets * mtu(), wqe.length - offset);
  wire::Bth bth = base_header(qp_, wire::Opcode::rc_read_request, Psn(cursor_));
  bth.ack_request = true;
  const wire::Reth reth{wqe.remote_address + offset, wqe.remote_key, static_cast<uint32_t>(length)};
  const uint16_t identification = turn.burst().next_identification();
  std::byte* place = turn.burst().append(size);
  const size_t header = wire::emit_headers(place, bth, reth);
  wire::seal(place, header, std::span<const std::byte>{}, *turn.context.icrc, identification);
  if (cursor_ < sent_end_) ++qp_.counters.retransmitted_packets;
  turn.charge_read(response_bytes(wqe.length, begin, begin + packets, mtu()));
  remember(turn, packets);
  ack_next_ = false;
  sent(turn, packets, 0);
  return TransmitStatus::kIdle;
}

TransmitStatus RcRequester::send_atomic(Turn& turn, SendWqe& wqe) {
  if (outstanding_full() || !window_open()) return TransmitStatus::kIdle;
  if (turn.request_left == 0) return TransmitStatus::kWindow;
  const auto opcode = wqe.opcode == model::SendOpcode::kCompareSwap ? wire::Opcode::rc_compare_swap
                                                                    : wire::Opcode::rc_fetch_add;
  const size_t size = wire::packet_size(opcode, 0);
  if (!turn.fits(size)) return TransmitStatus::kBurstFull;
  wire::Bth bth = base_header(qp_, opcode, Psn(cursor_));
  bth.ack_request = true;
  wire::AtomicEth atomic{wqe.remote_address, wqe.remote_key, wqe.compare_add, 0};
  if (opcode == wire::Opcode::rc_compare_swap) {
    atomic.swap_or_add = wqe.swap;
    atomic.compare = wqe.compare_add;
  }
  const uint16_t identification = turn.burst().next_identification();
  std::byte* place = turn.burst().append(size);
  const size_t header = wire::emit_headers(place, bth, atomic);
  wire::seal(place, header, std::span<const std::byte>{}, *turn.context.icrc, identification);
  if (cursor_ < sent_end_) ++qp_.counters.retransmitted_packets;
  remember(turn, 1);
  ack_next_ = false;
  sent(turn, 1, size);
  return TransmitStatus::kIdle;
}

void RcRequester::remember(const Turn& turn, uint64_t packets) {
  const bool again = cursor_ < sent_end_;  // the answer may be that to the first request
  if (outstanding_sent_ == outstanding_count_) {
    const uint8_t size = std::max<uint8_t>(qp_.attributes.max_rd_atomic, 1);
    if (outstanding_size_ != size && outstanding_count_ == 0) {
      outstanding_ = std::make_unique<Outstanding[]>(size);
      outstanding_size_ = size;
      outstanding_head_ = 0;
    }
    ++outstanding_count_;
  }
  outstanding(outstanding_sent_++) = {
      cursor_, cursor_ + packets, turn.now(), turn.context.read_delivered_bytes, Duration{}, again};
}

// `packets` took `numbers`: a READ request takes those of its responses.
void RcRequester::sent(Turn& turn, uint64_t numbers, uint64_t bytes, uint32_t packets) {
  cursor_ += numbers;
  sent_end_ = std::max(sent_end_, cursor_);
  turn.result.packets += packets;
  turn.charge_request(bytes);
  qp_.counters.sent_packets += packets;
  if (retry_deadline_.is_never()) retry_deadline_ = turn.now() + retry_timeout();
  if (rewound_ && rewound_at_ == unacked_) arm_repair(turn.now());
}

}  // namespace farverbs::proto
