// Runs: packets of one message that follow one another. They differ in packet number, offset,
// address and payload, so one look at the memory, one fault guard and one header serve them all.
#include "farverbs/proto/far_out.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "farverbs/base/byte_order.h"

namespace farverbs::proto {
namespace {

constexpr size_t kPsnAt = 8;  // with AckReq above it
constexpr size_t kHighAt = wire::Bth::kSize;
constexpr size_t kMostHeader = 64;

}  // namespace

size_t FarOut::run_room(size_t size, uint64_t packets) const {
  if (forced > 0 || turn.request_left <= size) return 0;
  // The packet that ends the window asks for an acknowledgement, and is not of a run.
  const uint64_t allowed = (turn.request_left - 1) / size;
  return size < kMostHeader ? 0
                            : std::min({packets, allowed, turn.run_room(size), sent.run_room()});
}

size_t FarOut::write_run(const Shape& shape, FarPacket record, const RunHeader& header,
                         const std::byte* from, size_t payload, size_t count) {
  const size_t size = wire::packet_size(shape.opcode, payload);
  const size_t header_bytes = wire::opcode_info(shape.opcode).header_length;
  const wire::IcrcRun icrc(far_icrc(), header_bytes, payload);
  const PacketNumber first = sent.next();
  // The ICRC reads each word of the headers right after it was stored. Were it stored in parts, the
  // load would wait until the line has come from wherever it was last.
  const uint32_t flags = load_be<uint16_t>(header.bytes.data() + kHighAt + 2);
  std::byte* const place = turn.burst().append_run(size, count);
  const size_t written = guarded_run(count, [&](size_t i) {
    std::byte* const packet = place + i * size;
    // Of fixed size; the payload comes over what is beyond the headers.
    std::memcpy(packet, header.bytes.data(), kMostHeader);
    store_be(packet + kPsnAt, Psn(first + i).value());
    store_be(packet + kHighAt, static_cast<uint32_t>((first + i) >> 24 << 16) | flags);
    const size_t moved = i * payload;
    if (header.address_at != 0) store_be(packet + header.address_at, header.address + moved);
    store_be(packet + header.offset_at, static_cast<uint32_t>(record.offset + moved));
    icrc.seal(packet, from + moved, 0);
    return true;
  });
  if (written < count) turn.burst().retract(size, count - written);
  for (size_t i = 0; i < written && protector != nullptr; ++i) {
    protector->add(first + i, {place + i * size, size});
  }
  record.sent = turn.now();
  record.length = static_cast<uint16_t>(payload);
  record.bytes = static_cast<uint16_t>(size);
  FlightMark mark = turn.context.mark;
  for (size_t i = 0; i < written; ++i) {
    mark.inflight_bytes = turn.context.mark.inflight_bytes + turn.result.request_bytes + size;
    sent.add(record, mark);
    record.offset += static_cast<uint32_t>(payload);
    turn.charge_request(size);
  }
  turn.result.packets += static_cast<uint32_t>(written);
  qp.counters.sent_packets += written;
  qp.counters.sent_payload_bytes += written * payload;
  return written;
}

}  // namespace farverbs::proto
