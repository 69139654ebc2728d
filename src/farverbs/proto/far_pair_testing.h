// Two far QPs joined in memory, in virtual time, for tests of the whole machine: what packets are,
// which were delivered, and acknowledgements written by hand.
#pragma once

#include "farverbs/proto/far_arrivals.h"
#include "farverbs/proto/far_sent.h"
#include "farverbs/proto/far_testing.h"

namespace farverbs::proto::testing {

inline Options far_options() {
  Options options;
  options.far = true;
  return options;
}

struct FarSeen {
  Opcode opcode;
  PacketNumber number;
  uint32_t message;
  bool numbered() const { return opcode != Opcode::far_ack; }
};
inline FarSeen seen(const Bytes& bytes) {
  const wire::ParseResult parsed = wire::parse(bytes);
  const wire::PacketView& packet = *parsed;
  const wire::FarBase base = packet.far_base();
  return {packet.opcode(),
          extend_far_number(base.number_high, packet.bth.psn, PacketNumber{1} << 32), base.message};
}

// An acknowledgement from the peer: numbers up to `greatest`, `first` of them without a gap.
struct FarAnswer {
  PacketNumber greatest = 0;
  uint32_t first = 0;
  uint32_t executed = 0;
  wire::FarStatus status = wire::FarStatus::ok;
  uint8_t detail = 0;
  bool limited = false;
  uint32_t limit = 0;
  uint32_t delay_us = 0;
  uint32_t time_us = 0;
  uint32_t marks = 0;
  std::vector<wire::FarRange> ranges = {};
  bool restores = false;
  uint8_t restored = 0;
  int range_count = -1;  // what the header says; -1: the truth
};
inline Bytes far_answer(const FarAnswer& answer) {
  wire::FarAck ack;
  ack.status = static_cast<uint8_t>(answer.status);
  ack.detail = answer.detail;
  ack.has_receive_limit = answer.limited;
  ack.receive_limit = answer.limit;
  ack.delay_us = answer.delay_us;
  ack.receive_time_us = answer.time_us;
  ack.congestion_marks = answer.marks;
  ack.first_range = answer.first;
  ack.restores = answer.restores;
  ack.restored = answer.restored;
  ack.range_count = static_cast<uint8_t>(
      answer.range_count < 0 ? answer.ranges.size() : static_cast<size_t>(answer.range_count));
  Bytes ranges(answer.ranges.size() * wire::FarRange::kSize);
  for (size_t i = 0; i < answer.ranges.size(); ++i) {
    wire::emit_header(answer.ranges[i], ranges.data() + i * wire::FarRange::kSize);
  }
  return numbered(far_packet(Opcode::far_ack, answer.executed, false, ranges, ack),
                  answer.greatest);
}

// One far QP whose peer the test plays.
class FarScripted {
 public:
  static constexpr PacketNumber kFirst = (PacketNumber{1} << 32) + 100;

  explicit FarScripted(const Options& options = far_options()) : a(1, options), ghost(2, options) {
    a.connect(ghost);
  }
  void say(const Bytes& packet) { a.arrive(packet, ghost.flow, ghost.number); }
  void answer(const FarAnswer& answer) { say(far_answer(answer)); }
  std::vector<FarSeen> poll() {
    std::vector<FarSeen> all;
    for (const Bytes& packet : a.poll()) all.push_back(seen(packet));
    return all;
  }
  void pass(Duration time) { a.now = a.now + time; }

  Side a;
  Side ghost;  // only its memory and keys are used
};

}  // namespace farverbs::proto::testing
