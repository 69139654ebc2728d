// Record: the 32 bytes that tell the other end about one piece. The sender of a file writes a piece
// into the receiver's memory and sends its record right behind it; the transport keeps that order,
// so that a record that arrived means bytes that are in place. The receiver answers with records.
//
//   byte 0  kind      1  reason   2-3  zero   4-7  file id   8-15  piece   16-23  CRC-64
//   24-27 length      28-31 zero                              (big-endian)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "farverbs/base/result.h"

namespace farverbs::tools::copy {

inline constexpr size_t kRecordBytes = 32;

enum class RecordKind : uint8_t {
  kPiece = 1,     // sender: the piece is in your memory, with this length and CRC
  kAbort = 2,     // sender: nothing more of this file follows; `reason` says why
  kVerified = 3,  // receiver: the piece is whole
  kAgain = 4,     // receiver: the piece does not match its CRC, send it again
};

enum class AbortReason : uint8_t {
  kNone = 0,
  kChanged = 1,     // the source changed while being sent
  kUnreadable = 2,  // it could not be opened or read
  kRefused = 3,     // the receiver gave the file up before
};

struct Record {
  RecordKind kind = RecordKind::kPiece;
  AbortReason reason = AbortReason::kNone;
  uint32_t file = 0;
  uint64_t piece = 0;
  uint64_t crc = 0;
  uint32_t length = 0;
  bool operator==(const Record&) const = default;
};

std::array<std::byte, kRecordBytes> encode_record(const Record& record);
// EPROTO: not 32 bytes, an unknown kind, bytes that must be zero and are not.
Result<Record> decode_record(std::span<const std::byte> bytes);

}  // namespace farverbs::tools::copy
