#include "farverbs/proto/placing.h"

#include <cstring>

#include "farverbs/base/fault_guard.h"
#include "farverbs/wire/icrc.h"

namespace farverbs::proto {

bool intact(const wire::PacketView& packet, const PacketContext& context) {
  return context.unchecked == nullptr ||
         wire::verify(*context.unchecked, packet, context.expected_ip_id).ok;
}

Placed place(const wire::PacketView& packet, const PacketContext& context, bool checked,
             std::span<const std::span<std::byte>> pieces) {
  if (context.unchecked == nullptr) checked = true;
  bool holds = true;
  const bool there = guarded([&] {
    if (!checked) {
      holds = wire::verify_and_copy(*context.unchecked, packet, pieces, context.expected_ip_id).ok;
      return;
    }
    const std::byte* from = packet.payload().data();
    for (const std::span<std::byte> piece : pieces) {
      std::memcpy(piece.data(), from, piece.size());
      from += piece.size();
    }
  });
  if (!there) return Placed::kFault;
  return holds ? Placed::kDone : Placed::kDamaged;
}

}  // namespace farverbs::proto
