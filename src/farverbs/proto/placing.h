// Placing a packet's payload: one pass that copies it and, if that was not done before, checks the
// ICRC. Application memory may be gone; then the fault is reported, not suffered.
#pragma once

#include <cstddef>
#include <span>

#include "farverbs/proto/queue_pair.h"

namespace farverbs::proto {

// True if the packet's ICRC holds or has been checked before.
bool intact(const wire::PacketView& packet, const PacketContext& context);

enum class Placed : uint8_t {
  kDone,
  kDamaged,  // the ICRC is wrong; bytes of `pieces` may have been written
  kFault,    // memory was not there; the ICRC is still unchecked if it was
};

// Copies the payload into the pieces, in order. `checked`: the ICRC holds.
Placed place(const wire::PacketView& packet, const PacketContext& context, bool checked,
             std::span<const std::span<std::byte>> pieces);

}  // namespace farverbs::proto
