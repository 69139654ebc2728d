#include "farverbs/engine/qp_table.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace farverbs::engine {
namespace {

TEST(QpTable, FindsTensOfThousandsByRandomNumbersOfItsSlot) {
  SeededEntropy entropy(1);
  QpTable<int> table(7, entropy);
  std::vector<int> values(20'000);
  std::vector<Qpn> numbers;
  std::set<Qpn> unique;
  for (int& value : values) {
    const Qpn qpn = table.draw();
    EXPECT_EQ(qpn.slot(), 7);
    table.insert(qpn, &value);
    numbers.push_back(qpn);
    unique.insert(qpn);
  }
  EXPECT_EQ(unique.size(), values.size());
  size_t ascending = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(table.find(numbers[i]), &values[i]);
    if (i > 0 && numbers[i].value() == numbers[i - 1].value() + 1) ++ascending;
  }
  EXPECT_LT(ascending, 10u);  // numbers that follow each other could be guessed
  EXPECT_EQ(table.find(Qpn(numbers[0].value() ^ 0x10000)), nullptr);
  for (const Qpn qpn : numbers) table.erase(qpn);
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(table.find(numbers[0]), nullptr);
}

TEST(QpTable, SlotZeroKeepsTheManagementNumbers) {
  SeededEntropy entropy(2);
  QpTable<int> table(0, entropy);
  std::vector<int> values(60'000);
  for (int& value : values) {
    const Qpn qpn = table.draw();
    EXPECT_GT(qpn.value(), 1u);
    table.insert(qpn, &value);
  }
}

}  // namespace
}  // namespace farverbs::engine
