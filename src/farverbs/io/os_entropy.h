// OsEntropy: numbers that nobody can guess, from the kernel (man getrandom(2)), fetched 32 at a
// time. For one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "farverbs/base/prng.h"

namespace farverbs::io {

class OsEntropy final : public Entropy {
 public:
  uint64_t next() override;

 private:
  std::array<uint64_t, 32> words_{};
  size_t unused_ = 0;
};

}  // namespace farverbs::io
