// One captured packet, taken apart and, on request, checked: what decode prints.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "farverbs/wire/frame.h"
#include "farverbs/wire/mad.h"
#include "farverbs/wire/roce.h"

namespace farverbs::tools {

struct Examined {
  wire::CapturedPacket captured;
  wire::Frame frame;
  size_t joined = 0;                   // bytes of a far acknowledgement in front, cut off
  wire::ParseResult parsed;            // of frame.packet, if the frame is RoCE
  std::optional<wire::MadHeader> mad;  // of a datagram to or from QP1
  std::vector<std::string> problems;   // why the packet is wrong; empty without `verify`, unless
                                       // the packet cannot be shown at all

  bool is_rdma() const { return frame.kind != wire::FrameKind::other; }
  // True if `parsed` holds a packet.
  bool shown() const {
    return is_rdma() && frame.kind != wire::FrameKind::malformed && parsed.ok();
  }
};

// Borrows the captured bytes.
Examined examine(const wire::CapturedPacket& captured, bool verify);

// An ICRC as its bytes stand on the wire, "78f353f3".
std::string icrc_text(uint32_t icrc);

}  // namespace farverbs::tools
