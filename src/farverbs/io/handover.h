// What processes of one host put before datagrams that they hand over to each other on unix
// sockets: where they came from and were sent to. Only processes of the same user (or root) are
// believed.
#pragma once

#include <cstddef>
#include <span>

#include "farverbs/io/port.h"

namespace farverbs::io {

inline constexpr size_t kHandoverHeaderBytes = 48;

// All of the burst but its bytes.
void put_handover_header(std::byte* header, const RxBurst& burst);
// False if it is no such header.
bool get_handover_header(const std::byte* header, RxBurst& burst);
enum class Handover {
  kNothing,   // there is no message
  kRejected,  // malformed, or from another user by the credentials that came with it (SO_PASSCRED)
  kTaken,
};
// Takes a message off the socket; burst.bytes is the part of `payload` that it fills.
Handover receive_handover(int fd, std::span<std::byte> payload, RxBurst& burst);

}  // namespace farverbs::io
