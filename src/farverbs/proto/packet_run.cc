#include "farverbs/proto/packet_run.h"

#include <algorithm>
#include <cstring>

#include "farverbs/base/fault_guard.h"
#include "farverbs/wire/icrc.h"

namespace farverbs::proto {
namespace {

using wire::Bth;

// A run's BTH, all but the word that holds AckReq and the PSN.
class RunHeader {
 public:
  RunHeader(Qpn destination, wire::Opcode opcode, uint8_t reserved) {
    Bth bth;
    bth.opcode = static_cast<uint8_t>(opcode);
    bth.reserved6 = reserved;
    bth.dest_qp = destination;
    std::array<std::byte, Bth::kSize> bytes;
    wire::emit_header(bth, bytes.data());
    front_ = load_be<uint64_t>(bytes.data());
  }
  void write(std::byte* packet, Psn psn) const {
    store_be(packet, front_);
    store_be(packet + kPsnWord, psn.value());
  }
  // Aside from what a MIDDLE packet's receiver ignores: SE, MigReq and the byte of FECN and BECN.
  bool matches(const std::byte* packet, Psn psn) const {
    const uint64_t differs = (load_be<uint64_t>(packet) ^ front_) & ~kIgnored;
    return differs == 0 && (load_be<uint32_t>(packet + kPsnWord) & kPsnMask) == psn.value();
  }
  static bool ack_request(const std::byte* packet) {
    return (load_be<uint32_t>(packet + kPsnWord) & kAckRequest) != 0;
  }

 private:
  static constexpr size_t kPsnWord = 8;
  static constexpr uint32_t kPsnMask = 0xFF'FFFF;
  static constexpr uint32_t kAckRequest = uint32_t{1} << 31;
  static constexpr uint64_t kIgnored = 0x00C0'0000'FF00'0000;
  uint64_t front_;
};

}  // namespace

size_t write_run(Turn& turn, const model::Qp& qp, wire::Opcode opcode, Psn first,
                 const std::byte* from, size_t count) {
  const size_t mtu = model::bytes_of(qp.attributes.path_mtu);
  const size_t size = wire::packet_size(opcode, mtu);
  const RunHeader header(qp.attributes.destination_qpn, opcode, qp.bth_reserved);
  const wire::IcrcRun icrc(*turn.context.icrc, Bth::kSize, mtu);
  const uint16_t identification = turn.burst().next_identification();
  std::byte* const place = turn.burst().append_run(size, count);
  const size_t written = guarded_run(count, [&](size_t i) {
    header.write(place + i * size, first + static_cast<uint32_t>(i));
    icrc.seal(place + i * size, from + i * mtu, static_cast<uint16_t>(identification + i));
    return true;
  });
  if (written < count) turn.burst().retract(size, count - written);
  return written;
}

RunTaken take_run(const ReceivedRun& received, const model::Qp& qp, wire::Opcode opcode, Psn first,
                  std::byte* to, size_t most) {
  const size_t mtu = model::bytes_of(qp.attributes.path_mtu);
  const size_t size = wire::packet_size(opcode, mtu);
  const PacketContext& context = received.context;
  if (received.segment_size != size || context.unchecked == nullptr) return {};
  const bool numbered = context.unchecked->has_ip_id();
  const uint16_t identification = numbered ? context.expected_ip_id : 0;
  // Numbers that are not small are for the guard to judge, one by one.
  const size_t small = wire::IdentificationGuard::kOurs;
  if (identification >= small) return {};
  size_t count = std::min(received.bytes.size() / size, most);
  if (numbered) count = std::min(count, small - identification);

  const std::byte* const packets = received.bytes.data();
  const RunHeader header(qp.qpn, opcode, 0);
  const wire::IcrcRun icrc(*context.unchecked, Bth::kSize, mtu);
  RunTaken taken;
  taken.packets = guarded_run(count, [&](size_t i) {
    const std::byte* const packet = packets + i * size;
    return header.matches(packet, first + static_cast<uint32_t>(i)) &&
           icrc.verify_and_copy(packet, to + i * mtu,
                                static_cast<uint16_t>(numbered ? identification + i : 0));
  });
  if (taken.packets == 0) return taken;
  for (size_t i = 0; i < taken.packets; ++i) {
    taken.ack_request |= RunHeader::ack_request(packets + i * size);
  }
  if (context.identifications != nullptr) {
    context.identifications->accept_run(identification, taken.packets);
  }
  return taken;
}

}  // namespace farverbs::proto
