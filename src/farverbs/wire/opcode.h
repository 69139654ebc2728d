// BTH opcodes (IBTA volume 1, table 38) and what each implies: the service, the kind of packet, its
// place in a message, the extended headers that follow the BTH and in which order, and whether a
// payload may follow them. The packet path looks one opcode up in kOpcodeTable and asks nothing
// else.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "farverbs/wire/far_headers.h"
#include "farverbs/wire/headers.h"

namespace farverbs::wire {

enum class Opcode : uint8_t {
  rc_send_first = 0x00,
  rc_send_middle = 0x01,
  rc_send_last = 0x02,
  rc_send_last_imm = 0x03,
  rc_send_only = 0x04,
  rc_send_only_imm = 0x05,
  rc_write_first = 0x06,
  rc_write_middle = 0x07,
  rc_write_last = 0x08,
  rc_write_last_imm = 0x09,
  rc_write_only = 0x0a,
  rc_write_only_imm = 0x0b,
  rc_read_request = 0x0c,
  rc_read_response_first = 0x0d,
  rc_read_response_middle = 0x0e,
  rc_read_response_last = 0x0f,
  rc_read_response_only = 0x10,
  rc_ack = 0x11,
  rc_atomic_ack = 0x12,
  rc_compare_swap = 0x13,
  rc_fetch_add = 0x14,
  rc_send_last_invalidate = 0x16,
  rc_send_only_invalidate = 0x17,
  uc_send_first = 0x20,
  uc_send_middle = 0x21,
  uc_send_last = 0x22,
  uc_send_last_imm = 0x23,
  uc_send_only = 0x24,
  uc_send_only_imm = 0x25,
  uc_write_first = 0x26,
  uc_write_middle = 0x27,
  uc_write_last = 0x28,
  uc_write_last_imm = 0x29,
  uc_write_only = 0x2a,
  uc_write_only_imm = 0x2b,
  ud_send_only = 0x64,
  ud_send_only_imm = 0x65,
  cnp = 0x81,
  // RD (0x40 + the RC number) and XRC (0xa0 + the RC number) are in the table, without names here.
  // 0xc0 to 0xff are left to manufacturers; these are the far transport's (docs/far-transport.md).
  far_write = 0xc0,
  far_write_imm = 0xc1,
  far_send = 0xc2,
  far_send_imm = 0xc3,
  far_send_invalidate = 0xc4,
  far_read_request = 0xc5,
  far_read_response = 0xc6,
  far_compare_swap = 0xc7,
  far_fetch_add = 0xc8,
  far_atomic_response = 0xc9,
  far_ack = 0xca,
  far_probe = 0xcb,
  far_path_challenge = 0xcc,
  far_path_response = 0xcd,
  far_repair = 0xce,
  manufacturer_first = 0xc0,
  manufacturer_last = 0xff,
};

// The top 3 bits of an opcode for the services that IBTA defines.
enum class Service : uint8_t {
  rc = 0,
  uc = 1,
  rd = 2,
  ud = 3,
  cnp = 4,
  xrc = 5,
  manufacturer = 6,
  none = 7,
};

enum class OpKind : uint8_t {
  unknown,
  send,
  write,
  read_request,
  read_response,
  ack,
  atomic_ack,
  compare_swap,
  fetch_add,
  resync,        // RD only
  notification,  // CNP
  manufacturer,
  // Of the far transport alone.
  probe,
  path_challenge,
  path_response,
  repair,
};

// True for what the requester's side of a QP receives.
constexpr bool is_response(OpKind kind) {
  return kind == OpKind::read_response || kind == OpKind::ack || kind == OpKind::atomic_ack;
}

// Bits, so that "begins a message" is one test: first and only have kBegins, last and only kEnds.
enum class Position : uint8_t { middle = 0, first = 1, last = 2, only = 3 };
constexpr bool begins_message(Position p) { return (static_cast<uint8_t>(p) & 1) != 0; }
constexpr bool ends_message(Position p) { return (static_cast<uint8_t>(p) & 2) != 0; }

// Extended headers in the order in which they stand after the BTH.
enum class Extension : uint8_t {
  rdeth,
  deth,
  xrceth,
  far_base,
  far_place,
  far_sequence,
  far_offset,
  far_ack,
  far_token,
  far_repair,
  reth,
  atomic_eth,
  aeth,
  atomic_ack_eth,
  imm,
  ieth,
  cnp,
};
inline constexpr size_t kExtensionCount = 17;
inline constexpr std::array<uint8_t, kExtensionCount> kExtensionSize = {
    Rdeth::kSize,       Deth::kSize,      XrcEth::kSize, FarBase::kSize,      FarPlace::kSize,
    FarSequence::kSize, FarOffset::kSize, FarAck::kSize, FarToken::kSize,     FarRepair::kSize,
    Reth::kSize,        AtomicEth::kSize, Aeth::kSize,   AtomicAckEth::kSize, ImmDt::kSize,
    Ieth::kSize,        CnpPayload::kSize};

struct OpcodeInfo {
  Service service = Service::none;
  OpKind kind = OpKind::unknown;
  Position position = Position::only;
  uint8_t header_length = Bth::kSize;  // BTH and extended headers, bytes
  uint32_t extensions = 0;             // bit per Extension
  uint16_t max_payload = 0;            // bytes: 0 where a payload is an error, else 65535
  uint8_t length_mask = 3;             // bits of (BTH .. ICRC) length that must be 0
  std::array<uint8_t, kExtensionCount> offset{};  // from the BTH's first byte; 0 if absent

  constexpr bool known() const { return kind != OpKind::unknown; }
  constexpr bool has(Extension e) const {
    return (extensions >> static_cast<unsigned>(e) & 1) != 0;
  }
  constexpr size_t offset_of(Extension e) const { return offset[static_cast<size_t>(e)]; }
  constexpr bool has_payload() const { return max_payload != 0; }
  constexpr bool begins() const { return begins_message(position); }
  constexpr bool ends() const { return ends_message(position); }
  constexpr bool is_response() const { return wire::is_response(kind); }
};

namespace detail {

struct OpcodeShape {
  uint8_t number;  // low 5 bits of the opcode
  OpKind kind;
  Position position;
  bool payload;
  uint32_t extensions;
};

constexpr uint32_t bits(std::initializer_list<Extension> list) {
  uint32_t b = 0;
  for (Extension e : list) b |= 1u << static_cast<unsigned>(e);
  return b;
}

// Gives every extended header its place: they stand in the order of Extension.
constexpr OpcodeInfo make_info(Service service, const OpcodeShape& shape, uint32_t extensions) {
  OpcodeInfo info;
  info.service = service;
  info.kind = shape.kind;
  info.position = shape.position;
  info.max_payload = shape.payload ? 65535 : 0;
  info.length_mask = shape.kind == OpKind::manufacturer ? 0 : 3;
  info.extensions = extensions;
  for (size_t e = 0; e < kExtensionCount; ++e) {
    if (!info.has(static_cast<Extension>(e))) continue;
    info.offset[e] = info.header_length;
    info.header_length = static_cast<uint8_t>(info.header_length + kExtensionSize[e]);
  }
  return info;
}

// The connected services' packets; UC, RD, UD and XRC take subsets and add their own header.
inline constexpr std::array<OpcodeShape, 24> kShapes = [] {
  using enum OpKind;
  using enum Position;
  using E = Extension;
  return std::array<OpcodeShape, 24>{{
      {0x00, send, first, true, 0},
      {0x01, send, middle, true, 0},
      {0x02, send, last, true, 0},
      {0x03, send, last, true, bits({E::imm})},
      {0x04, send, only, true, 0},
      {0x05, send, only, true, bits({E::imm})},
      {0x06, write, first, true, bits({E::reth})},
      {0x07, write, middle, true, 0},
      {0x08, write, last, true, 0},
      {0x09, write, last, true, bits({E::imm})},
      {0x0a, write, only, true, bits({E::reth})},
      {0x0b, write, only, true, bits({E::reth, E::imm})},
      {0x0c, read_request, only, false, bits({E::reth})},
      {0x0d, read_response, first, true, bits({E::aeth})},
      {0x0e, read_response, middle, true, 0},
      {0x0f, read_response, last, true, bits({E::aeth})},
      {0x10, read_response, only, true, bits({E::aeth})},
      {0x11, ack, only, false, bits({E::aeth})},
      {0x12, atomic_ack, only, false, bits({E::aeth, E::atomic_ack_eth})},
      {0x13, compare_swap, only, false, bits({E::atomic_eth})},
      {0x14, fetch_add, only, false, bits({E::atomic_eth})},
      {0x15, resync, only, false, 0},
      {0x16, send, last, true, bits({E::ieth})},
      {0x17, send, only, true, bits({E::ieth})},
  }};
}();

// The far transport's packets, by whole opcode; all begin with a FarBase.
inline constexpr std::array<OpcodeShape, 15> kFarShapes = [] {
  using enum OpKind;
  using enum Opcode;
  using E = Extension;
  constexpr auto far = [](Opcode opcode, OpKind kind, bool payload, uint32_t extensions) {
    return OpcodeShape{static_cast<uint8_t>(opcode), kind, Position::middle, payload, extensions};
  };
  return std::array<OpcodeShape, 15>{{
      far(far_write, write, true, bits({E::far_place})),
      far(far_write_imm, write, true, bits({E::far_place, E::far_sequence, E::imm})),
      far(far_send, send, true, bits({E::far_sequence, E::far_offset})),
      far(far_send_imm, send, true, bits({E::far_sequence, E::far_offset, E::imm})),
      far(far_send_invalidate, send, true, bits({E::far_sequence, E::far_offset, E::ieth})),
      far(far_read_request, read_request, false, bits({E::reth})),
      far(far_read_response, read_response, true, bits({E::far_offset})),
      far(far_compare_swap, compare_swap, false, bits({E::atomic_eth})),
      far(far_fetch_add, fetch_add, false, bits({E::atomic_eth})),
      far(far_atomic_response, atomic_ack, false, bits({E::atomic_ack_eth})),
      far(Opcode::far_ack, ack, true, bits({E::far_ack})),
      far(far_probe, probe, true, 0),
      far(far_path_challenge, path_challenge, false, bits({E::far_token})),
      far(far_path_response, path_response, false, bits({E::far_token})),
      far(Opcode::far_repair, repair, true, bits({E::far_repair})),
  }};
}();

constexpr bool service_has(Service service, const OpcodeShape& shape) {
  switch (service) {
    case Service::rc:
    case Service::xrc:
      return shape.kind != OpKind::resync;
    case Service::uc:
      return shape.number <= 0x0b;
    case Service::rd:
      return shape.number <= 0x15;
    case Service::ud:
      return shape.number == 0x04 || shape.number == 0x05;
    default:
      return false;
  }
}

constexpr std::array<OpcodeInfo, 256> make_opcode_table() {
  std::array<OpcodeInfo, 256> table{};
  for (Service service : {Service::rc, Service::uc, Service::rd, Service::ud, Service::xrc}) {
    for (const OpcodeShape& shape : kShapes) {
      if (!service_has(service, shape)) continue;
      uint32_t extensions = shape.extensions;
      const bool response = is_response(shape.kind);
      if (service == Service::ud) extensions |= bits({Extension::deth});
      if (service == Service::rd) {
        extensions |=
            response ? bits({Extension::rdeth}) : bits({Extension::rdeth, Extension::deth});
      }
      if (service == Service::xrc && !response) extensions |= bits({Extension::xrceth});
      table[(static_cast<size_t>(service) << 5) | shape.number] =
          make_info(service, shape, extensions);
    }
  }
  const OpcodeShape cnp{0, OpKind::notification, Position::only, false, bits({Extension::cnp})};
  table[static_cast<size_t>(Opcode::cnp)] = make_info(Service::cnp, cnp, cnp.extensions);
  const OpcodeShape manufacturer{0, OpKind::manufacturer, Position::only, true, 0};
  for (size_t op = static_cast<size_t>(Opcode::manufacturer_first); op < table.size(); ++op) {
    table[op] = make_info(Service::manufacturer, manufacturer, 0);
  }
  for (const OpcodeShape& shape : kFarShapes) {
    table[shape.number] =
        make_info(Service::manufacturer, shape, shape.extensions | bits({Extension::far_base}));
  }
  return table;
}

}  // namespace detail

inline constexpr std::array<OpcodeInfo, 256> kOpcodeTable = detail::make_opcode_table();

constexpr const OpcodeInfo& opcode_info(uint8_t opcode) { return kOpcodeTable[opcode]; }
constexpr const OpcodeInfo& opcode_info(Opcode opcode) {
  return kOpcodeTable[static_cast<size_t>(opcode)];
}

// "RC SEND_ONLY", "UD SEND_ONLY_IMM", "CNP", "MANUFACTURER 0xc3", "UNKNOWN 0x15". The text is
// static. For messages and tools, not for the packet path.
const char* opcode_name(uint8_t opcode);

}  // namespace farverbs::wire
