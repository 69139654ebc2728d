// The end-to-end checksum: CRC-64 of ECMA-182, reflected (the one of .xz files), by ISA-L.
#pragma once

#include <isa-l/crc64.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "farverbs/base/fault_guard.h"

namespace farverbs::tools::copy {

inline uint64_t crc64(const void* data, size_t length, uint64_t seed = 0) {
  return ::crc64_ecma_refl(seed, static_cast<const unsigned char*>(data), length);
}

// Of mapped file pages; nullopt if they are not there any more (the file was truncated).
inline std::optional<uint64_t> crc64_of_mapping(const std::byte* data, size_t length) {
  uint64_t crc = 0;
  if (!guarded([&] { crc = crc64(data, length); })) return std::nullopt;
  return crc;
}

}  // namespace farverbs::tools::copy
