#include "tools/run/environment.h"

#include <gtest/gtest.h>

namespace farverbs::tools::run {
namespace {

const std::vector<std::string> kFiles = {"/l/libibverbs.so.1", "/l/librdmacm.so.1"};

TEST(Run, PutsTheLibrariesInFront) {
  const Environment set = environment_for(
      "/l", kFiles, "eth0", {{"LD_LIBRARY_PATH", "/a:/b"}, {"LD_PRELOAD", "/c.so /d.so"}});
  EXPECT_EQ(set.at("LD_LIBRARY_PATH"), "/l:/a:/b");
  EXPECT_EQ(set.at("LD_PRELOAD"), "/l/libibverbs.so.1:/l/librdmacm.so.1:/c.so:/d.so");
  EXPECT_EQ(set.at("FARVERBS_INTERFACE"), "eth0");
}

TEST(Run, InsideItselfChangesNothingMore) {
  const Environment once = environment_for("/l", kFiles, std::nullopt, {});
  EXPECT_EQ(once.at("LD_LIBRARY_PATH"), "/l");
  EXPECT_EQ(once.count("FARVERBS_INTERFACE"), 0u);
  EXPECT_EQ(environment_for("/l", kFiles, std::nullopt, once), once);
}

TEST(Run, LooksBesideTheBinary) {
  const auto folders = library_folders("/opt/farverbs/bin/farverbs");
  EXPECT_EQ(folders[0], "/opt/farverbs/lib/farverbs");
  const auto found = find_libraries({"/nowhere/a", "/nowhere/b"});
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message.find("/nowhere/a, /nowhere/b"), std::string::npos);
}

}  // namespace
}  // namespace farverbs::tools::run
