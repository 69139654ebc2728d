#include "farverbs/proto/placing.h"

#include <cstring>

#include "farverbs/base/fault_guard.h"
#include "farverbs/wire/icrc.h"

namespace farverbs::proto {

namespace {

bool holds(const wire::IcrcCheck& check, const PacketContext& context) {
  return check.ok &&
         (context.identifications == nullptr || context.identifications->accept(check.ip_id));
}

}  // namespace

bool intact(const wire::PacketView& packet, const PacketContext& context) {
  return context.unchecked == nullptr ||
         holds(wire::verify(*context.unchecked, packet, context.expected_ip_id), context);
}

Placed place(const wire::PacketView& packet, const PacketContext& context, bool checked,
             std::span<const std::span<std::byte>> pieces) {
  if (context.unchecked == nullptr) checked = true;
  wire::IcrcCheck check{true, 0};
  const bool there = guarded([&] {
    if (!checked) {
      check = wire::verify_and_copy(*context.unchecked, packet, pieces, context.expected_ip_id);
      return;
    }
    const std::byte* from = packet.payload().data();
    for (const std::span<std::byte> piece : pieces) {
      std::memcpy(piece.data(), from, piece.size());
      from += piece.size();
    }
  });
  if (!there) return Placed::kFault;
  return checked || holds(check, context) ? Placed::kDone : Placed::kDamaged;
}

}  // namespace farverbs::proto
