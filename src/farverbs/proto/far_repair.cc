// Forward error correction in the far machine: docs/far-transport.md section 8.
#include <algorithm>

#include "farverbs/model/traffic_class.h"
#include "farverbs/proto/far_machine.h"

namespace farverbs::proto {

using wire::Opcode;
using wire::OpKind;

namespace {

constexpr uint8_t kRestoredMask = 63;
constexpr uint8_t kEcnMarks = 3;

constexpr bool can_be_restored(OpKind kind) {
  using enum OpKind;
  return kind == send || kind == write || kind == read_request || kind == compare_swap ||
         kind == fetch_add || kind == read_response || kind == atomic_ack;
}

}  // namespace

bool FarMachine::protects() const {
  switch (config_.far_repairs) {
    case FarRepairs::kOff:
      return false;
    case FarRepairs::kRealtime:
      return model::class_of(qp_.attributes.address_vector) == model::TrafficClass::kRealtime;
    case FarRepairs::kAll:
      return true;
  }
  return false;
}

// What the peer restored was lost on the way: the controller and the redundancy go by that.
void FarMachine::note_restored(const wire::FarAck& ack, uint32_t acked) {
  peer_restores_ |= ack.restores;
  uint32_t restored = (ack.restored - restored_told_) & kRestoredMask;
  // An older acknowledgement that was overtaken looks like a great step.
  if (restored > kRestoredMask / 2) restored = 0;
  if (restored > 0) restored_told_ = ack.restored;
  restored = std::min(restored, acked);
  feedback_.restored_packets += restored;
  if (restored > 0 && protector_ == nullptr && protects()) {
    protector_ = std::make_unique<FarProtector>();
  }
  if (protector_ != nullptr) protector_->count(acked - restored, restored);
}

void FarMachine::keep(PacketNumber number, const wire::PacketView& packet) {
  if (restoring_ || config_.far_repairs == FarRepairs::kOff ||
      !can_be_restored(packet.info->kind)) {
    return;
  }
  if (restorer_ == nullptr) restorer_ = std::make_unique<FarRestorer>();
  restorer_->keep(number, packet.bytes());
}

bool FarMachine::on_repair(PacketNumber number, const wire::PacketView& packet) {
  if (config_.far_repairs == FarRepairs::kOff) return true;
  if (restorer_ == nullptr) restorer_ = std::make_unique<FarRestorer>();
  return restorer_->on_repair(number, packet.far_repair(), packet.payload());
}

// A restored packet is the peer's word like any other: nothing of it is believed but that it is
// whole.
void FarMachine::restore(Time now, const PacketContext& context) {
  PacketContext proved = context;
  proved.unchecked = nullptr;
  proved.traffic_class &= static_cast<uint8_t>(~kEcnMarks);
  proved.source = home();
  restoring_ = true;
  restorer_->restore([&](PacketNumber number, std::span<const std::byte> bytes) {
    const wire::ParseResult packet = wire::parse(bytes);
    if (!packet.ok() || !packet->has(wire::Extension::far_base) ||
        !can_be_restored(packet->info->kind) || packet->bth.dest_qp != qp_.qpn) {
      ++qp_.counters.dropped_packets;
      return;
    }
    const wire::FarBase base = packet->far_base();
    const PacketNumber its =
        extend_far_number(base.number_high, packet->bth.psn, arrivals_.greatest());
    if (!base.repairable || its != number || arrivals_.seen(number)) return;
    if (!on_numbered(now, *packet, proved)) return;
    ++restored_;
    ++qp_.counters.restored_packets;
  });
  restoring_ = false;
}

TransmitStatus FarMachine::send_repairs(FarOut& out) {
  // What a probe timeout sends is data.
  while (protector_ != nullptr && protector_->pending() && out.forced == 0) {
    const FarProtector::Repair repair = protector_->front();
    const size_t size = wire::packet_size(Opcode::far_repair, repair.symbol.size());
    if (size <= out.turn.context.datagram_bytes) {
      const TransmitStatus status = out.may_write(size);
      if (status != TransmitStatus::kIdle) return status;
      FarOut::Shape shape{Opcode::far_repair};
      shape.ack_request = repair.header.index + 1 == repair.header.repairs;
      FarPacket record;
      record.content = FarContent::kRepair;
      out.write(shape, record, std::span(&repair.symbol, 1), repair.symbol.size(), false,
                repair.header);
      ++qp_.counters.sent_repairs;
    }
    protector_->pop();
  }
  return TransmitStatus::kIdle;
}

}  // namespace farverbs::proto
