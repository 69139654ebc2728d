#include "farverbs/model/traffic_class.h"

#include <gtest/gtest.h>

namespace farverbs::model {
namespace {

AddressVector av(uint8_t service_level, uint8_t octet) {
  AddressVector out;
  out.service_level = service_level;
  out.traffic_class = octet;
  return out;
}

TEST(TrafficClass, NamesGoBothWays) {
  for (size_t i = 0; i < kTrafficClasses; ++i) {
    const auto traffic = static_cast<TrafficClass>(i);
    EXPECT_EQ(parse_traffic_class(to_string(traffic)), traffic);
  }
  EXPECT_FALSE(parse_traffic_class("Bulk").has_value());
  EXPECT_FALSE(parse_traffic_class("").has_value());
}

TEST(TrafficClass, ServiceLevelsAndMarksOfAClassNameIt) {
  for (size_t i = 0; i < kTrafficClasses; ++i) {
    const auto traffic = static_cast<TrafficClass>(i);
    EXPECT_EQ(class_of_service_level(service_level_of(traffic)), traffic);
    EXPECT_EQ(class_of_dscp(dscp_of(traffic)), traffic);
  }
  EXPECT_EQ(service_level_of(TrafficClass::kBulk), 0);
}

TEST(TrafficClass, EveryServiceLevelHasAClass) {
  EXPECT_EQ(class_of_service_level(0), TrafficClass::kBulk);
  EXPECT_EQ(class_of_service_level(1), TrafficClass::kBackground);
  EXPECT_EQ(class_of_service_level(2), TrafficClass::kInteractive);
  EXPECT_EQ(class_of_service_level(3), TrafficClass::kRealtime);
  for (uint8_t level = 4; level < 16; ++level) {
    EXPECT_EQ(class_of_service_level(level), TrafficClass::kBulk) << int{level};
  }
}

TEST(TrafficClass, MarksOfOthersAreUnderstood) {
  for (const int dscp : {44, 46})
    EXPECT_EQ(class_of_dscp(static_cast<uint8_t>(dscp)), TrafficClass::kRealtime) << dscp;
  for (const int dscp : {32, 34, 36, 38, 40}) {
    EXPECT_EQ(class_of_dscp(static_cast<uint8_t>(dscp)), TrafficClass::kInteractive) << dscp;
  }
  for (const int dscp : {1, 8})
    EXPECT_EQ(class_of_dscp(static_cast<uint8_t>(dscp)), TrafficClass::kBackground) << dscp;
  for (const int dscp : {0, 10, 18, 26, 48, 56, 63}) {
    EXPECT_EQ(class_of_dscp(static_cast<uint8_t>(dscp)), TrafficClass::kBulk) << dscp;
  }
}

TEST(TrafficClass, AServiceLevelGoesBeforeTheMark) {
  EXPECT_EQ(class_of(av(0, 0)), TrafficClass::kBulk);
  EXPECT_EQ(class_of(av(3, 0)), TrafficClass::kRealtime);
  EXPECT_EQ(class_of(av(0, 46 << 2 | 2)), TrafficClass::kRealtime);
  EXPECT_EQ(class_of(av(1, 46 << 2)), TrafficClass::kBackground);
  // Level 0 is what nobody set.
  EXPECT_EQ(class_of(av(0, 8 << 2)), TrafficClass::kBackground);
}

TEST(TrafficClass, AMarkThatIsThereStays) {
  EXPECT_EQ(marked(0, TrafficClass::kRealtime), 46 << 2);
  EXPECT_EQ(marked(2, TrafficClass::kBackground), 1 << 2 | 2);
  EXPECT_EQ(marked(10 << 2 | 1, TrafficClass::kRealtime), 10 << 2 | 1);
  EXPECT_EQ(marked(0, TrafficClass::kBulk), 0);
}

}  // namespace
}  // namespace farverbs::model
