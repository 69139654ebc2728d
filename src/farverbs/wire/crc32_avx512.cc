// The folding CRC kernel for processors with VPCLMULQDQ on 512-bit registers. Masked loads take
// what is left of a run in one step.
#include "farverbs/wire/crc32_kernels.h"

#if defined(__x86_64__)
#if !defined(__clang__)
// The intrinsics' own headers leave registers undefined on purpose, and g++ 12 warns of that.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <cstring>

#include "farverbs/wire/crc32_polynomial.h"

#define FV_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi2,pclmul,vpclmulqdq")))

namespace farverbs::wire {
namespace {

constexpr size_t kBlock = 64;

#include "farverbs/wire/crc32_fold.inc"

FV_TARGET inline __m512i fold(__m512i a, __m512i constants, __m512i next) {
  constexpr int kXorOfThree = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, constants, 0x00),
                                   _mm512_clmulepi64_epi128(a, constants, 0x11), next, kXorOfThree);
}
template <size_t Bytes>
FV_TARGET inline __m512i constants_over() {
  static constexpr crc::Shift kShift = crc::shift_over(Bytes);
  return _mm512_broadcast_i32x4(
      _mm_set_epi64x(static_cast<int64_t>(kShift.low), static_cast<int64_t>(kShift.high)));
}

// The four lanes carried to the end of the register and added.
FV_TARGET inline __m128i collapse(__m512i z) {
  struct alignas(64) Lanes {
    crc::Shift shift[4];
  };
  static constexpr Lanes kLanes = {
      {crc::shift_over(48), crc::shift_over(32), crc::shift_over(16), crc::shift_over(0)}};
  z = fold(z, _mm512_load_si512(&kLanes), _mm512_setzero_si512());
  const __m256i y = _mm256_xor_si256(_mm512_castsi512_si256(z), _mm512_extracti64x4_epi64(z, 1));
  return _mm_xor_si128(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
}

template <bool Copy>
FV_TARGET inline __m128i append_rest(__m128i acc, std::byte* to, const std::byte* from,
                                     size_t length) {
  // The bytes stand at the end of the register: the load begins 64 - length bytes early, and its
  // mask keeps it from touching those. The address is made of integers because it may lie outside
  // of the array.
  const __mmask64 mask = ~uint64_t{0} << (64 - length);
  const uintptr_t early = reinterpret_cast<uintptr_t>(from) + length - 64;
  const __m512i z = _mm512_maskz_loadu_epi8(mask, reinterpret_cast<const void*>(early));
  if constexpr (Copy) {
    const uintptr_t target = reinterpret_cast<uintptr_t>(to) + length - 64;
    _mm512_mask_storeu_epi8(reinterpret_cast<void*>(target), mask, z);
  }
  return _mm_xor_si128(shift_over(acc, length), collapse(z));
}

template <bool Copy>
FV_TARGET inline __m512i take(std::byte*& to, const std::byte*& from) {
  const __m512i v = _mm512_loadu_si512(from);
  from += 64;
  if constexpr (Copy) {
    _mm512_storeu_si512(to, v);
    to += 64;
  }
  return v;
}

template <bool Copy>
FV_TARGET inline __m128i append_blocks(__m128i acc, std::byte* to, const std::byte* from,
                                       size_t length) {
  __m512i z = _mm512_xor_si512(take<Copy>(to, from), _mm512_zextsi128_si512(shift_over(acc, 16)));
  length -= 64;
  const __m512i over64 = constants_over<64>();
  if (length >= 448) {
    __m512i y = take<Copy>(to, from);
    __m512i x = take<Copy>(to, from);
    __m512i w = take<Copy>(to, from);
    length -= 192;
    const __m512i over256 = constants_over<256>();
    for (; length >= 256; length -= 256) {
      z = fold(z, over256, take<Copy>(to, from));
      y = fold(y, over256, take<Copy>(to, from));
      x = fold(x, over256, take<Copy>(to, from));
      w = fold(w, over256, take<Copy>(to, from));
    }
    const __m512i over128 = constants_over<128>();
    z = fold(z, over128, x);
    y = fold(y, over128, w);
    z = fold(z, over64, y);
  }
  for (; length != 0; length -= 64) z = fold(z, over64, take<Copy>(to, from));
  return collapse(z);
}

}  // namespace

const Crc32Kernel kCrc32Avx512 = {"avx512", update, copy, gather, scatter, multiply_residues};

}  // namespace farverbs::wire
#endif
