#include "tools/cp/location.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace farverbs::tools::copy {
namespace {

using testing::HasSubstr;

Location parsed(const std::string& text) {
  const Result<Location> location = parse_location(text, 7471);
  EXPECT_TRUE(location.ok()) << text << ": " << location.error().message;
  return location.ok() ? *location : Location{};
}

std::string refused(const std::string& text) {
  const Result<Location> location = parse_location(text, 7471);
  EXPECT_FALSE(location.ok()) << text;
  return location.ok() ? "" : location.error().message;
}

TEST(Location, LocalPathsAreTakenAsTheyAre) {
  EXPECT_FALSE(parsed("a b/%41").remote);
  EXPECT_EQ(parsed("a b/%41").path, "a b/%41");
  EXPECT_EQ(parsed("/").path, "/");
  EXPECT_EQ(parsed("dir//").path, "dir");
  EXPECT_TRUE(parsed("dir/").wants_directory);
}

TEST(Location, RemoteHasHostPortAndDecodedPath) {
  const Location plain = parsed("farverbs://host/a/b");
  EXPECT_TRUE(plain.remote);
  EXPECT_EQ(plain.host, "host");
  EXPECT_EQ(plain.port, 7471);
  EXPECT_EQ(plain.path, "a/b");
  EXPECT_EQ(parsed("farverbs://10.0.0.1:99/").port, 99);
  EXPECT_EQ(parsed("farverbs://[fe80::1]:99/x").host, "fe80::1");
  EXPECT_EQ(parsed("farverbs://[::1]/x").port, 7471);
  EXPECT_EQ(parsed("farverbs://h").path, "");
  EXPECT_EQ(parsed("farverbs://h//a/./b//").path, "a/b");
  EXPECT_TRUE(parsed("farverbs://h/a/").wants_directory);
  EXPECT_EQ(parsed("farverbs://h/a%20b%2525").path, "a b%25");
}

TEST(Location, MistakesAreExplained) {
  EXPECT_THAT(refused(""), HasSubstr("empty"));
  EXPECT_THAT(refused("farverbs:/host/x"), HasSubstr("farverbs://host/path"));
  EXPECT_THAT(refused("farverbs:///x"), HasSubstr("host is missing"));
  EXPECT_THAT(refused("farverbs://h:/x"), HasSubstr("port after ':' is missing"));
  for (const char* port : {"0", "65536", "x", "7 ", "-1"}) {
    EXPECT_THAT(refused(std::string("farverbs://h:") + port + "/x"), HasSubstr("is not a port"));
  }
  EXPECT_THAT(refused("farverbs://::1/x"), HasSubstr("in brackets"));
  EXPECT_THAT(refused("farverbs://[::1/x"), HasSubstr("']'"));
  EXPECT_THAT(refused("farverbs://[::1]x/x"), HasSubstr("after ']'"));
  EXPECT_THAT(refused("farverbs://h/%4"), HasSubstr("%25"));
  EXPECT_THAT(refused("farverbs://h/%00"), HasSubstr("%00"));
}

TEST(Location, NoRemotePathClimbs) {
  for (const char* path : {"..", "../x", "a/../b", "a/..", "%2e%2e/x", "a%2f..%2fb"}) {
    EXPECT_THAT(refused(std::string("farverbs://h/") + path), HasSubstr("'..' is not allowed"));
  }
}

TEST(PercentEncoding, AnyBytesSurvive) {
  std::string all;
  for (int byte = 1; byte < 256; ++byte) all += static_cast<char>(byte);
  const std::string encoded = percent_encode(all);
  for (const char c : encoded) EXPECT_TRUE(c > 0x20 && c < 0x7F);
  EXPECT_EQ(*percent_decode(encoded), all);
}

TEST(Printable, NothingReachesTheTerminalThatCouldSteerIt) {
  EXPECT_EQ(printable("a\x1b[2J\n"), "a\\x1b[2J\\x0a");
  EXPECT_EQ(printable("\xE2\x82\xAC\xff\xC0\x80"), "\xE2\x82\xAC\\xff\\xc0\\x80");
  EXPECT_EQ(printable("\xE2\x82"), "\\xe2\\x82");
}

}  // namespace
}  // namespace farverbs::tools::copy
