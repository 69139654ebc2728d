// What two rsockets say to each other beside their data (librdmacm's rsocket protocol, version 1):
// the private data of REQ and REP, and the immediate data of RDMA WRITEs.
#pragma once

#include "farverbs/wire/field.h"

namespace farverbs::wire {

struct RsocketConnect {
  static constexpr size_t kSize = 40;
  static constexpr uint8_t kBigEndian = 1;  // flags: this end's tables are big-endian
  static constexpr uint8_t kIomaps = 2;     // flags: the table of mappings follows that of buffers
  uint8_t version = 1;
  uint8_t flags = 0;
  uint16_t credits = 0;  // messages that may be sent before more credits come
  uint32_t reserved = 0;
  uint8_t iomap_size = 0;      // mappings that the peer may have, scaled
  uint64_t table_address = 0;  // where to write about buffers
  uint32_t table_key = 0;
  uint32_t table_length = 0;    // entries
  uint64_t buffer_address = 0;  // the first buffer
  uint32_t buffer_key = 0;
  uint32_t buffer_length = 0;
  bool operator==(const RsocketConnect&) const = default;

  static constexpr auto kFields =
      std::tuple(bind_field(&RsocketConnect::version, {0, 0, 8}),
                 bind_field(&RsocketConnect::flags, {1, 0, 8}),
                 bind_field(&RsocketConnect::credits, {2, 0, 16}),
                 bind_field(&RsocketConnect::reserved, {4, 0, 24}),
                 bind_field(&RsocketConnect::iomap_size, {7, 0, 8}),
                 bind_field(&RsocketConnect::table_address, {8, 0, 64}),
                 bind_field(&RsocketConnect::table_key, {16, 0, 32}),
                 bind_field(&RsocketConnect::table_length, {20, 0, 32}),
                 bind_field(&RsocketConnect::buffer_address, {24, 0, 64}),
                 bind_field(&RsocketConnect::buffer_key, {32, 0, 32}),
                 bind_field(&RsocketConnect::buffer_length, {36, 0, 32}));
};
FV_CHECK_LAYOUT(RsocketConnect);

// Before the data of a datagram from QP to QP: who sends it. What follows is the IPv4 address, or
// four bytes of flow information and the IPv6 address.
struct RsocketDatagram {
  static constexpr size_t kSize = 4;
  static constexpr size_t kIpv4Size = 8;  // with the address
  static constexpr size_t kIpv6Size = 24;
  uint8_t version = 4;
  uint8_t length = kIpv4Size;
  uint16_t port = 0;
  bool operator==(const RsocketDatagram&) const = default;

  static constexpr auto kFields = std::tuple(bind_field(&RsocketDatagram::version, {0, 0, 8}),
                                             bind_field(&RsocketDatagram::length, {1, 0, 8}),
                                             bind_field(&RsocketDatagram::port, {2, 0, 16}));
};
FV_CHECK_LAYOUT(RsocketDatagram);

// Before the data of a datagram over UDP, which goes there as long as the peer's QP is not known:
// it tells this end's. The sender's address follows.
struct RsocketUdp {
  static constexpr size_t kSize = 12;
  static constexpr uint32_t kTag = 0x5555'5555;
  static constexpr size_t kIpv4Size = 16;
  static constexpr size_t kIpv6Size = 28;
  uint32_t tag = kTag;
  uint8_t version = 4;
  uint8_t op = 0;  // RsocketOp::data, or control: nothing but the QP number
  uint8_t length = kIpv4Size;
  uint8_t reserved_7 = 0;
  uint8_t reserved_8 = 0;
  Qpn qpn;
  bool operator==(const RsocketUdp&) const = default;

  static constexpr auto kFields = std::tuple(
      bind_field(&RsocketUdp::tag, {0, 0, 32}), bind_field(&RsocketUdp::version, {4, 0, 8}),
      bind_field(&RsocketUdp::op, {5, 0, 8}), bind_field(&RsocketUdp::length, {6, 0, 8}),
      bind_field(&RsocketUdp::reserved_7, {7, 0, 8}),
      bind_field(&RsocketUdp::reserved_8, {8, 0, 8}), bind_field(&RsocketUdp::qpn, {9, 0, 24}));
};
FV_CHECK_LAYOUT(RsocketUdp);

// The upper three bits of the immediate data; the rest is its value.
enum class RsocketOp : uint8_t {
  data = 0,     // bytes written to the current buffer
  buffer = 4,   // credits; if something was written, a new buffer's place
  mapping = 6,  // the index of a mapping that was written
  control = 7,
};
enum class RsocketControl : uint32_t { disconnect = 0, keepalive = 1, shutdown = 2 };

constexpr uint32_t rsocket_message(RsocketOp op, uint32_t value) {
  return (uint32_t{static_cast<uint8_t>(op)} << 29) | (value & 0x1FFF'FFFF);
}
constexpr RsocketOp rsocket_op(uint32_t message) { return static_cast<RsocketOp>(message >> 29); }
constexpr uint32_t rsocket_value(uint32_t message) { return message & 0x1FFF'FFFF; }

}  // namespace farverbs::wire
