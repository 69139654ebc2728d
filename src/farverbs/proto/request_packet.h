// The packets of SEND and WRITE requests, which RC and UC send alike: which opcode, which bytes,
// and building one into a burst with a single pass over the payload. IBTA vol. 1 chapters 9.2
// to 9.4.
#pragma once

#include <cstddef>
#include <cstdint>

#include "farverbs/model/qp.h"
#include "farverbs/proto/sge_walker.h"
#include "farverbs/proto/turn.h"
#include "farverbs/wire/icrc.h"
#include "farverbs/wire/roce.h"

namespace farverbs::proto {

constexpr bool is_read(model::SendOpcode opcode) { return opcode == model::SendOpcode::kRead; }
constexpr bool is_atomic(model::SendOpcode opcode) {
  return opcode == model::SendOpcode::kCompareSwap || opcode == model::SendOpcode::kFetchAdd;
}
// Ends only with its own response.
constexpr bool wants_response(model::SendOpcode opcode) {
  return is_read(opcode) || is_atomic(opcode);
}
constexpr bool is_local(model::SendOpcode opcode) {
  return opcode == model::SendOpcode::kLocalInvalidate || opcode == model::SendOpcode::kBindWindow;
}
constexpr bool is_write(model::SendOpcode opcode) {
  return opcode == model::SendOpcode::kWrite || opcode == model::SendOpcode::kWriteWithImmediate;
}
// Takes a receive at the other side.
constexpr bool takes_receive(model::SendOpcode opcode) {
  return opcode == model::SendOpcode::kSend || opcode == model::SendOpcode::kSendWithImmediate ||
         opcode == model::SendOpcode::kSendWithInvalidate ||
         opcode == model::SendOpcode::kWriteWithImmediate;
}

// Packet number `index` of a SEND or WRITE.
struct RequestPacket {
  wire::Opcode opcode;
  uint32_t offset;  // of its payload in the message
  uint32_t length;  // payload bytes
  bool begins;
  bool ends;
  size_t size;  // UDP payload
};
RequestPacket plan_packet(const model::SendWqe& wqe, uint32_t index, uint32_t mtu,
                          wire::Service service);

// UDP payload bytes of packets [from, to) of a request that is `wqe`: what flow control counts.
// An atomic counts as its request; a READ counts nothing (its responses are counted elsewhere).
uint64_t request_bytes(const model::SendWqe& wqe, uint32_t from, uint32_t to, uint32_t mtu);

// UDP payload bytes of READ responses [from, to) of a message of `length` bytes. AETHs aside, so
// that it doesn't depend on how the message is cut into wire requests.
uint64_t response_bytes(uint64_t length, uint64_t from, uint64_t to, uint32_t mtu);

// The BTH that all packets of a connected QP begin with.
wire::Bth base_header(const model::Qp& qp, wire::Opcode opcode, Psn psn);

// Appends the packet to the turn's burst, which it fits. False, with nothing appended, if its
// memory may not be read or is gone.
bool build_packet(Turn& turn, const model::Qp& qp, const model::SendWqe& wqe,
                  const RequestPacket& packet, Psn psn, bool ack_request, SgeWalker& walker);

}  // namespace farverbs::proto
