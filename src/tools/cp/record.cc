#include "tools/cp/record.h"

#include "farverbs/base/byte_order.h"

namespace farverbs::tools::copy {

std::array<std::byte, kRecordBytes> encode_record(const Record& record) {
  std::array<std::byte, kRecordBytes> bytes{};
  bytes[0] = static_cast<std::byte>(record.kind);
  bytes[1] = static_cast<std::byte>(record.reason);
  store_be<uint32_t>(&bytes[4], record.file);
  store_be<uint64_t>(&bytes[8], record.piece);
  store_be<uint64_t>(&bytes[16], record.crc);
  store_be<uint32_t>(&bytes[24], record.length);
  return bytes;
}

Result<Record> decode_record(std::span<const std::byte> bytes) {
  if (bytes.size() != kRecordBytes) return Error{EPROTO, "the peer sent a record of a wrong size"};
  const auto kind = static_cast<uint8_t>(bytes[0]);
  const auto reason = static_cast<uint8_t>(bytes[1]);
  if (kind < 1 || kind > 4) return Error{EPROTO, "the peer sent a record of an unknown kind"};
  if (reason > 3 || load_be<uint16_t>(&bytes[2]) != 0 || load_be<uint32_t>(&bytes[28]) != 0) {
    return Error{EPROTO, "the peer sent a malformed record"};
  }
  Record record;
  record.kind = static_cast<RecordKind>(kind);
  record.reason = static_cast<AbortReason>(reason);
  record.file = load_be<uint32_t>(&bytes[4]);
  record.piece = load_be<uint64_t>(&bytes[8]);
  record.crc = load_be<uint64_t>(&bytes[16]);
  record.length = load_be<uint32_t>(&bytes[24]);
  return record;
}

}  // namespace farverbs::tools::copy
