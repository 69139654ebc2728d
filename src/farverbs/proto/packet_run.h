// Runs: MIDDLE packets of one message that follow one another in a burst. They differ in PSN,
// AckReq and payload and carry nothing but a BTH, so one look at the memory, one fault guard and
// one header serve them all. Most bytes of a long message travel in them.
//
// A run does what the general path (build_packet, on_packet) would do packet by packet; whatever is
// out of the ordinary, a damaged packet or memory that has gone, ends it, and the general path
// deals with that packet. packet_run_test.cc holds the two against each other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "farverbs/proto/queue_pair.h"
#include "farverbs/proto/turn.h"
#include "farverbs/wire/opcode.h"

namespace farverbs::proto {

// Appends `count` packets with PSNs from `first` on and a full path MTU of payload each, which
// stands at `from`, to the turn's burst; at most Turn::run_room(). Returns how many: fewer when
// memory is gone.
size_t write_run(Turn& turn, const model::Qp& qp, wire::Opcode opcode, Psn first,
                 const std::byte* from, size_t count);

// Takes a run from the front of `received`: full packets of `opcode` for this QP with PSNs from
// `first` on. Their payload goes to `to`, which has room for `most` of them.
struct RunTaken {
  size_t packets = 0;
  bool ack_request = false;  // of any of them
};
RunTaken take_run(const ReceivedRun& received, const model::Qp& qp, wire::Opcode opcode, Psn first,
                  std::byte* to, size_t most);

}  // namespace farverbs::proto
