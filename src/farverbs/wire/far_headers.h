// The headers of the far transport (docs/far-transport.md), which stand behind a BTH with one of
// the manufacturer opcodes 0xC0 to 0xFF: as plain values, each field declared once; see field.h.
// The BTH's PSN and FarBase::number_high together are the packet number; in an acknowledgement
// they are the greatest packet number that has arrived.
#pragma once

#include "farverbs/wire/field.h"

namespace farverbs::wire {

// In every packet.
struct FarBase {
  static constexpr size_t kSize = 8;
  uint16_t number_high = 0;  // packet number bits 24 to 39
  bool last = false;         // the message's last byte is in this packet
  bool repairable = false;   // belongs to a block of forward error correction
  bool side_port = false;    // it comes from a port that nobody answers to: no change of address
  uint8_t reserved = 0;
  // How often the sender wants acknowledgements: one for every 2^ack_ratio packets, and at the
  // latest 2^ack_delay * 16 us (0: at once) after a packet arrived.
  uint8_t ack_ratio = 0;
  uint8_t ack_delay = 0;
  // Requests and their responses: the request's number. Acknowledgements: how many of the peer's
  // requests have been carried out, in order.
  uint32_t message = 0;
  bool operator==(const FarBase&) const = default;

  static constexpr auto kFields = std::tuple(
      bind_field(&FarBase::number_high, {0, 0, 16}), bind_field(&FarBase::last, {2, 0, 1}),
      bind_field(&FarBase::repairable, {2, 1, 1}), bind_field(&FarBase::side_port, {2, 2, 1}),
      bind_field(&FarBase::reserved, {2, 3, 5}), bind_field(&FarBase::ack_ratio, {3, 0, 4}),
      bind_field(&FarBase::ack_delay, {3, 4, 4}), bind_field(&FarBase::message, {4, 0, 32}));
};
FV_CHECK_LAYOUT(FarBase);

// WRITE: where this packet's payload goes, whatever came before.
struct FarPlace {
  static constexpr size_t kSize = 16;
  uint64_t address = 0;  // of the payload's first byte at the responder
  MemoryKey rkey;
  uint32_t offset = 0;  // of that byte in the message
  bool operator==(const FarPlace&) const = default;

  static constexpr auto kFields = std::tuple(bind_field(&FarPlace::address, {0, 0, 64}),
                                             bind_field(&FarPlace::rkey, {8, 0, 32}),
                                             bind_field(&FarPlace::offset, {12, 0, 32}));
};
FV_CHECK_LAYOUT(FarPlace);

// SEND and WRITE with immediate: which receive the message takes, counted from the connection's
// start.
struct FarSequence {
  static constexpr size_t kSize = 4;
  uint32_t receive = 0;
  bool operator==(const FarSequence&) const = default;

  static constexpr auto kFields = std::tuple(bind_field(&FarSequence::receive, {0, 0, 32}));
};
FV_CHECK_LAYOUT(FarSequence);

// SEND and READ response: the payload's place in the message.
struct FarOffset {
  static constexpr size_t kSize = 4;
  uint32_t offset = 0;
  bool operator==(const FarOffset&) const = default;

  static constexpr auto kFields = std::tuple(bind_field(&FarOffset::offset, {0, 0, 32}));
};
FV_CHECK_LAYOUT(FarOffset);

// What an acknowledgement says of the peer's requests.
enum class FarStatus : uint8_t {
  ok = 0,
  not_ready = 1,  // no receive for the message that takes receive `receive_limit`; wait, send again
  refused = 2,    // request number FarBase::message can't be carried out; `detail` says why
};

// Acknowledgement; behind it stand range_count FarRanges.
struct FarAck {
  static constexpr size_t kSize = 24;
  uint8_t status = 0;  // FarStatus
  uint8_t detail = 0;  // not_ready: code of the RNR timer; refused: NakCode
  // False: nothing is promised about receives (they are shared with other QPs).
  bool has_receive_limit = false;
  bool restores = false;  // this side restores packets from REPAIR packets
  uint8_t restored = 0;   // how many it has restored so far, low 6 bits
  uint8_t range_count = 0;
  uint32_t receive_limit = 0;     // receives 0 .. receive_limit - 1 have been posted
  uint32_t delay_us = 0;          // from the arrival of the greatest number to this packet
  uint32_t receive_time_us = 0;   // when it arrived, on the receiver's clock
  uint32_t congestion_marks = 0;  // packets that have arrived with ECN CE, all together
  uint32_t first_range = 0;       // packets without a gap, up to the greatest; at least 1
  bool operator==(const FarAck&) const = default;

  static constexpr auto kFields = std::tuple(
      bind_field(&FarAck::status, {0, 0, 8}), bind_field(&FarAck::detail, {1, 0, 8}),
      bind_field(&FarAck::has_receive_limit, {2, 0, 1}), bind_field(&FarAck::restores, {2, 1, 1}),
      bind_field(&FarAck::restored, {2, 2, 6}), bind_field(&FarAck::range_count, {3, 0, 8}),
      bind_field(&FarAck::receive_limit, {4, 0, 32}), bind_field(&FarAck::delay_us, {8, 0, 32}),
      bind_field(&FarAck::receive_time_us, {12, 0, 32}),
      bind_field(&FarAck::congestion_marks, {16, 0, 32}),
      bind_field(&FarAck::first_range, {20, 0, 32}));
};
FV_CHECK_LAYOUT(FarAck);

// Below the range before: so many packet numbers that have not arrived, then so many that have.
struct FarRange {
  static constexpr size_t kSize = 4;
  uint16_t missing = 0;
  uint16_t arrived = 0;
  bool operator==(const FarRange&) const = default;

  static constexpr auto kFields = std::tuple(bind_field(&FarRange::missing, {0, 0, 16}),
                                             bind_field(&FarRange::arrived, {2, 0, 16}));
};
FV_CHECK_LAYOUT(FarRange);

// Path challenge and path response: a number that only who gets packets at that address can know.
struct FarToken {
  static constexpr size_t kSize = 8;
  uint64_t token = 0;
  bool operator==(const FarToken&) const = default;

  static constexpr auto kFields = std::tuple(bind_field(&FarToken::token, {0, 0, 64}));
};
FV_CHECK_LAYOUT(FarToken);

// Repair symbol of a block of forward error correction: the block's packets are `count` numbers
// from `first` on; this is symbol `index` of `repairs`.
struct FarRepair {
  static constexpr size_t kSize = 8;
  uint32_t first_low = 0;  // packet number bits 0 to 31
  uint8_t count = 0;
  uint8_t index = 0;
  uint8_t repairs = 0;
  uint8_t reserved = 0;
  bool operator==(const FarRepair&) const = default;

  static constexpr auto kFields = std::tuple(
      bind_field(&FarRepair::first_low, {0, 0, 32}), bind_field(&FarRepair::count, {4, 0, 8}),
      bind_field(&FarRepair::index, {5, 0, 8}), bind_field(&FarRepair::repairs, {6, 0, 8}),
      bind_field(&FarRepair::reserved, {7, 0, 8}));
};
FV_CHECK_LAYOUT(FarRepair);

}  // namespace farverbs::wire
