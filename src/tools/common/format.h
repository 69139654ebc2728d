// Quantities as people read them: "12.3 Gb/s", "1 MiB", "13.4 us", and tables with aligned columns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "farverbs/base/time.h"

namespace farverbs::tools {

// Three significant digits and a decimal prefix: "0 b/s", "987 kb/s", "12.3 Gb/s".
std::string format_bit_rate(double bits_per_second);
// A power of 1024 when it divides evenly ("64 KiB", "1 MiB"), otherwise a decimal prefix ("1.50
// GB").
std::string format_bytes(uint64_t bytes);
// Three significant digits: "950 ns", "13.4 us", "1.20 s".
std::string format_duration(Duration duration);
// Three significant digits and k, M, G: "275 k", "7.80 M".
std::string format_count(double count);

// Rows of cells, columns aligned (the first to the left, the others to the right), two spaces
// between. Rows may be of different lengths.
class TextTable {
 public:
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string to_string() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace farverbs::tools
