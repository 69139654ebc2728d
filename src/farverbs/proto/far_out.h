// FarOut: one turn of a far QP to write packets: numbers, base header, sealing, and the record that
// an acknowledgement will name (docs/far-transport.md section 2).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "farverbs/base/fault_guard.h"
#include "farverbs/model/qp.h"
#include "farverbs/proto/far_protector.h"
#include "farverbs/proto/far_sent.h"
#include "farverbs/proto/turn.h"
#include "farverbs/wire/icrc.h"
#include "farverbs/wire/roce.h"

namespace farverbs::proto {

inline const wire::IcrcFlow& far_icrc() {
  static const wire::IcrcFlow flow = wire::IcrcFlow::far();
  return flow;
}

// The greatest payload of a packet of `opcode` in a datagram of `datagram_bytes`; a multiple of 4,
// so that full packets need no padding.
constexpr uint32_t far_payload(wire::Opcode opcode, uint32_t datagram_bytes) {
  const auto overhead =
      static_cast<uint32_t>(wire::opcode_info(opcode).header_length + wire::kIcrcSize);
  return datagram_bytes > overhead ? (datagram_bytes - overhead) & ~uint32_t{3} : 0;
}

struct FarOut {
  Turn& turn;
  FarSent& sent;
  model::Qp& qp;
  uint8_t ack_ratio = 0;
  uint8_t ack_delay = 0;
  // Packets that may leave whatever the allowance says: a probe timeout's.
  uint32_t forced = 0;
  // The longest packet of data or request.
  uint32_t datagram_bytes = 0;
  FarProtector* protector = nullptr;  // of what is sent now, if anything is

  // kIdle: a packet of `size` bytes may be written.
  TransmitStatus may_write(size_t size) const {
    if (turn.quantum_used()) return TransmitStatus::kQuantum;
    if (forced == 0 && (sent.full() || turn.request_left == 0)) return TransmitStatus::kWindow;
    return turn.fits(size) ? TransmitStatus::kIdle : TransmitStatus::kBurstFull;
  }
  // This packet is the last that the window has room for.
  bool ends_window(size_t size) const { return turn.request_left <= size && !turn.context.paced; }

  struct Shape {
    wire::Opcode opcode;
    uint32_t message = 0;
    bool last = false;
    bool ack_request = false;
    bool solicited = false;
  };

  // Headers of a run's packets: those of the first, and where in them its address (0: nowhere) and
  // its offset stand, which move on by a payload with each packet, as the number does by one.
  struct RunHeader {
    std::array<std::byte, 64> bytes;
    size_t address_at = 0;
    size_t offset_at = 0;
    uint64_t address = 0;
  };
  template <typename... Extensions>
  RunHeader run_header(const Shape& shape, size_t address_at, uint64_t address, size_t offset_at,
                       const Extensions&... extensions) const {
    RunHeader header;
    wire::emit_headers(header.bytes.data(), bth_of(shape, 0), base_of(shape), extensions...);
    header.address_at = address_at;
    header.address = address;
    header.offset_at = offset_at;
    return header;
  }
  // How many of `packets` packets of `size` bytes may be written as a run: none of them ends the
  // window, the burst or the quantum.
  size_t run_room(size_t size, uint64_t packets) const;
  // Appends `count` packets, at most run_room(), of `payload` bytes each from `from` on, a multiple
  // of 4. Returns how many: fewer when memory is gone.
  size_t write_run(const Shape& shape, FarPacket record, const RunHeader& header,
                   const std::byte* from, size_t payload, size_t count);

  bool repairable(const Shape& shape) const {
    return protector != nullptr && shape.opcode != wire::Opcode::far_probe &&
           shape.opcode != wire::Opcode::far_repair;
  }
  wire::Bth bth_of(const Shape& shape, size_t payload_bytes) const {
    wire::Bth bth;
    bth.opcode = static_cast<uint8_t>(shape.opcode);
    bth.dest_qp = qp.attributes.destination_qpn;
    bth.psn = Psn(sent.next());
    bth.ack_request = shape.ack_request || forced > 0;
    bth.solicited = shape.solicited;
    bth.pad = wire::pad_for(payload_bytes);
    return bth;
  }
  wire::FarBase base_of(const Shape& shape) const {
    wire::FarBase base;
    base.number_high = static_cast<uint16_t>(sent.next() >> 24);
    base.last = shape.last;
    base.repairable = repairable(shape);
    base.side_port = turn.context.side_port;
    base.ack_ratio = ack_ratio;
    base.ack_delay = ack_delay;
    base.message = shape.message;
    return base;
  }

  // Appends a packet and remembers `record` (content, request, offset; the rest is filled in).
  // False if the payload's memory is gone: nothing was written.
  template <typename... Extensions>
  bool write(const Shape& shape, FarPacket record,
             std::span<const std::span<const std::byte>> payload, size_t payload_bytes, bool guard,
             const Extensions&... extensions) {
    const size_t size = wire::packet_size(shape.opcode, payload_bytes);
    std::byte* const place = turn.burst().append(size);
    const size_t header =
        wire::emit_headers(place, bth_of(shape, payload_bytes), base_of(shape), extensions...);
    const auto seal = [&] { wire::seal(place, header, payload, far_icrc(), 0); };
    if (!guard) {
      seal();
    } else if (!guarded(seal)) {
      turn.burst().retract(size);
      return false;
    }
    if (repairable(shape)) protector->add(sent.next(), {place, size});
    record.sent = turn.now();
    record.length = static_cast<uint16_t>(payload_bytes);
    const bool charged = record.content != FarContent::kMtuProbe;
    record.bytes = charged ? static_cast<uint16_t>(size) : 0;
    FlightMark mark = turn.context.mark;
    mark.inflight_bytes += turn.result.request_bytes + size;
    sent.add(record, mark);
    if (charged) turn.charge_request(size);
    if (forced > 0) --forced;
    ++turn.result.packets;
    ++qp.counters.sent_packets;
    // A probe's filling is nobody's data.
    if (record.content == FarContent::kData || record.content == FarContent::kResponse) {
      qp.counters.sent_payload_bytes += payload_bytes;
    }
    return true;
  }
};

}  // namespace farverbs::proto
