#include "tools/common/format.h"

#include <gtest/gtest.h>

namespace farverbs::tools {
namespace {

TEST(Format, BitRatesHaveThreeDigits) {
  EXPECT_EQ(format_bit_rate(0), "0 b/s");
  EXPECT_EQ(format_bit_rate(999), "999 b/s");
  EXPECT_EQ(format_bit_rate(12'345'678'901.0), "12.3 Gb/s");
  EXPECT_EQ(format_bit_rate(999'600), "1.00 Mb/s");
  EXPECT_EQ(format_bit_rate(1.5), "1.50 b/s");
}

TEST(Format, BytesPreferPowersOf1024ThatDivideEvenly) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(64), "64 B");
  EXPECT_EQ(format_bytes(65'536), "64 KiB");
  EXPECT_EQ(format_bytes(1 << 20), "1 MiB");
  EXPECT_EQ(format_bytes(UINT64_C(1) << 31), "2 GiB");
  EXPECT_EQ(format_bytes(1'500'000'000), "1.50 GB");
}

TEST(Format, DurationsPickTheirUnit) {
  EXPECT_EQ(format_duration(Duration::nanoseconds(950)), "950 ns");
  EXPECT_EQ(format_duration(Duration::nanoseconds(13'440)), "13.4 us");
  EXPECT_EQ(format_duration(Duration::milliseconds(100)), "100 ms");
  EXPECT_EQ(format_duration(Duration::milliseconds(1200)), "1.20 s");
}

TEST(Format, CountsHaveNoUnit) {
  EXPECT_EQ(format_count(5), "5");
  EXPECT_EQ(format_count(275'000), "275 k");
  EXPECT_EQ(format_count(7.8e6), "7.80 M");
}

TEST(TextTable, AlignsColumns) {
  TextTable table;
  table.row({"rate", "1.00 Gb/s"});
  table.row({"a long name", "7"});
  table.row({"alone"});
  EXPECT_EQ(table.to_string(),
            "rate         1.00 Gb/s\n"
            "a long name          7\n"
            "alone\n");
}

}  // namespace
}  // namespace farverbs::tools
