#include <gtest/gtest.h>

#include "farverbs/base/ids.h"
#include "farverbs/base/intrusive_list.h"
#include "farverbs/base/ip_address.h"
#include "farverbs/base/result.h"
#include "farverbs/base/siphash.h"
#include "farverbs/base/units.h"

namespace farverbs {
namespace {

TEST(Psn, SerialArithmeticWraps) {
  EXPECT_EQ(Psn(0) - Psn(0xFFFFFF), 1);
  EXPECT_EQ(Psn(0xFFFFFF) - Psn(0), -1);
  EXPECT_EQ(Psn(0x800000) - Psn(0), -0x800000);
  EXPECT_EQ((Psn(0xFFFFFE) + 3).value(), 1u);
}

TEST(Psn, ExtendFindsTheNearestPacketNumber) {
  const PacketNumber reference = 0x5'FFFFF0;
  EXPECT_EQ(Psn(0xFFFFF0).extend(reference), reference);
  EXPECT_EQ(Psn(0x000002).extend(reference), 0x6'000002u);
  EXPECT_EQ(Psn(0xFFFF00).extend(reference), 0x5'FFFF00u);
}

// The vector of the paper's appendix with 16 bytes.
TEST(SipHash, GivesWhatItsAuthorsGive) {
  constexpr SipKey kKey{0x0706050403020100, 0x0F0E0D0C0B0A0908};
  EXPECT_EQ(siphash(kKey, 0x0706050403020100, 0x0F0E0D0C0B0A0908), 0x3F2ACC7F57C29BDBu);
}

TEST(Result, CarriesAValueOrAnError) {
  auto half = [](int n) -> Result<int> {
    if (n % 2 != 0) return invalid("n is odd");
    return n / 2;
  };
  auto quarter = [&](int n) -> Result<int> {
    FV_ASSIGN(const int h, half(n));
    return half(h);
  };
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).error().message, "n is odd");
}

TEST(BitRate, ConvertsBytesAndTime) {
  const BitRate gigabit = BitRate::bits_per_second(1'000'000'000);
  EXPECT_EQ(gigabit.time_for(125).ns(), 1'000);
  EXPECT_EQ(gigabit.bytes_for(Duration::seconds(3600)), 450'000'000'000u);
  EXPECT_EQ(BitRate::bytes_in(125, Duration::microseconds(1)), gigabit);
}

TEST(IpAddress, ParsesAndMapsGids) {
  const IpAddress a = *IpAddress::parse("10.77.0.2");
  EXPECT_EQ(a.to_string(), "10.77.0.2");
  EXPECT_EQ(IpAddress::from_gid(a.to_gid()), a);
  const IpAddress b = *IpAddress::parse("fd77::2");
  EXPECT_EQ(IpAddress::from_gid(b.to_gid()), b);
  EXPECT_TRUE(IpAddress::parse("::1")->is_loopback());
  EXPECT_EQ((Endpoint{b, 4791}).to_string(), "[fd77::2]:4791");
  EXPECT_FALSE(IpAddress::parse("10.0.0.256").ok());
}

struct Item {
  int value = 0;
  ListLink link;
};

TEST(IntrusiveList, KeepsOrderAndRemovesFromTheMiddle) {
  Item a{1, {}}, b{2, {}}, c{3, {}};
  IntrusiveList<Item, &Item::link> list;
  list.push_back(a);
  list.push_back(b);
  list.push_back(c);
  list.remove(b);
  EXPECT_EQ(list.pop_front()->value, 1);
  EXPECT_EQ(list.pop_front()->value, 3);
  EXPECT_TRUE(list.empty());
}

}  // namespace
}  // namespace farverbs
