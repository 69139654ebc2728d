// Erasure: systematic Reed-Solomon over GF(2^8) with a Cauchy matrix (docs/far-transport.md section
// 8): symbols of redundancy over a block of up to 128 packets, of which any `n` restore any `n`
// packets that are missing. Coefficients do not depend on the block's length. ISA-L calculates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace farverbs::wire {

inline constexpr size_t kMostErasureData = 128;
inline constexpr size_t kMostErasureSymbols = 128;

// Of packet `data` in symbol `symbol`; both are below 128.
uint8_t erasure_coefficient(size_t symbol, size_t data);

// Adds packet number `data` of a block to the symbols 0, 1, ... of it. Each symbol has as many
// bytes as the block's longest packet, and is zero where nothing has been added.
void erasure_add(size_t data, std::span<const std::byte> bytes,
                 std::span<std::byte* const> symbols);

struct ErasurePiece {
  size_t index = 0;  // of the packet, or of the symbol
  std::byte* bytes = nullptr;
};
// Restores the packets `missing`, all of `length` bytes, from the others of the block and as many
// symbols, which are used up. `scratch` is reused memory. False: the counts do not fit.
bool erasure_restore(size_t length, std::span<const ErasurePiece> known,
                     std::span<const ErasurePiece> symbols, std::span<const ErasurePiece> missing,
                     std::vector<uint8_t>& scratch);

}  // namespace farverbs::wire
