// SlotChannel: a claimed slot and its unix socket. A datagram that the kernel gave to the wrong
// process is handed to its owner with its source, destination and traffic class. Bounded by the
// socket's queue; nothing blocks. Only processes of the same user (or root) are believed, which are
// those that SO_REUSEPORT lets share the UDP port.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "farverbs/io/file_descriptor.h"
#include "farverbs/io/port.h"
#include "farverbs/io/slot_names.h"

namespace farverbs::io {

enum class Forwarding {
  kForwarded,
  kNoOwner,  // nobody has the slot: its process has ended
  kFull,     // the owner does not keep up, as a full receive buffer
};

class SlotChannel {
 public:
  // Claims the lowest free slot of the endpoint: where no member has left yet, slots are then the
  // indices of the members' sockets in the kernel. Or `wanted` and no other (EADDRINUSE).
  static Result<SlotChannel> claim(const Endpoint& endpoint,
                                   std::optional<uint8_t> wanted = std::nullopt);

  uint8_t slot() const { return slot_; }
  int fd() const { return fd_.get(); }

  // Hands the burst's datagrams, which are all for one slot, to its owner.
  Forwarding forward(uint8_t slot, const RxBurst& burst);

  // Takes one burst that others have handed over; its bytes are valid until the next call. False if
  // there is none.
  bool receive(RxBurst& burst);
  uint64_t rejected() const { return rejected_; }  // malformed, or from another user

 private:
  static constexpr size_t kPayloadBytes = size_t{64} << 10;

  SlotChannel(const Endpoint& endpoint, uint8_t slot, FileDescriptor fd);

  AbstractAddress slots_;
  uint8_t slot_;
  FileDescriptor fd_;
  std::unique_ptr<std::byte[]> payload_;
  uint64_t rejected_ = 0;
};

}  // namespace farverbs::io
