#include "farverbs/proto/far_requester.h"

#include <algorithm>

#include "farverbs/proto/completions.h"
#include "farverbs/proto/placing.h"
#include "farverbs/proto/request_packet.h"

namespace farverbs::proto {

using model::CompletionStatus;
using model::SendWqe;
using wire::Opcode;

namespace {

// Half of what the responder must be able to keep.
constexpr uint64_t kMostMessagesAhead = 32'768;

struct PieceOpcodes {
  Opcode plain;
  Opcode last;
};
PieceOpcodes opcodes_of(model::SendOpcode opcode) {
  switch (opcode) {
    case model::SendOpcode::kWrite:
      return {Opcode::far_write, Opcode::far_write};
    case model::SendOpcode::kWriteWithImmediate:
      return {Opcode::far_write, Opcode::far_write_imm};
    case model::SendOpcode::kSendWithImmediate:
      return {Opcode::far_send, Opcode::far_send_imm};
    case model::SendOpcode::kSendWithInvalidate:
      return {Opcode::far_send, Opcode::far_send_invalidate};
    default:
      return {Opcode::far_send, Opcode::far_send};
  }
}

}  // namespace

void FarRequester::start() {
  next_index_ = qp_.send_queue.head();
  next_message_ = executed_ = 0;
  started_ = true;
}

void FarRequester::reset() {
  next_index_ = qp_.send_queue.head();
  next_message_ = executed_ = 0;
  next_receive_ = receive_limit_ = 0;
  has_receive_limit_ = failed_ = started_ = false;
  sending_index_ = error_index_ = source_index_ = kNone;
  sending_offset_ = 0;
  stop();
}

void FarRequester::stop() {
  resends_.clear();
  held_resends_.clear();
  responses_.clear();
  sending_index_ = kNone;
  not_ready_until_ = Time::never();
  not_ready_again_ = Time();
  not_ready_retries_ = 0;
}

void FarRequester::trim() {
  if (resends_.empty()) resends_.release();
  if (held_resends_.empty()) held_resends_.release();
  if (responses_.empty()) responses_.release();
}

size_t FarRequester::memory_bytes() const {
  size_t bytes = resends_.memory_bytes() + held_resends_.memory_bytes() + responses_.memory_bytes();
  for (const OpenResponse& open : responses_) bytes += open.arrived.memory_bytes();
  return bytes;
}

// --- What may be sent ---

// A receive is promised, or nothing is in flight: only an answer tells that there are some again.
bool FarRequester::has_receive(const SendWqe& wqe) const {
  if (!takes_receive(wqe.opcode) || !has_receive_limit_) return true;
  return precedes(next_receive_, receive_limit_) || !open();
}

bool FarRequester::may_start(const SendWqe& wqe) const {
  if (qp_.state.load(std::memory_order_relaxed) != model::QpState::kRts || !started_) return false;
  if ((wqe.flags & model::kFence) != 0 && !responses_.empty()) return false;
  // What came before may still have to be sent again from the memory it names.
  if (wqe.opcode == model::SendOpcode::kLocalInvalidate) return !open();
  if (next_message_ - executed_ >= kMostMessagesAhead) return false;
  if (wants_response(wqe.opcode)) {
    return responses_.size() < std::max<size_t>(qp_.attributes.max_rd_atomic, 1);
  }
  return has_receive(wqe);
}

// The rest of a message that is to be sent again as a whole waits with it.
bool FarRequester::may_go_on() const {
  if (sending_index_ == kNone) return false;
  if (not_ready_until_.is_never()) return true;
  const SendWqe& wqe = qp_.send_queue.at(sending_index_);
  return !takes_receive(wqe.opcode) || precedes(wqe.packet_count, not_ready_limit_);
}

bool FarRequester::may_start_next() const {
  return error_index_ == kNone && !failed_ && not_ready_until_.is_never() &&
         next_index_ < qp_.send_queue.tail() && may_start(qp_.send_queue.at(next_index_));
}

bool FarRequester::ready() const {
  if (failed_) return false;
  if (!resends_.empty()) return true;
  if (sending_index_ != kNone) return may_go_on();
  return may_start_next();
}

// Starts requests until one has something to send. False: there is none.
bool FarRequester::start_next() {
  while (may_start_next()) {
    const uint64_t index = next_index_;
    SendWqe& wqe = qp_.send_queue.at(index);
    wqe.started = true;
    wqe.progress = 0;
    ++next_index_;
    if (is_local(wqe.opcode)) {
      do_local(wqe);
      continue;
    }
    wqe.first_packet = next_message_;
    if (takes_receive(wqe.opcode)) wqe.packet_count = next_receive_++;
    if (wants_response(wqe.opcode)) {
      if (qp_.attributes.max_rd_atomic == 0) {
        fail_at(index, CompletionStatus::kLocalQpOperationError);
        return false;
      }
      // The response must find writable memory: better told now than when it comes.
      SgeWalker walker;
      TargetPieces pieces;
      if (walker.find(wqe.sges(), 0, wqe.length, qp_.memory, qp_.pd, model::kLocalWrite, pieces) !=
          model::MemoryVerdict::kOk) {
        fail_at(index, CompletionStatus::kLocalProtectionError);
        return false;
      }
      responses_.push_back({});
      OpenResponse& open = responses_.back();
      open.index = index;
      open.message = static_cast<uint32_t>(next_message_);
    }
    ++next_message_;
    sending_index_ = index;
    sending_offset_ = 0;
    return true;
  }
  return false;
}

void FarRequester::do_local(SendWqe& wqe) {
  const uint64_t index = next_index_ - 1;
  wqe.progress = 1;
  if (wqe.opcode == model::SendOpcode::kLocalInvalidate) {
    if (qp_.memory.invalidate(MemoryKey(wqe.immediate), qp_.pd, qp_.qpn) !=
        model::MemoryVerdict::kOk) {
      return fail_at(index, CompletionStatus::kLocalProtectionError);
    }
  } else {
    const auto tag = static_cast<uint8_t>(wqe.immediate & 0xFF);
    const auto bound =
        qp_.memory.bind_window(wqe.window, qp_.pd, wqe.bind_region_lkey, wqe.remote_address,
                               wqe.bind_length, wqe.bind_access, qp_.qpn, tag);
    if (!bound.ok()) return fail_at(index, CompletionStatus::kWindowBindError);
  }
  complete_finished();
}

// --- Sending ---

TransmitStatus FarRequester::transmit(FarOut& out) {
  if (failed_) return TransmitStatus::kIdle;
  const TransmitStatus status = send_resends(out);
  return status != TransmitStatus::kIdle ? status : send_new(out);
}

TransmitStatus FarRequester::send_resends(FarOut& out) {
  while (!resends_.empty()) {
    Resend& resend = resends_.front();
    if (resend.index >= qp_.send_queue.head() && resend.index < next_index_) {
      const SendWqe& wqe = qp_.send_queue.at(resend.index);
      // Carried out meanwhile: the loss was none.
      const bool moot = wqe.first_packet < executed_ && !wants_response(wqe.opcode);
      if (!moot) {
        const uint32_t before = out.turn.result.packets;
        uint32_t written = resend.length;
        const TransmitStatus status =
            resend.whole ? send_whole(out, resend.index)
                         : send_piece(out, resend.index, resend.offset, written, true);
        if (out.turn.result.packets == before) return status;
        ++qp_.counters.retransmitted_packets;
        qp_.counters.retransmitted_bytes += resend.whole ? 0 : written;
        if (!resend.whole && written < resend.length) {
          resend.offset += written;
          resend.length -= written;
          continue;
        }
      }
    }
    resends_.pop_front();
  }
  return TransmitStatus::kIdle;
}

TransmitStatus FarRequester::send_new(FarOut& out) {
  while (sending_index_ != kNone ? may_go_on() : start_next()) {
    const SendWqe& wqe = qp_.send_queue.at(sending_index_);
    if (!wants_response(wqe.opcode)) {
      sending_offset_ += send_run(out, sending_index_, sending_offset_);
    }
    const uint32_t before = out.turn.result.packets;
    if (wants_response(wqe.opcode)) {
      const TransmitStatus status = send_whole(out, sending_index_);
      if (out.turn.result.packets == before) return status;
      sending_index_ = kNone;
      continue;
    }
    uint32_t written = wqe.length - sending_offset_;
    const TransmitStatus status = send_piece(out, sending_index_, sending_offset_, written, false);
    if (out.turn.result.packets == before) return status;
    sending_offset_ += written;
    if (sending_offset_ == wqe.length) sending_index_ = kNone;
  }
  return TransmitStatus::kIdle;
}

// Whether this sender has more to say at once after a packet that ends its message or not.
bool FarRequester::more_after(bool ends) const {
  return resends_.size() > 1 || !ends || may_start_next();
}

SgeWalker& FarRequester::source_for(uint64_t index) {
  if (source_index_ != index) {
    source_.reset();
    source_index_ = index;
  }
  return source_;
}

// Writes one packet of a SEND's or WRITE's bytes from `offset` on; `length`: those wanted, then
// those written.
TransmitStatus FarRequester::send_piece(FarOut& out, uint64_t index, uint32_t offset,
                                        uint32_t& length, bool again) {
  const SendWqe& wqe = qp_.send_queue.at(index);
  const PieceOpcodes opcodes = opcodes_of(wqe.opcode);
  const uint32_t datagram = out.datagram_bytes;
  Opcode opcode = opcodes.plain;
  uint32_t bytes = std::min(length, far_payload(opcode, datagram));
  bool last = offset + bytes == wqe.length;
  if (last && opcodes.last != opcode) {
    // The last packet has more headers. What does not fit with them goes ahead without.
    const uint32_t most = far_payload(opcodes.last, datagram);
    if (bytes > most) {
      bytes = most;
      last = false;
    } else {
      opcode = opcodes.last;
    }
  }
  const size_t size = wire::packet_size(opcode, bytes);
  const TransmitStatus status = out.may_write(size);
  if (status != TransmitStatus::kIdle) return status;
  SourcePieces pieces;
  if (wqe.inlined) {
    if (bytes > 0) pieces.add(wqe.inline_data() + offset, bytes);
  } else if (source_for(index).find(wqe.sges(), offset, bytes, qp_.memory, qp_.pd, 0, pieces) !=
             model::MemoryVerdict::kOk) {
    fail_at(index, CompletionStatus::kLocalProtectionError);
    return TransmitStatus::kIdle;
  }
  FarOut::Shape shape{opcode};
  shape.message = static_cast<uint32_t>(wqe.first_packet);
  shape.last = last;
  shape.ack_request = out.ends_window(size) || !more_after(last || again);
  shape.solicited = last && (wqe.flags & model::kSolicited) != 0 && takes_receive(wqe.opcode);
  FarPacket record;
  record.content = FarContent::kData;
  record.request = static_cast<uint32_t>(index);
  record.offset = offset;
  const bool guard = !wqe.inlined && bytes > 0;
  const wire::FarSequence sequence{wqe.packet_count};
  bool written = false;
  if (is_write(wqe.opcode)) {
    const wire::FarPlace place{wqe.remote_address + offset, wqe.remote_key, offset};
    written = opcode == Opcode::far_write
                  ? out.write(shape, record, pieces.view(), bytes, guard, place)
                  : out.write(shape, record, pieces.view(), bytes, guard, place, sequence,
                              wire::ImmDt{wqe.immediate});
  } else {
    const wire::FarOffset at{offset};
    switch (opcode) {
      case Opcode::far_send_imm:
        written = out.write(shape, record, pieces.view(), bytes, guard, sequence, at,
                            wire::ImmDt{wqe.immediate});
        break;
      case Opcode::far_send_invalidate:
        written = out.write(shape, record, pieces.view(), bytes, guard, sequence, at,
                            wire::Ieth{MemoryKey(wqe.immediate)});
        break;
      default:
        written = out.write(shape, record, pieces.view(), bytes, guard, sequence, at);
    }
  }
  if (!written) fail_at(index, CompletionStatus::kLocalProtectionError);
  length = bytes;
  return TransmitStatus::kIdle;
}

// Full packets that neither end the message nor ask for an acknowledgement, in one go. Returns
// their bytes; 0 is always a right answer: then the next packet goes by itself.
uint32_t FarRequester::send_run(FarOut& out, uint64_t index, uint32_t offset) {
  const SendWqe& wqe = qp_.send_queue.at(index);
  const bool write = is_write(wqe.opcode);
  const Opcode opcode = write ? Opcode::far_write : Opcode::far_send;
  const uint32_t payload = far_payload(opcode, out.datagram_bytes);
  const uint32_t left = wqe.length - offset;
  if (wqe.inlined || payload == 0 || left <= 2 * payload) return 0;
  size_t count = out.run_room(wire::packet_size(opcode, payload), (left - 1) / payload);
  if (count < 2) return 0;
  const std::span<const std::byte> memory =
      source_for(index).rest_of_element(wqe.sges(), offset, qp_.memory, qp_.pd, 0);
  count = std::min(count, memory.size() / payload);
  if (count == 0) return 0;
  FarOut::Shape shape{opcode};
  shape.message = static_cast<uint32_t>(wqe.first_packet);
  FarPacket record;
  record.content = FarContent::kData;
  record.request = static_cast<uint32_t>(index);
  record.offset = offset;
  constexpr size_t kRest = wire::Bth::kSize + wire::FarBase::kSize;
  const wire::FarPlace place{wqe.remote_address + offset, wqe.remote_key, offset};
  const FarOut::RunHeader header =
      write ? out.run_header(shape, kRest, place.address, kRest + 12, place)
            : out.run_header(shape, 0, 0, kRest + 4, wire::FarSequence{wqe.packet_count},
                             wire::FarOffset{offset});
  return static_cast<uint32_t>(
             out.write_run(shape, record, header, memory.data(), payload, count)) *
         payload;
}

// A READ request or an atomic.
TransmitStatus FarRequester::send_whole(FarOut& out, uint64_t index) {
  const SendWqe& wqe = qp_.send_queue.at(index);
  if (!wants_response(wqe.opcode)) {
    uint32_t none = 0;
    return send_piece(out, index, 0, none, true);
  }
  const Opcode opcode = is_read(wqe.opcode)                             ? Opcode::far_read_request
                        : wqe.opcode == model::SendOpcode::kCompareSwap ? Opcode::far_compare_swap
                                                                        : Opcode::far_fetch_add;
  const size_t size = wire::packet_size(opcode, 0);
  const TransmitStatus status = out.may_write(size);
  if (status != TransmitStatus::kIdle) return status;
  FarOut::Shape shape{opcode};
  shape.message = static_cast<uint32_t>(wqe.first_packet);
  shape.last = true;
  // The response acknowledges soon, but may be long in coming.
  shape.ack_request = out.ends_window(size) || !more_after(true);
  FarPacket record;
  record.content = FarContent::kRequest;
  record.request = static_cast<uint32_t>(index);
  if (opcode == Opcode::far_read_request) {
    out.write(shape, record, {}, 0, false,
              wire::Reth{wqe.remote_address, wqe.remote_key, wqe.length});
  } else {
    wire::AtomicEth atomic{wqe.remote_address, wqe.remote_key, wqe.compare_add, 0};
    if (opcode == Opcode::far_compare_swap) {
      atomic.swap_or_add = wqe.swap;
      atomic.compare = wqe.compare_add;
    }
    out.write(shape, record, {}, 0, false, atomic);
  }
  return TransmitStatus::kIdle;
}

void FarRequester::on_lost(const FarPacket& packet) {
  const uint64_t index = index_of(packet.request);
  if (index < qp_.send_queue.head() || index >= next_index_ || failed_) return;
  if (index >= error_index_) return;
  const SendWqe& wqe = qp_.send_queue.at(index);
  if (packet.content == FarContent::kRequest) {
    // An answer that has begun shows that the request arrived.
    const OpenResponse* open = find_open(static_cast<uint32_t>(wqe.first_packet));
    if (open == nullptr || open->complete) return;
    resends_.push_back({index, 0, 0, true});
    return;
  }
  if (wqe.first_packet < executed_) return;
  if (!not_ready_until_.is_never() && takes_receive(wqe.opcode) &&
      !precedes(wqe.packet_count, not_ready_limit_)) {
    return;  // it is sent again as a whole
  }
  if (packet.length > 0 && !resends_.empty()) {
    Resend& newest = resends_.back();
    if (!newest.whole && newest.index == index && newest.offset + newest.length == packet.offset) {
      newest.length += packet.length;
      return;
    }
  }
  resends_.push_back({index, packet.offset, packet.length, packet.length == 0});
}

void FarRequester::on_timer(Time now) {
  if (now < not_ready_until_) return;
  not_ready_until_ = Time::never();
  for (const Resend& resend : held_resends_) resends_.push_back(resend);
  held_resends_.clear();
}

// --- Completions ---

void FarRequester::complete_finished() {
  while (!failed_ && qp_.send_queue.head() < next_index_) {
    const uint64_t index = qp_.send_queue.head();
    if (index == error_index_) break;
    const SendWqe& wqe = qp_.send_queue.at(index);
    if (is_local(wqe.opcode)) {
      if (wqe.progress == 0) break;
    } else if (wants_response(wqe.opcode)) {
      if (responses_.empty() || responses_.front().index != index || !responses_.front().complete) {
        break;
      }
      responses_.pop_front();
    } else if (wqe.first_packet >= executed_) {
      break;
    }
    if (!finish_oldest_send(qp_, CompletionStatus::kSuccess)) failed_ = true;
  }
  settle_error();
}

void FarRequester::fail_oldest(CompletionStatus status) {
  if (failed_) return;
  failed_ = true;
  if (qp_.send_queue.head() < qp_.send_queue.tail()) finish_oldest_send(qp_, status);
}

// The request fails, but those before it may still succeed: it is told when it is the oldest.
void FarRequester::fail_at(uint64_t index, CompletionStatus status) {
  if (error_index_ <= index) return;
  error_index_ = index;
  error_ = status;
  // Nothing of it or of what comes after is sent any more.
  if (sending_index_ != kNone && sending_index_ >= index) sending_index_ = kNone;
  const auto after = [index](const Resend& resend) { return resend.index >= index; };
  resends_.erase_if(after);
  held_resends_.erase_if(after);
  settle_error();
}

void FarRequester::settle_error() {
  if (!failed_ && qp_.send_queue.head() == error_index_) fail_oldest(error_);
}

}  // namespace farverbs::proto
