// Management datagrams (IBTA volume 1, chapter 13.4.3): the header that UD packets to QP1 begin
// with, and the names of the connection manager's messages (chapter 12.6).
#pragma once

#include "farverbs/wire/field.h"

namespace farverbs::wire {

inline constexpr size_t kMadSize = 256;
inline constexpr uint8_t kMadClassCm = 0x07;

struct MadHeader {
  static constexpr size_t kSize = 24;
  uint8_t base_version = 1;
  uint8_t management_class = 0;
  uint8_t class_version = 0;
  uint8_t method = 0;
  uint16_t status = 0;
  uint16_t class_specific = 0;
  uint64_t transaction = 0;
  uint16_t attribute = 0;
  uint16_t reserved = 0;
  uint32_t attribute_modifier = 0;
  bool operator==(const MadHeader&) const = default;

  static constexpr auto kFields = std::tuple(
      bind_field(&MadHeader::base_version, {0, 0, 8}),
      bind_field(&MadHeader::management_class, {1, 0, 8}),
      bind_field(&MadHeader::class_version, {2, 0, 8}), bind_field(&MadHeader::method, {3, 0, 8}),
      bind_field(&MadHeader::status, {4, 0, 16}),
      bind_field(&MadHeader::class_specific, {6, 0, 16}),
      bind_field(&MadHeader::transaction, {8, 0, 64}),
      bind_field(&MadHeader::attribute, {16, 0, 16}), bind_field(&MadHeader::reserved, {18, 0, 16}),
      bind_field(&MadHeader::attribute_modifier, {20, 0, 32}));
};
FV_CHECK_LAYOUT(MadHeader);

// "REQ", "SIDR_REP", ...; null for an attribute that is none of the connection manager's.
constexpr const char* cm_message_name(uint16_t attribute) {
  switch (attribute) {
    case 0x10:
      return "REQ";
    case 0x11:
      return "MRA";
    case 0x12:
      return "REJ";
    case 0x13:
      return "REP";
    case 0x14:
      return "RTU";
    case 0x15:
      return "DREQ";
    case 0x16:
      return "DREP";
    case 0x17:
      return "SIDR_REQ";
    case 0x18:
      return "SIDR_REP";
    case 0x19:
      return "LAP";
    case 0x1a:
      return "APR";
    default:
      return nullptr;
  }
}

}  // namespace farverbs::wire
