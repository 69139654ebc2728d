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
