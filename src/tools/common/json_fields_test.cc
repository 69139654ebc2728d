#include "tools/common/json_fields.h"

#include <gtest/gtest.h>

namespace farverbs::tools {
namespace {

Json parsed(const char* text) { return parse_json_object(text).value(); }

TEST(JsonFields, RefusesWhatIsNoObject) {
  for (const char* text : {"", "{", "[]", "7", "\"x\"", "\xff\xfe", "GET / HTTP/1.1", "{} {}"}) {
    EXPECT_EQ(parse_json_object(text).error().code, EPROTO) << text;
  }
}

TEST(JsonFields, RefusesDeepNesting) {
  std::string deep = "{\"a\":";
  deep += std::string(100'000, '[') + std::string(100'000, ']') + "}";
  EXPECT_EQ(parse_json_object(deep).error().code, EPROTO);
}

TEST(JsonFields, NumbersAreCheckedForTypeAndRange) {
  const Json object = parsed(R"({"n": 5, "negative": -1, "real": 1.5, "text": "5", "huge": 1e30})");
  EXPECT_EQ(json_unsigned(object, "n", 5, 5).value(), 5u);
  EXPECT_FALSE(json_unsigned(object, "n", 6, 10).ok());
  EXPECT_FALSE(json_unsigned(object, "n", 0, 4).ok());
  for (const char* field : {"negative", "real", "text", "huge", "absent"}) {
    const auto got = json_unsigned(object, field, 0, UINT64_MAX);
    ASSERT_FALSE(got.ok()) << field;
    EXPECT_EQ(got.error().code, EPROTO);
    EXPECT_NE(got.error().message.find(field), std::string::npos);
  }
  EXPECT_DOUBLE_EQ(json_number(object, "real").value(), 1.5);
  EXPECT_FALSE(json_number(object, "text").ok());
}

TEST(JsonFields, OtherTypesAreChecked) {
  const Json object = parsed(R"({"s": "x", "b": true, "a": [1], "o": {}})");
  EXPECT_EQ(json_string(object, "s").value(), "x");
  EXPECT_TRUE(json_bool(object, "b").value());
  EXPECT_EQ(json_array(object, "a").value().size(), 1u);
  EXPECT_TRUE(json_object(object, "o").value().empty());
  EXPECT_FALSE(json_string(object, "b").ok());
  EXPECT_FALSE(json_bool(object, "s").ok());
  EXPECT_FALSE(json_array(object, "o").ok());
  EXPECT_FALSE(json_object(object, "a").ok());
}

TEST(JsonFields, ErrorsTravel) {
  const auto got = json_no_error(parsed(json_error_message("no memory \"left\"").c_str()));
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().message, "the peer refused: no memory \"left\"");
  EXPECT_TRUE(json_no_error(parsed("{}")).ok());
  EXPECT_FALSE(json_error_message("\xff").empty());
}

}  // namespace
}  // namespace farverbs::tools
