// The folding CRC kernel for processors with PCLMULQDQ: four 128-bit lanes.
#include "farverbs/wire/crc32_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "farverbs/wire/crc32_polynomial.h"

#define FV_TARGET __attribute__((target("sse4.1,ssse3,pclmul")))

namespace farverbs::wire {
namespace {

constexpr size_t kBlock = 64;

#include "farverbs/wire/crc32_fold.inc"

template <bool Copy>
FV_TARGET inline __m128i append_rest(__m128i acc, std::byte* to, const std::byte* from,
                                     size_t length) {
  return append_short<Copy>(acc, to, from, length);
}

template <bool Copy>
FV_TARGET inline __m128i append_blocks(__m128i acc, std::byte* to, const std::byte* from,
                                       size_t length) {
  __m128i lane[4];
  for (size_t i = 0; i < 4; ++i) {
    lane[i] = load16(from + 16 * i);
    if constexpr (Copy) store16(to + 16 * i, lane[i]);
  }
  lane[0] = _mm_xor_si128(lane[0], shift_over(acc, 16));
  const __m128i over64 = load16(&crc::kShifts.entry[64]);
  for (size_t at = 64; at < length; at += 64) {
    for (size_t i = 0; i < 4; ++i) {
      const __m128i v = load16(from + at + 16 * i);
      if constexpr (Copy) store16(to + at + 16 * i, v);
      lane[i] = _mm_xor_si128(shift_by(lane[i], over64), v);
    }
  }
  return _mm_xor_si128(_mm_xor_si128(shift_over(lane[0], 48), shift_over(lane[1], 32)),
                       _mm_xor_si128(shift_over(lane[2], 16), lane[3]));
}

}  // namespace

const Crc32Kernel kCrc32Sse = {"sse", update, copy, gather, scatter, multiply_residues};

}  // namespace farverbs::wire
#endif
