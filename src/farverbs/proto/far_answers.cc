// What comes back to a requester: responses of READs and atomics, and what the responder tells of
// the messages it has carried out (docs/far-transport.md sections 4 and 6).
#include <algorithm>
#include <cstring>

#include "farverbs/proto/far_requester.h"
#include "farverbs/proto/placing.h"
#include "farverbs/proto/request_packet.h"
#include "farverbs/wire/syndrome.h"

namespace farverbs::proto {

using model::CompletionStatus;
using model::SendWqe;

namespace {

constexpr uint8_t kRnrRetryForEver = 7;

CompletionStatus status_of(uint8_t code) {
  switch (static_cast<wire::NakCode>(code)) {
    case wire::NakCode::remote_access_error:
      return CompletionStatus::kRemoteAccessError;
    case wire::NakCode::remote_operational_error:
      return CompletionStatus::kRemoteOperationError;
    default:
      return CompletionStatus::kRemoteInvalidRequest;
  }
}

}  // namespace

FarRequester::OpenResponse* FarRequester::find_open(uint32_t message) {
  for (OpenResponse& open : responses_) {
    if (open.message == message) return &open;
  }
  return nullptr;
}

bool FarRequester::on_response(const wire::PacketView& packet, const PacketContext& context) {
  OpenResponse* open = find_open(packet.far_base().message);
  const bool read = packet.info->kind == wire::OpKind::read_response;
  if (open == nullptr || open->complete) {
    if (!intact(packet, context)) return false;
    ++qp_.counters.duplicates_received;
    return true;
  }
  if (is_read(qp_.send_queue.at(open->index).opcode) != read) {
    ++qp_.counters.dropped_packets;
    return false;
  }
  const bool placed = read ? place_read(*open, packet, context)
                           : intact(packet, context) && place_atomic(*open, packet);
  if (placed) complete_finished();
  return placed;
}

bool FarRequester::place_read(OpenResponse& open, const wire::PacketView& packet,
                              const PacketContext& context) {
  const SendWqe& wqe = qp_.send_queue.at(open.index);
  const uint32_t begin = packet.far_offset().offset;
  const size_t bytes = packet.payload().size();
  if (begin > wqe.length || bytes > wqe.length - begin) {
    ++qp_.counters.dropped_packets;
    return false;
  }
  const auto end = static_cast<uint32_t>(begin + bytes);
  // One pass where the place follows from what came before and no byte of it has arrived yet.
  const bool predicted = bytes > 0 && begin == open.next && open.arrived.lacks(begin, end);
  open.next = end;
  bool fine = predicted || intact(packet, context);
  if (!fine) return false;
  PacketContext checked = context;
  if (!predicted) checked.unchecked = nullptr;
  const auto place_bytes = [&](uint32_t from, uint32_t to) {
    TargetPieces pieces;
    if (open.target.find(wqe.sges(), from, to - from, qp_.memory, qp_.pd, model::kLocalWrite,
                         pieces) != model::MemoryVerdict::kOk) {
      fail_at(open.index, CompletionStatus::kLocalProtectionError);
      fine = false;
      return;
    }
    Placed placed = Placed::kDone;
    if (from == begin && to == end) {
      placed = place(packet, checked, !predicted, pieces.view());
    } else {
      const std::byte* source = packet.payload().data() + (from - begin);
      const bool there = guarded([&] {
        for (const std::span<std::byte> piece : pieces.view()) {
          std::memcpy(piece.data(), source, piece.size());
          source += piece.size();
        }
      });
      if (!there) placed = Placed::kFault;
    }
    if (placed == Placed::kFault) fail_at(open.index, CompletionStatus::kLocalProtectionError);
    if (placed != Placed::kDone) fine = false;
  };
  if (bytes > 0) open.arrived.for_each_missing(begin, end, place_bytes);
  if (!fine) return false;
  if (!open.arrived.add(begin, end)) return false;
  ++qp_.counters.received_packets;
  qp_.counters.received_payload_bytes += bytes;
  open.complete = open.arrived.prefix() == wqe.length;
  return true;
}

bool FarRequester::place_atomic(OpenResponse& open, const wire::PacketView& packet) {
  const SendWqe& wqe = qp_.send_queue.at(open.index);
  // The value stands in memory in this host's order (IBTA vol. 1 section 9.4.5).
  const uint64_t original = packet.atomic_ack_eth().original;
  const auto* bytes = reinterpret_cast<const std::byte*>(&original);
  TargetPieces pieces;
  bool there = open.target.find(wqe.sges(), 0, sizeof original, qp_.memory, qp_.pd,
                                model::kLocalWrite, pieces) == model::MemoryVerdict::kOk;
  there = there && guarded([&] {
            for (const std::span<std::byte> piece : pieces.view()) {
              std::memcpy(piece.data(), bytes, piece.size());
              bytes += piece.size();
            }
          });
  if (!there) {
    fail_at(open.index, CompletionStatus::kLocalProtectionError);
    return false;
  }
  ++qp_.counters.received_packets;
  open.complete = true;
  return true;
}

// Messages that the responder can have carried out: all that were sent in whole at least once.
uint64_t FarRequester::most_executed() const {
  uint64_t most = next_message_;
  if (sending_index_ != kNone) most = qp_.send_queue.at(sending_index_).first_packet;
  return most;
}

void FarRequester::on_told(Time now, uint32_t executed, const wire::FarAck& ack,
                           Duration round_trip) {
  if (!started_) return;
  const auto ahead = static_cast<int32_t>(executed - static_cast<uint32_t>(executed_));
  // What is older was told before.
  if (ahead > 0 && static_cast<uint64_t>(ahead) > most_executed() - executed_) {
    ++qp_.counters.dropped_packets;
    return;
  }
  if (ahead < 0) return;
  executed_ += static_cast<uint64_t>(ahead);
  const auto limit_grew = static_cast<int32_t>(ack.receive_limit - receive_limit_) > 0;
  if (!has_receive_limit_ || !ack.has_receive_limit || limit_grew) {
    has_receive_limit_ = ack.has_receive_limit;
    receive_limit_ = ack.receive_limit;
  }
  switch (static_cast<wire::FarStatus>(ack.status)) {
    case wire::FarStatus::ok:
      if (ahead > 0) not_ready_retries_ = 0;
      break;
    case wire::FarStatus::not_ready:
      on_not_ready(now, ack, round_trip);
      break;
    case wire::FarStatus::refused:
      // Requests are told in order: the refused one is the first not carried out.
      for (uint64_t i = qp_.send_queue.head(); i < next_index_; ++i) {
        const SendWqe& wqe = qp_.send_queue.at(i);
        if (is_local(wqe.opcode) || wqe.first_packet != executed_) continue;
        fail_at(i, status_of(ack.detail));
        break;
      }
      break;
    default:
      ++qp_.counters.dropped_packets;
      break;
  }
  complete_finished();
}

// All messages from receive `limit` on are sent again from their first byte, after a while.
void FarRequester::on_not_ready(Time now, const wire::FarAck& ack, Duration round_trip) {
  const uint32_t limit = ack.receive_limit;
  if (!not_ready_until_.is_never() || !precedes(limit, next_receive_)) return;  // heard already
  // Acknowledgements of other packets repeat the status while the messages are on their way again.
  if (limit == not_ready_limit_ && now < not_ready_again_) return;
  ++qp_.counters.rnr_naks_received;
  if (limit != not_ready_limit_) not_ready_retries_ = 0;
  not_ready_limit_ = limit;
  const uint8_t most = qp_.attributes.rnr_retry;
  uint64_t first = kNone;
  held_resends_.clear();
  for (uint64_t i = qp_.send_queue.head(); i < next_index_; ++i) {
    const SendWqe& wqe = qp_.send_queue.at(i);
    if (!takes_receive(wqe.opcode) || precedes(wqe.packet_count, limit)) continue;
    if (wqe.first_packet < executed_) continue;
    if (first == kNone) first = i;
    const uint32_t begun = i == sending_index_ ? sending_offset_ : wqe.length;
    if (begun > 0 || wqe.length == 0) held_resends_.push_back({i, 0, begun, wqe.length == 0});
  }
  resends_.erase_if([&](const Resend& resend) {
    const SendWqe& wqe = qp_.send_queue.at(resend.index);
    return takes_receive(wqe.opcode) && !precedes(wqe.packet_count, limit);
  });
  if (first == kNone) return;
  if (most != kRnrRetryForEver && not_ready_retries_ >= most) {
    return fail_at(first, CompletionStatus::kRnrRetryExceeded);
  }
  not_ready_retries_ = static_cast<uint8_t>(std::min(not_ready_retries_ + 1, 255));
  not_ready_until_ = now + wire::rnr_delay(ack.detail);
  not_ready_again_ = not_ready_until_ + round_trip;
}

}  // namespace farverbs::proto
