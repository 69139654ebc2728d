// Arithmetic modulo the CRC-32 polynomial of Ethernet and of the ICRC (IEEE 802.3, 0x04C11DB7),
// from which every constant of the CRC kernels is derived at compile time. A residue is kept
// reflected, as CRC registers are: bit i of the 32-bit word is the coefficient of x^(31-i).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace farverbs::wire::crc {

inline constexpr uint32_t kPolynomial = 0xEDB8'8320;  // reflected, without x^32
inline constexpr uint32_t kOne = 0x8000'0000;         // the residue 1

// r * x
constexpr uint32_t times_x(uint32_t r) { return (r >> 1) ^ ((r & 1) != 0 ? kPolynomial : 0); }
// r / x: x is invertible because the polynomial's constant term is 1.
constexpr uint32_t over_x(uint32_t r) {
  return (r & 0x8000'0000) != 0 ? ((r ^ kPolynomial) << 1) | 1 : r << 1;
}

constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int i = 31; i >= 0; --i) {  // a's coefficients from x^0 up
    if ((a >> i & 1) != 0) product ^= b;
    b = times_x(b);
  }
  return product;
}

// x^n for any n; the order of x is 2^32 - 1 because the polynomial is primitive.
constexpr uint32_t power_of_x(int64_t n) {
  constexpr int64_t kOrder = 0xFFFF'FFFF;
  uint64_t e = static_cast<uint64_t>(((n % kOrder) + kOrder) % kOrder);
  uint32_t result = kOne;
  for (uint32_t square = times_x(kOne); e != 0; e >>= 1) {
    if ((e & 1) != 0) result = multiply(result, square);
    square = multiply(square, square);
  }
  return result;
}

// A residue as one factor of a carry-less multiplication of 64-bit reflected words.
constexpr uint64_t factor(uint32_t residue) { return uint64_t{residue} << 32; }

// What carries a 128-bit reflected polynomial over `bytes` further bytes: its first 64 bits times
// `high` plus its last 64 bits times `low`. The product of two reflected words stands one bit lower
// than it should, hence the missing x.
struct Shift {
  uint64_t high;
  uint64_t low;
};
constexpr Shift shift_over(int64_t bytes) {
  return {factor(power_of_x(8 * bytes + 63)), factor(power_of_x(8 * bytes - 1))};
}

// shift_over(0) .. shift_over(64), built by steps of x to stay cheap for the compiler.
inline constexpr size_t kMaxTableShift = 64;
struct alignas(16) ShiftTable {
  std::array<Shift, kMaxTableShift + 1> entry{};
};
constexpr ShiftTable make_shift_table() {
  ShiftTable table;
  uint32_t high = power_of_x(63);
  uint32_t low = power_of_x(-1);
  for (Shift& s : table.entry) {
    s = {factor(high), factor(low)};
    for (int i = 0; i < 8; ++i) {
      high = times_x(high);
      low = times_x(low);
    }
  }
  return table;
}
inline constexpr ShiftTable kShifts = make_shift_table();

// Barrett reduction of 64 bits: floor(x^64 / P) and P, both of degree 32, reflected in 33 bits.
constexpr uint64_t barrett_quotient() {
  // Long division of x^64 by P, coefficients from x^64 down; the quotient's x^32 is its bit 0.
  uint64_t quotient = 0;
  uint32_t remainder = kOne;  // x^0; becomes x^64 mod P step by step
  // floor(x^n / P) = x * floor(x^(n-1) / P) + (top coefficient of x^(n-1) mod P)
  for (int n = 1; n <= 64; ++n) {
    const uint64_t top = remainder & 1;  // coefficient of x^31
    quotient = (quotient << 1) | top;    // plain order: bit i is x^i
    remainder = times_x(remainder);
  }
  uint64_t reflected = 0;
  for (int i = 0; i <= 32; ++i) reflected |= (quotient >> i & 1) << (32 - i);
  return reflected;
}
inline constexpr uint64_t kBarrettQuotient = barrett_quotient();
inline constexpr uint64_t kBarrettPolynomial = (uint64_t{kPolynomial} << 1) | 1;

// The CRC register after `byte` from a register of 0: the classic table, for constants and tests.
constexpr uint32_t byte_step(uint32_t state, uint8_t byte) {
  state ^= byte;
  for (int i = 0; i < 8; ++i) state = times_x(state);
  return state;
}

}  // namespace farverbs::wire::crc
