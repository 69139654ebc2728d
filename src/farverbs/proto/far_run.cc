// Runs: packets of one far message that follow one another in a burst. They differ in packet
// number, AckReq, offset and address, by as much as the one before says, and in payload; so one
// look at the memory, one fault guard and one header serve them all. Whatever is out of the
// ordinary ends a run, and on_request() deals with that packet.
#include <algorithm>

#include "farverbs/base/byte_order.h"
#include "farverbs/base/fault_guard.h"
#include "farverbs/proto/far_responder.h"
#include "farverbs/wire/icrc.h"

namespace farverbs::proto {
namespace {

constexpr size_t kPsnWord = 8;
constexpr size_t kBase = wire::Bth::kSize;
constexpr size_t kRest = kBase + wire::FarBase::kSize;
constexpr uint32_t kAckRequest = uint32_t{1} << 31;

// What the packets of a run have to look like, given the first.
class RunHeader {
 public:
  RunHeader(const std::byte* packet, bool write, PacketNumber first, size_t payload)
      : first_(first),
        front_(load_be<uint64_t>(packet)),
        flags_(load_be<uint32_t>(packet + kBase) & 0xFFFF),
        message_(load_be<uint32_t>(packet + kBase + 4)),
        payload_(payload),
        write_(write) {
    if (write) {
      address_ = load_be<uint64_t>(packet + kRest);
      rest_ = load_be<uint64_t>(packet + kRest + 8);
    } else {
      rest_ = load_be<uint64_t>(packet + kRest);
    }
  }
  bool matches(const std::byte* packet, size_t index) const {
    const PacketNumber number = first_ + index;
    const auto high = static_cast<uint32_t>(number >> 24 & 0xFFFF);
    const size_t moved = index * payload_;
    uint64_t differs = (load_be<uint64_t>(packet) ^ front_) & ~kIgnored;
    differs |= (load_be<uint32_t>(packet + kPsnWord) & Psn::kMask) ^ Psn(number).value();
    differs |= load_be<uint32_t>(packet + kBase) ^ (high << 16 | flags_);
    differs |= load_be<uint32_t>(packet + kBase + 4) ^ message_;
    // R_Key or sequence above, offset below; an offset that overflows was not let in here.
    if (!write_) return (differs | (load_be<uint64_t>(packet + kRest) ^ (rest_ + moved))) == 0;
    differs |= load_be<uint64_t>(packet + kRest) ^ (address_ + moved);
    return (differs | (load_be<uint64_t>(packet + kRest + 8) ^ (rest_ + moved))) == 0;
  }

 private:
  // SE, MigReq and the byte of FECN and BECN.
  static constexpr uint64_t kIgnored = 0x00C0'0000'FF00'0000;
  PacketNumber first_;
  uint64_t front_;
  uint64_t address_ = 0;
  uint64_t rest_;
  uint32_t flags_;
  uint32_t message_;
  size_t payload_;
  bool write_;
};

}  // namespace

FarResponder::RunTaken FarResponder::on_run(const ReceivedRun& run, PacketNumber first) {
  const size_t size = run.segment_size;
  if (current_ == nullptr || run.context.unchecked == nullptr || run.bytes.size() < 2 * size) {
    return {};
  }
  const wire::ParseResult packet = wire::parse(run.bytes.first(size));
  if (!packet || packet->bth.pad != 0 || !packet->has(wire::Extension::far_base)) return {};
  const wire::FarBase base = packet->far_base();
  if (base.last || base.repairable || !goes_on(*packet, base)) return {};
  FarMessage& m = *current_;
  const bool write = m.kind == wire::OpKind::write;
  const size_t payload = packet->payload().size();
  const uint32_t offset = m.placed.end();
  std::span<std::byte> target;
  if (write) {
    target = {reinterpret_cast<std::byte*>(m.memory + offset), m.checked_end - offset};
  } else {
    FarReceive& receive = *m.receive;
    target = receive.walker.rest_of_element(receive.wqe.sges(), offset, qp_.memory, qp_.pd,
                                            model::kLocalWrite);
    const uint32_t most = std::min(receive.wqe.length, kMostMessageBytes) - offset;
    if (target.size() > most) target = target.first(most);
  }
  const size_t count = std::min(run.bytes.size() / size, target.size() / payload);
  const std::byte* const packets = run.bytes.data();
  const RunHeader header(packets, write, first, payload);
  const wire::IcrcRun icrc(*run.context.unchecked, packet->headers().size(), payload);
  RunTaken taken;
  taken.base = base;
  taken.packets = guarded_run(count, [&](size_t i) {
    return header.matches(packets + i * size, i) &&
           icrc.verify_and_copy(packets + i * size, target.data() + i * payload, 0);
  });
  if (taken.packets == 0) return taken;
  for (size_t i = 0; i < taken.packets; ++i) {
    taken.ack_request |= (load_be<uint32_t>(packets + i * size + kPsnWord) & kAckRequest) != 0;
  }
  const size_t bytes = taken.packets * payload;
  const auto begin = reinterpret_cast<uintptr_t>(target.data());
  messages_.note_written(current_number_, begin, begin + bytes);
  m.placed.add(offset, offset + static_cast<uint32_t>(bytes));
  qp_.counters.received_packets += taken.packets;
  qp_.counters.received_payload_bytes += bytes;
  return taken;
}

}  // namespace farverbs::proto
