// SipHash-2-4 (Aumasson and Bernstein 2012) of two words: a number that nobody can foretell who
// does not know the key, however many of them he has seen.
#pragma once

#include <bit>
#include <cstdint>

namespace farverbs {

struct SipKey {
  uint64_t k0 = 0;
  uint64_t k1 = 0;
};

constexpr uint64_t siphash(const SipKey& key, uint64_t m0, uint64_t m1) {
  uint64_t v0 = key.k0 ^ 0x736F6D6570736575u;
  uint64_t v1 = key.k1 ^ 0x646F72616E646F6Du;
  uint64_t v2 = key.k0 ^ 0x6C7967656E657261u;
  uint64_t v3 = key.k1 ^ 0x7465646279746573u;
  const auto rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1;
      v1 = std::rotl(v1, 13) ^ v0;
      v0 = std::rotl(v0, 32);
      v2 += v3;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
  };
  // The last word is the message's length in its top byte.
  for (const uint64_t m : {m0, m1, uint64_t{16} << 56}) {
    v3 ^= m;
    rounds(2);
    v0 ^= m;
  }
  v2 ^= 0xFF;
  rounds(4);
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace farverbs
