// Unaligned big-endian loads and stores: the only way this code reads numbers from a wire.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace farverbs {

template <std::unsigned_integral T>
constexpr T byte_swap(T v) {
  if constexpr (sizeof(T) == 1) return v;
  if constexpr (sizeof(T) == 2) return __builtin_bswap16(v);
  if constexpr (sizeof(T) == 4) return __builtin_bswap32(v);
  if constexpr (sizeof(T) == 8) return __builtin_bswap64(v);
}

template <std::unsigned_integral T>
inline T load_be(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return std::endian::native == std::endian::little ? byte_swap(v) : v;
}

template <std::unsigned_integral T>
inline void store_be(std::byte* p, T v) {
  if constexpr (std::endian::native == std::endian::little) v = byte_swap(v);
  std::memcpy(p, &v, sizeof v);
}

}  // namespace farverbs
