#include "farverbs/wire/erasure.h"

#include <isa-l/erasure_code.h>

#include <array>

#include "farverbs/base/check.h"

namespace farverbs::wire {
namespace {

// What ISA-L makes of a coefficient.
constexpr size_t kTableBytes = 32;

const std::array<uint8_t, 256>& inverses() {
  static const std::array<uint8_t, 256> kInverses = [] {
    std::array<uint8_t, 256> all{};
    for (size_t i = 1; i < all.size(); ++i) all[i] = gf_inv(static_cast<uint8_t>(i));
    return all;
  }();
  return kInverses;
}

uint8_t* raw(std::byte* bytes) { return reinterpret_cast<uint8_t*>(bytes); }

// symbols += coefficients * data
void add(size_t length, uint8_t* coefficients, uint8_t* data, uint8_t** symbols, size_t count) {
  std::array<uint8_t, kTableBytes * kMostErasureSymbols> tables;
  ec_init_tables(1, static_cast<int>(count), coefficients, tables.data());
  ec_encode_data_update(static_cast<int>(length), 1, static_cast<int>(count), 0, tables.data(),
                        data, symbols);
}

}  // namespace

uint8_t erasure_coefficient(size_t symbol, size_t data) {
  // Rows 128 to 255 against columns 0 to 127: no difference is zero.
  return inverses()[(kMostErasureData + symbol) ^ data];
}

void erasure_add(size_t data, std::span<const std::byte> bytes,
                 std::span<std::byte* const> symbols) {
  FV_CHECK(data < kMostErasureData && symbols.size() <= kMostErasureSymbols);
  if (symbols.empty()) return;
  std::array<uint8_t, kMostErasureSymbols> coefficients;
  std::array<uint8_t*, kMostErasureSymbols> targets;
  for (size_t s = 0; s < symbols.size(); ++s) {
    coefficients[s] = erasure_coefficient(s, data);
    targets[s] = raw(symbols[s]);
  }
  add(bytes.size(), coefficients.data(), raw(const_cast<std::byte*>(bytes.data())), targets.data(),
      symbols.size());
}

bool erasure_restore(size_t length, std::span<const ErasurePiece> known,
                     std::span<const ErasurePiece> symbols, std::span<const ErasurePiece> missing,
                     std::vector<uint8_t>& scratch) {
  const size_t n = missing.size();
  if (n == 0 || symbols.size() != n || n > kMostErasureSymbols) return false;
  std::array<uint8_t, kMostErasureSymbols> coefficients;
  std::array<uint8_t*, kMostErasureSymbols> left;
  for (size_t s = 0; s < n; ++s) left[s] = raw(symbols[s].bytes);
  // What is known is taken out of the symbols; of what stays the missing ones are the only parts.
  for (const ErasurePiece& piece : known) {
    for (size_t s = 0; s < n; ++s) {
      coefficients[s] = erasure_coefficient(symbols[s].index, piece.index);
    }
    add(length, coefficients.data(), raw(piece.bytes), left.data(), n);
  }
  scratch.resize(2 * n * n + kTableBytes * n * n);
  uint8_t* const matrix = scratch.data();
  uint8_t* const inverse = matrix + n * n;
  uint8_t* const tables = inverse + n * n;
  for (size_t s = 0; s < n; ++s) {
    for (size_t m = 0; m < n; ++m) {
      matrix[s * n + m] = erasure_coefficient(symbols[s].index, missing[m].index);
    }
  }
  if (gf_invert_matrix(matrix, inverse, static_cast<int>(n)) != 0) return false;
  std::array<uint8_t*, kMostErasureSymbols> restored;
  for (size_t m = 0; m < n; ++m) restored[m] = raw(missing[m].bytes);
  ec_init_tables(static_cast<int>(n), static_cast<int>(n), inverse, tables);
  ec_encode_data(static_cast<int>(length), static_cast<int>(n), static_cast<int>(n), tables,
                 left.data(), restored.data());
  return true;
}

}  // namespace farverbs::wire
