#include "farverbs/wire/crc32.h"

#include <isa-l/crc.h>

#include <array>
#include <cstring>

#include "farverbs/wire/crc32_kernels.h"
#include "farverbs/wire/crc32_polynomial.h"

namespace farverbs::wire {
namespace {

// ISA-L complements the register on both sides.
uint32_t isal_update(uint32_t state, const std::byte* from, size_t length) {
  return ~crc32_gzip_refl(~state, reinterpret_cast<const unsigned char*>(from), length);
}

uint32_t isal_copy(uint32_t state, std::byte* to, const std::byte* from, size_t length) {
  if (length != 0) std::memcpy(to, from, length);
  return isal_update(state, from, length);
}

// A seed is the register times x^-32 (icrc.h), so four zero bytes ahead of the headers make it one.
uint32_t isal_headers(uint32_t seed, const std::byte* bth, size_t length) {
  std::byte masked[4 + kMaxIcrcHeaders] = {};
  std::memcpy(masked + 4, bth, length);
  masked[8] = std::byte{0xff};
  return isal_update(seed, masked, 4 + length);
}

uint32_t isal_gather(uint32_t seed, std::byte* packet, size_t header_length,
                     const std::span<const std::byte>* pieces, size_t count, size_t pad) {
  uint32_t state = isal_headers(seed, packet, header_length);
  std::byte* at = packet + header_length;
  for (; count != 0; --count, ++pieces) {
    state = isal_copy(state, at, pieces->data(), pieces->size());
    at += pieces->size();
  }
  for (size_t i = 0; i < pad; ++i) at[i] = std::byte{0};
  return isal_update(state, at, pad);
}

uint32_t isal_scatter(uint32_t seed, const std::byte* packet, size_t header_length,
                      size_t payload_length, size_t pad, const std::span<std::byte>* pieces,
                      size_t count) {
  uint32_t state = isal_headers(seed, packet, header_length);
  const std::byte* at = packet + header_length;
  size_t left = payload_length;
  for (; count != 0 && left != 0; --count, ++pieces) {
    const size_t part = pieces->size() < left ? pieces->size() : left;
    state = isal_copy(state, pieces->data(), at, part);
    at += part;
    left -= part;
  }
  return isal_update(state, at, left + pad);
}

struct Kernels {
  std::array<const Crc32Kernel*, 4> best_first{};
  size_t count = 0;

  Kernels() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool wide = __builtin_cpu_supports("vpclmulqdq") != 0;
    if (wide && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("bmi2")) {
      best_first[count++] = &kCrc32Avx512;
    }
    if (wide && __builtin_cpu_supports("avx2")) best_first[count++] = &kCrc32Avx2;
    if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
      best_first[count++] = &kCrc32Sse;
    }
#endif
    best_first[count++] = &kCrc32Isal;
  }
};

const Kernels& kernels() {
  static const Kernels found;
  return found;
}

}  // namespace

const Crc32Kernel kCrc32Isal = {"isal",      isal_update,  isal_copy,
                                isal_gather, isal_scatter, crc::multiply};

// Usable before dynamic initialisation has come to the next line.
constinit const Crc32Kernel* detail::active_kernel = &kCrc32Isal;
namespace {
[[maybe_unused]] const bool kChosen = [] {
  detail::active_kernel = kernels().best_first[0];
  return true;
}();
}  // namespace

std::span<const Crc32Kernel* const> crc32_kernels() {
  return {kernels().best_first.data(), kernels().count};
}

}  // namespace farverbs::wire
