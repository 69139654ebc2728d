#include "tools/cp/partial.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <functional>

#include "tools/cp/session_fixture.h"

namespace farverbs::tools::copy {
namespace {

using testing::HasSubstr;

class PartialTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<Fd> fd = open_local_directory(directory_.path());
    ASSERT_TRUE(fd.ok());
    fd_ = std::move(*fd);
  }
  Result<PartialFile> open(uint64_t size, int64_t mtime = 1) {
    const SourceIdentity identity{size, mtime, "id", {{0, size}}};
    return PartialFile::open(fd_.get(), "file", identity, *PiecePlan::create(size, {{0, size}}));
  }
  TestDirectory directory_;
  Fd fd_;
};

TEST_F(PartialTest, NotesOutliveTheirProcessAndGoWithTheFile) {
  {
    Result<PartialFile> partial = open(3 * kPieceBytes);
    ASSERT_TRUE(partial.ok()) << partial.error().message;
    EXPECT_EQ(partial->noted_crc(1), std::nullopt);
    partial->note(1, 0);  // zero is a CRC like any other
    partial->note(2, 77);
    EXPECT_EQ(status_of(directory_ / ".file.farverbs-partial").st_mode & 07777, 0600u);
  }
  Result<PartialFile> again = open(3 * kPieceBytes);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->noted_crc(0), std::nullopt);
  EXPECT_EQ(again->noted_crc(1), 0u);
  EXPECT_EQ(again->noted_crc(2), 77u);
  EXPECT_EQ(again->noted_crc(3), std::nullopt);
  ASSERT_TRUE(again->commit(0644, 1'500'000'000, true).ok());
  EXPECT_EQ(status_of(directory_ / "file").st_mode & 07777, 0644u);
  EXPECT_EQ(mtime_ns(status_of(directory_ / "file")), 1'500'000'000);
  EXPECT_FALSE(exists(directory_ / ".file.farverbs-state"));
  EXPECT_FALSE(exists(directory_ / ".file.farverbs-partial"));
}

TEST_F(PartialTest, AnotherSourceStartsFromNothing) {
  open(3 * kPieceBytes)->note(1, 5);
  Result<PartialFile> other = open(3 * kPieceBytes, 2);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other->noted_crc(1), std::nullopt);
}

TEST_F(PartialTest, TornStateIsNoState) {
  for (const off_t size : {off_t{0}, off_t{10}, off_t{100'000}}) {
    open(3 * kPieceBytes)->note(1, 5);
    ASSERT_EQ(::truncate((directory_ / ".file.farverbs-state").c_str(), size), 0);
    Result<PartialFile> partial = open(3 * kPieceBytes);
    ASSERT_TRUE(partial.ok());
    EXPECT_EQ(partial->noted_crc(1), std::nullopt);
    partial->discard();
  }
}

TEST_F(PartialTest, OneTransferAtATime) {
  Result<PartialFile> first = open(10);
  ASSERT_TRUE(first.ok());
  Result<PartialFile> second = open(10);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, EBUSY);
  EXPECT_THAT(second.error().message, HasSubstr("another transfer is writing 'file'"));
}

TEST_F(PartialTest, WhatOthersPutUnderItsNameIsNotWritten) {
  write_file(directory_ / "precious", "precious");
  ASSERT_EQ(::symlink("precious", (directory_ / ".file.farverbs-partial").c_str()), 0);
  EXPECT_TRUE(open(100).ok());
  ASSERT_EQ(::unlink((directory_ / ".file.farverbs-partial").c_str()), 0);
  ASSERT_EQ(
      ::link((directory_ / "precious").c_str(), (directory_ / ".file.farverbs-partial").c_str()),
      0);
  EXPECT_TRUE(open(100).ok());
  EXPECT_EQ(read_file(directory_ / "precious"), "precious");
}

// Runs `body` in a child with a tmpfs of `bytes` mounted over `directory`; false if this machine
// does not let us.
bool with_small_disk(const std::string& directory, const char* bytes,
                     const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ::_exit(77);
    ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (::mount("small", directory.c_str(), "tmpfs", 0, bytes) != 0) ::_exit(77);
    body();
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_TRUE(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77);
  return WEXITSTATUS(status) != 77;
}

class DiskFullTest : public SessionTest {};

TEST_F(DiskFullTest, ItIsSaidBeforeAnythingIsSentAndNothingIsLost) {
  write_file(from("large"), random_bytes(20 * kPieceBytes, 1));
  write_file(from("small"), random_bytes(100'000, 2));
  const bool ran = with_small_disk(to(""), "size=8m", [&] {
    ::mkdir(to("from").c_str(), 0755);
    write_file(to("from/large"), "the old content");
    FakeWire wire;
    const Outcome outcome = copy(wire, "from", "to");
    EXPECT_TRUE(outcome.sent.ok());
    EXPECT_THAT(outcome.sender.problems, HasSubstr("no space left for 'large': it needs 20 MiB"));
    EXPECT_EQ(wire.written_bytes, 100'000u);
    EXPECT_EQ(read_file(to("from/large")), "the old content");
    EXPECT_EQ(read_file(to("from/small")), read_file(from("small")));
    EXPECT_FALSE(exists(to("from/.large.farverbs-partial")));
  });
  if (!ran) GTEST_SKIP() << "NOT TESTED: no namespaces for mounting a small disk on this machine";
}

}  // namespace
}  // namespace farverbs::tools::copy
