// CRC-32 of Ethernet, zlib and the RoCE ICRC, alone or in one pass with a copy. The kernels fold
// 128 bits at a time with carry-less multiplication (Gopal et al., "Fast CRC Computation for
// Generic Polynomials Using PCLMULQDQ"), in SSE, AVX2 and AVX-512 forms; ISA-L serves other
// processors. The form is chosen once, when the program starts.
//
// `state` is the raw CRC register: a checksum begins with kCrc32Start and ends with crc32_value().
// Sources and destinations may have any alignment and must not overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace farverbs::wire {

inline constexpr uint32_t kCrc32Start = 0xFFFF'FFFF;
constexpr uint32_t crc32_value(uint32_t state) { return ~state; }

inline constexpr size_t kMaxIcrcHeaders = 64;

struct Crc32Kernel {
  const char* name;  // "avx512", "avx2", "sse", "isal"
  uint32_t (*update)(uint32_t state, const std::byte* source, size_t length);
  uint32_t (*copy)(uint32_t state, std::byte* destination, const std::byte* source, size_t length);

  // The ICRC's two passes. `seed` comes from IcrcFlow; byte 4 of the headers counts as 0xff;
  // header_length is 12 to kMaxIcrcHeaders. Both return the register without the final complement.
  // gather: headers at `packet`, then the pieces, which are copied behind them, then `pad` zero
  // bytes (at most 3), which are written too.
  uint32_t (*gather)(uint32_t seed, std::byte* packet, size_t header_length,
                     const std::span<const std::byte>* pieces, size_t count, size_t pad);
  // scatter: headers, payload and pad at `packet`; the payload is copied to the pieces in order, as
  // far as these reach.
  uint32_t (*scatter)(uint32_t seed, const std::byte* packet, size_t header_length,
                      size_t payload_length, size_t pad, const std::span<std::byte>* pieces,
                      size_t count);
  // The product of two reflected residues modulo the polynomial (crc32_polynomial.h).
  uint32_t (*multiply)(uint32_t a, uint32_t b);
};

namespace detail {
extern const Crc32Kernel* active_kernel;
}

// The kernel in use.
inline const Crc32Kernel& crc32_kernel() { return *detail::active_kernel; }
// All kernels that this processor can run, best first; the last is ISA-L's.
std::span<const Crc32Kernel* const> crc32_kernels();

inline uint32_t crc32_update(uint32_t state, const void* source, size_t length) {
  return crc32_kernel().update(state, static_cast<const std::byte*>(source), length);
}
inline uint32_t crc32_copy(uint32_t state, void* destination, const void* source, size_t length) {
  return crc32_kernel().copy(state, static_cast<std::byte*>(destination),
                             static_cast<const std::byte*>(source), length);
}

}  // namespace farverbs::wire
