// Chance, passed in. Prng is the simulator's and tests' seeded generator (xoshiro256**, public
// domain algorithm by Blackman and Vigna); Entropy is the source of what must not be guessed (QPNs,
// keys, PSNs: see SECURITY in ARCHITECTURE.md), which production takes from the kernel.
#pragma once

#include <cstdint>

namespace farverbs {

class Prng {
 public:
  explicit Prng(uint64_t seed) {
    for (uint64_t& word : state_) {  // splitmix64
      seed += 0x9E3779B97F4A7C15u;
      uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
      word = z ^ (z >> 31);
    }
  }
  uint64_t next() {
    const uint64_t result = rotate(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotate(state_[3], 45);
    return result;
  }
  // Uniform in [0, bound); bound > 0.
  uint64_t below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<__uint128_t>(next()) * bound) >> 64);
  }
  uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
  // Uniform in [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  bool chance(double probability) { return unit() < probability; }

 private:
  static uint64_t rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
  uint64_t state_[4];
};

class Entropy {
 public:
  virtual ~Entropy() = default;
  virtual uint64_t next() = 0;
};

// Entropy from a seed, for simulations and tests only.
class SeededEntropy final : public Entropy {
 public:
  explicit SeededEntropy(uint64_t seed) : prng_(seed) {}
  uint64_t next() override { return prng_.next(); }

 private:
  Prng prng_;
};

}  // namespace farverbs
