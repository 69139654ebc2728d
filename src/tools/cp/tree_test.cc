#include "tools/cp/tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tools/cp/endpoints.h"
#include "tools/cp/test_files.h"

namespace farverbs::tools::copy {
namespace {

using testing::HasSubstr;

class TreeTest : public testing::Test {
 protected:
  void SetUp() override {
    write_file(directory_ / "secret", "outside");
    ::mkdir((directory_ / "root").c_str(), 0755);
    ::mkdir((directory_ / "root/sub").c_str(), 0755);
    write_file(directory_ / "root/sub/file", "inside");
    link("sub/file", "root/inner");
    link("../secret", "root/climbs");
    link(directory_ / "secret", "root/absolute");
    link("..", "root/up");
    link("sub", "root/to_sub");
    link("/proc/self/root", "root/magic");
    Result<Fd> root = open_local_directory(directory_ / "root");
    ASSERT_TRUE(root.ok());
    root_ = std::move(*root);
  }
  void link(const std::string& target, const std::string& name) {
    ASSERT_EQ(::symlink(target.c_str(), (directory_ / name).c_str()), 0);
  }
  Result<Fd> open(const std::string& path, Links links) {
    return open_beneath(root_.get(), path, O_RDONLY, 0, links);
  }
  TestDirectory directory_;
  Fd root_;
};

TEST_F(TreeTest, WhatIsBeneathOpens) {
  for (const Links links : {Links::kNone, Links::kBeneath}) {
    EXPECT_TRUE(open("", links).ok());
    EXPECT_TRUE(open("sub", links).ok());
    EXPECT_TRUE(open("sub/file", links).ok());
    EXPECT_EQ(open("sub/none", links).error().code, ENOENT);
  }
  EXPECT_TRUE(open("inner", Links::kBeneath).ok());
  EXPECT_TRUE(open("to_sub/file", Links::kBeneath).ok());
}

TEST_F(TreeTest, NothingElseDoes) {
  for (const char* path : {"climbs", "absolute", "up/secret", "up", "../secret", "sub/../../secret",
                           "/etc/passwd", "magic", "magic/etc/passwd"}) {
    for (const Links links : {Links::kNone, Links::kBeneath}) {
      const Result<Fd> opened = open(path, links);
      EXPECT_FALSE(opened.ok()) << path;
    }
    EXPECT_FALSE(open_beneath_by_component(root_.get(), path, O_RDONLY, 0).ok()) << path;
  }
  EXPECT_THAT(open("climbs", Links::kBeneath).error().message,
              HasSubstr("leaves the directory it must stay in"));
  for (const char* path : {"inner", "to_sub/file"}) {
    EXPECT_EQ(open(path, Links::kNone).error().code, ELOOP) << path;
    EXPECT_EQ(open_beneath_by_component(root_.get(), path, O_RDONLY, 0).error().code, ELOOP);
  }
  EXPECT_TRUE(open_beneath_by_component(root_.get(), "sub/file", O_RDONLY, 0).ok());
}

TEST_F(TreeTest, ADirectoryThatIsSwappedForALinkLeadsNowhere) {
  // A writer in the served directory races with the server.
  ::mkdir((directory_ / "out").c_str(), 0755);
  write_file(directory_ / "out/file", "outside");
  std::atomic<bool> stop{false};
  std::thread swapper([&] {
    const std::string sub = directory_ / "root/sub";
    const std::string away = directory_ / "root/away";
    while (!stop) {
      ::rename(sub.c_str(), away.c_str());
      (void)::symlink("../out", sub.c_str());
      ::unlink(sub.c_str());
      ::rename(away.c_str(), sub.c_str());
    }
  });
  for (int i = 0; i < 2000; ++i) {
    for (int way = 0; way < 3; ++way) {
      const Result<Fd> fd = way == 2
                                ? open_beneath_by_component(root_.get(), "sub/file", O_RDONLY, 0)
                                : open("sub/file", way == 0 ? Links::kNone : Links::kBeneath);
      if (!fd.ok()) continue;
      char text[16] = {};
      ASSERT_GT(::read(fd->get(), text, sizeof text), 0);
      ASSERT_STREQ(text, "inside");
    }
  }
  stop = true;
  swapper.join();
}

TEST_F(TreeTest, PathsOfPeersAreRelativeAndPlain) {
  for (const char* path : {"", "a", "a/b", "...", "a/..b", ".hidden"}) {
    EXPECT_TRUE(check_peer_path(path).ok()) << path;
  }
  for (const char* path : {"/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b", "./a"}) {
    EXPECT_FALSE(check_peer_path(path).ok()) << path;
  }
  EXPECT_FALSE(check_peer_path(std::string("a\0b", 3)).ok());
  EXPECT_FALSE(check_peer_path(std::string(256, 'a')).ok());
  EXPECT_FALSE(check_peer_path("a/" + std::string(5000, 'a')).ok());
  for (const char* name : {"", ".", "..", "a/b", "/"}) EXPECT_FALSE(check_peer_name(name).ok());
  EXPECT_TRUE(check_peer_name("a b").ok());
}

TEST_F(TreeTest, ServedSourcesAndTargetsStayInTheRoot) {
  for (const char* path : {"climbs", "absolute", "up", "magic"}) {
    EXPECT_FALSE(resolve_served_source(root_.get(), path, false).ok()) << path;
    const Result<Target> target = resolve_served_target(root_.get(), {path, false, "x", false});
    // A target may replace a link that is no directory beneath, but nothing is written through it.
    if (target.ok()) {
      EXPECT_EQ(target->name, path);
    }
  }
  EXPECT_FALSE(resolve_served_target(root_.get(), {"up/x", false, "x", false}).ok());
  EXPECT_FALSE(resolve_served_target(root_.get(), {"magic/tmp/x", false, "x", false}).ok());
  const Result<SourceRoot> inner = resolve_served_source(root_.get(), "inner", false);
  ASSERT_TRUE(inner.ok()) << inner.error().message;
  EXPECT_EQ(inner->own_name, "inner");
  Walk walk(inner->base.get(), inner->entry, false);
  const auto found = walk.next();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(std::get<Entry>(*found).size, 6u);
}

TEST(LeftoverNames, FitAndAreRecognized) {
  EXPECT_EQ(partial_name("a"), ".a.farverbs-partial");
  EXPECT_EQ(state_name("a"), ".a.farverbs-state");
  const std::string longest(255, 'x');
  std::string other = longest;
  other.back() = 'y';
  EXPECT_EQ(partial_name(longest).size(), 255u);
  EXPECT_NE(partial_name(longest), partial_name(other));
  for (const std::string& name :
       {partial_name("a"), state_name(longest), std::string(kCopyingMarker)}) {
    EXPECT_TRUE(is_transfer_leftover(name)) << name;
  }
  EXPECT_FALSE(is_transfer_leftover("a.farverbs-partial"));
  EXPECT_FALSE(is_transfer_leftover(".profile"));
}

TEST(Times, BeforeTheEpochToo) {
  EXPECT_EQ(to_timespec(-1).tv_sec, -1);
  EXPECT_EQ(to_timespec(-1).tv_nsec, 999'999'999);
  EXPECT_EQ(to_timespec(1'500'000'000).tv_nsec, 500'000'000);
}

}  // namespace
}  // namespace farverbs::tools::copy
