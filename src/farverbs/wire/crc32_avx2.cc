// The folding CRC kernel for processors with VPCLMULQDQ on 256-bit registers (AMD Zen 3, Intel
// Alder Lake): eight 256-bit registers in flight on long runs.
#include "farverbs/wire/crc32_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "farverbs/wire/crc32_polynomial.h"

#define FV_TARGET __attribute__((target("avx2,pclmul,vpclmulqdq")))

namespace farverbs::wire {
namespace {

constexpr size_t kBlock = 64;

#include "farverbs/wire/crc32_fold.inc"

template <bool Copy>
FV_TARGET inline __m128i append_rest(__m128i acc, std::byte* to, const std::byte* from,
                                     size_t length) {
  return append_short<Copy>(acc, to, from, length);
}

FV_TARGET inline __m256i load32(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
FV_TARGET inline __m256i fold(__m256i a, __m256i constants, __m256i next) {
  return _mm256_xor_si256(_mm256_xor_si256(_mm256_clmulepi64_epi128(a, constants, 0x00), next),
                          _mm256_clmulepi64_epi128(a, constants, 0x11));
}
template <size_t Bytes>
FV_TARGET inline __m256i constants_over() {
  static constexpr crc::Shift kShift = crc::shift_over(Bytes);
  return _mm256_set_epi64x(static_cast<int64_t>(kShift.low), static_cast<int64_t>(kShift.high),
                           static_cast<int64_t>(kShift.low), static_cast<int64_t>(kShift.high));
}

template <bool Copy>
FV_TARGET inline __m256i take(std::byte*& to, const std::byte*& from) {
  const __m256i v = load32(from);
  from += 32;
  if constexpr (Copy) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), v);
    to += 32;
  }
  return v;
}

template <bool Copy>
FV_TARGET inline __m128i append_blocks(__m128i acc, std::byte* to, const std::byte* from,
                                       size_t length) {
  constexpr size_t kLanes = 8;
  constexpr size_t kStride = kLanes * 32;
  const __m256i first = _mm256_zextsi128_si256(shift_over(acc, 16));
  __m256i a;
  __m256i b;
  if (length >= 2 * kStride) {
    __m256i lane[kLanes];
    for (__m256i& l : lane) l = take<Copy>(to, from);
    lane[0] = _mm256_xor_si256(lane[0], first);
    length -= kStride;
    const __m256i over_stride = constants_over<kStride>();
    for (; length >= kStride; length -= kStride) {
      for (__m256i& l : lane) l = fold(l, over_stride, take<Copy>(to, from));
    }
    const __m256i over128 = constants_over<128>();
    for (size_t i = 0; i < 4; ++i) lane[i] = fold(lane[i], over128, lane[i + 4]);
    const __m256i over64 = constants_over<64>();
    a = fold(lane[0], over64, lane[2]);
    b = fold(lane[1], over64, lane[3]);
  } else {
    a = _mm256_xor_si256(take<Copy>(to, from), first);
    b = take<Copy>(to, from);
    length -= 64;
  }
  const __m256i over64 = constants_over<64>();
  for (; length != 0; length -= 64) {
    a = fold(a, over64, take<Copy>(to, from));
    b = fold(b, over64, take<Copy>(to, from));
  }
  a = fold(a, constants_over<32>(), b);
  return _mm_xor_si128(shift_over(_mm256_castsi256_si128(a), 16), _mm256_extracti128_si256(a, 1));
}

}  // namespace

const Crc32Kernel kCrc32Avx2 = {"avx2", update, copy, gather, scatter, multiply_residues};

}  // namespace farverbs::wire
#endif
