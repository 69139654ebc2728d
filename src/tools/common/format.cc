#include "tools/common/format.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace farverbs::tools {
namespace {

// Three significant digits without an exponent, for values below 1000.
std::string three_digits(double value) {
  const int decimals = value >= 99.95 || value == 0 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}", value, decimals);
}

std::string scaled(double value, const char* const (&prefixes)[5], const char* unit) {
  size_t prefix = 0;
  while (value >= 999.5 && prefix + 1 < std::size(prefixes)) {
    value /= 1000;
    ++prefix;
  }
  const bool whole = prefix == 0 && value == std::floor(value);
  return fmt::format("{} {}{}", whole ? fmt::format("{:.0f}", value) : three_digits(value),
                     prefixes[prefix], unit);
}

constexpr const char* kDecimal[5] = {"", "k", "M", "G", "T"};

}  // namespace

std::string format_bit_rate(double bits_per_second) {
  return scaled(bits_per_second, kDecimal, "b/s");
}

std::string format_bytes(uint64_t bytes) {
  constexpr const char* kBinary[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  uint64_t value = bytes;
  size_t prefix = 0;
  while (value % 1024 == 0 && prefix + 1 < std::size(kBinary)) {
    value /= 1024;
    ++prefix;
  }
  if (prefix > 0 && value < 10'000) return fmt::format("{} {}", value, kBinary[prefix]);
  return scaled(static_cast<double>(bytes), kDecimal, "B");
}

std::string format_duration(Duration duration) {
  const double ns = static_cast<double>(duration.ns());
  if (ns < 999.5) return fmt::format("{:.0f} ns", ns);
  if (ns < 999.5e3) return three_digits(ns / 1e3) + " us";
  if (ns < 999.5e6) return three_digits(ns / 1e6) + " ms";
  return three_digits(ns / 1e9) + " s";
}

std::string format_count(double count) {
  std::string text = scaled(count, kDecimal, "");
  if (text.back() == ' ') text.pop_back();
  return text;
}

std::string TextTable::to_string() const {
  std::vector<size_t> widths;
  for (const auto& cells : rows_) {
    widths.resize(std::max(widths.size(), cells.size()), 0);
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  }
  std::string out;
  for (const auto& cells : rows_) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      line += i == 0 ? fmt::format("{:<{}}", cells[i], widths[i])
                     : fmt::format("  {:>{}}", cells[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace farverbs::tools
