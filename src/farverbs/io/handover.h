// What processes of one host put before datagrams that they hand over to each other on unix
// sockets: where they came from and were sent to. Only processes of the same user (or root) are
// believed.
#pragma once

#include <sys/socket.h>

#include <cstddef>

#include "farverbs/io/port.h"

namespace farverbs::io {

inline constexpr size_t kHandoverHeaderBytes = 48;

// All of the burst but its bytes.
void put_handover_header(std::byte* header, const RxBurst& burst);
// False if it is no such header.
bool get_handover_header(const std::byte* header, RxBurst& burst);
// By the credentials that came with the message (SO_PASSCRED).
bool from_this_user(const msghdr& message);

}  // namespace farverbs::io
