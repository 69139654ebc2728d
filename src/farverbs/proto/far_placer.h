// FarPlacer: writes the payload of a far message's packet to where it belongs, without the bytes
// that are there already and those that a later message has written (docs/far-transport.md, section
// 4). The packet has proved whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "farverbs/model/qp.h"
#include "farverbs/proto/far_messages.h"
#include "farverbs/proto/far_receives.h"

namespace farverbs::proto {

enum class FarPlaced : uint8_t {
  kDone,
  kNoRoom,      // to remember that it has come; nothing changed
  kFault,       // memory was not there
  kProtection,  // the receive's own memory can't be written
};

class FarPlacer {
 public:
  FarPlacer(model::Qp& qp, FarMessages& messages) : qp_(qp), messages_(messages) {}

  // Bytes [offset, offset + payload.size()) of message `number`: a WRITE whose memory is known, or
  // a SEND that has its receive with room for them.
  FarPlaced place(uint64_t number, FarMessage& message, uint32_t offset,
                  std::span<const std::byte> payload);
  size_t memory_bytes() const { return copies_.capacity() * sizeof(Copy); }
  void reset() { copies_ = decltype(copies_)(); }

 private:
  struct Copy {
    std::byte* to;
    const std::byte* from;
    size_t size;
  };
  void spare_later_writes(uint64_t number);
  void spare(const FarMessage& later);
  void spare_run(const FarMessage& later, uintptr_t memory, uint32_t begin, uint32_t end);

  model::Qp& qp_;
  FarMessages& messages_;
  std::vector<Copy> copies_;  // of one call
};

}  // namespace farverbs::proto
