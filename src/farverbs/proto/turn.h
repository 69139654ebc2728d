// What the machines of a QP share: one call of poll_transmit() as it goes on (Turn), and the
// arithmetic of packets in messages. IBTA vol. 1 chapter 9.7.2 (packet numbering).
#pragma once

#include <algorithm>
#include <cstdint>

#include "farverbs/base/ids.h"
#include "farverbs/proto/queue_pair.h"
#include "farverbs/wire/roce.h"

namespace farverbs::proto {

// PSNs that `length` bytes take: an empty message is a packet, too.
constexpr uint64_t packets_for(uint64_t length, uint32_t mtu) {
  return length <= mtu ? 1 : (length + mtu - 1) / mtu;
}

// Where a QP's 64-bit packet numbers begin: far enough from zero that no PSN extends below it.
constexpr PacketNumber first_packet_number(Psn psn) {
  return (PacketNumber{1} << 32) + psn.value();
}

// One call of poll_transmit().
struct Turn {
  const TransmitContext& context;
  uint64_t request_left;  // bytes
  uint64_t read_left;     // bytes
  TransmitResult result;

  explicit Turn(const TransmitContext& c)
      : context(c), request_left(c.request_allowance), read_left(c.read_allowance) {}

  Time now() const { return context.now; }
  wire::TxBurst& burst() { return *context.burst; }
  bool quantum_used() const { return result.packets >= context.max_packets; }
  bool last_of_quantum() const { return result.packets + 1 >= context.max_packets; }
  bool fits(size_t size) const { return context.burst->fits(size); }
  // How many packets of `size` bytes may be written in a row and leave quantum and burst open for
  // one more step of the general path.
  uint64_t run_room(size_t size) const {
    const uint64_t quantum = context.max_packets - std::min(context.max_packets, result.packets);
    return std::min<uint64_t>(quantum, context.burst->room(size));
  }
  void charge_request(uint64_t bytes) {
    request_left -= std::min(request_left, bytes);
    result.request_bytes += bytes;
  }
  // A packet that nobody acknowledges: it uses the allowance up but never leaves the flight, so it
  // does not enter it.
  void spend_unacknowledged(uint64_t bytes) {
    request_left -= std::min(request_left, bytes);
    ++result.packets;
  }
  void charge_read(uint64_t bytes) {
    read_left -= std::min(read_left, bytes);
    result.read_bytes += bytes;
  }
};

}  // namespace farverbs::proto
