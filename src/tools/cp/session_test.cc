// Sender against receiver over a link in memory: what arrives, what faults do, what is resumed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/cp/session_fixture.h"

namespace farverbs::tools::copy {
namespace {

using testing::HasSubstr;

TEST_F(SessionTest, FilesOfManySizesKeepContentModeAndTime) {
  const size_t sizes[] = {0, 1, 4095, 4096, 65'537, kPieceBytes, kPieceBytes + 1, 3'600'000};
  for (const size_t size : sizes) {
    const std::string name = std::to_string(size);
    write_file(from(name), random_bytes(size, size));
    ::chmod(from(name).c_str(), size % 2 == 0 ? 0640 : 0755);
    set_mtime(from(name), 1'234'567'890 - static_cast<int64_t>(size), 987'654'321);
    const Outcome outcome = copy("from/" + name, "to/" + name, false);
    expect_clean(outcome);
    EXPECT_EQ(outcome.receiver.moved, size);
    EXPECT_EQ(outcome.sender.moved, size);
    EXPECT_EQ(outcome.sender.done, 1u);
    EXPECT_EQ(describe_tree(from(name)), describe_tree(to(name)));
  }
  expect_no_leftovers();
}

TEST_F(SessionTest, TreesKeepLinksOddNamesAndTimesOfDirectories) {
  for (const char* name : {"a", "a/b", "a/b/c", "empty", "a/.hidden"}) {
    ::mkdir(from(name).c_str(), 0755);
  }
  for (const char* name : {"a/space and %41 percent", "a/new\nline", "a/\xff\xfe not utf8",
                           "a/b/'\"", ".dot", "a/b/c/-r", "a/\xE2\x82\xAC"}) {
    write_file(from(name), random_bytes(1000, ::strlen(name)));
    set_mtime(from(name), 1'000'000'000, 123'456'789);
  }
  ASSERT_EQ(::symlink("../outside", from("a/link").c_str()), 0);
  ASSERT_EQ(::symlink("/etc/passwd", from("absolute").c_str()), 0);
  ASSERT_EQ(::symlink("nowhere", from("dangling").c_str()), 0);
  set_mtime(from("dangling"), 999'999'999, 5);
  ::chmod(from("a/b").c_str(), 0500);
  set_mtime(from("a/b/c"), 1'111'111'111, 1);
  set_mtime(from("a"), 1'222'222'222, 2);
  const Outcome outcome = copy("from", "to/new");
  expect_clean(outcome);
  EXPECT_EQ(describe_tree(from("")).size(), describe_tree(to("new")).size());
  const auto there = describe_tree(to("new"));
  for (const auto& [name, text] : describe_tree(directory_ / "from")) {
    const auto at = there.find(name);
    ASSERT_NE(at, there.end()) << name;
    EXPECT_EQ(at->second, text) << name;
  }
  expect_no_leftovers();
  ::chmod(from("a/b").c_str(), 0755);
  ::chmod(to("new/a/b").c_str(), 0755);
}

TEST_F(SessionTest, IntoAnExistingDirectoryGoesUnderTheSourcesName) {
  write_file(from("file"), "content");
  expect_clean(copy("from/file", "to", false));
  EXPECT_EQ(read_file(to("file")), "content");
  expect_clean(copy("from", "to"));
  EXPECT_EQ(read_file(to("from/file")), "content");
}

TEST_F(SessionTest, HolesStayHoles) {
  const uint64_t size = UINT64_C(700) << 20;  // three windows
  const std::string path = from("sparse");
  const Fd file(::open(path.c_str(), O_RDWR | O_CREAT, 0644));
  ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(size)), 0);
  const std::string data = random_bytes(100'000, 7);
  for (const uint64_t offset :
       {UINT64_C(0), UINT64_C(8) << 20, (UINT64_C(300) << 20) + 4096, size - data.size()}) {
    ASSERT_EQ(::pwrite(file.get(), data.data(), data.size(), static_cast<off_t>(offset)),
              static_cast<ssize_t>(data.size()));
  }
  const struct stat source = status_of(path);
  if (static_cast<uint64_t>(source.st_blocks) * 512 > size / 2) GTEST_SKIP() << "no sparse files";
  const Outcome outcome = copy("from/sparse", "to/sparse", false);
  expect_clean(outcome);
  EXPECT_LT(outcome.receiver.moved, UINT64_C(2) << 20);
  const struct stat copied = status_of(to("sparse"));
  EXPECT_EQ(copied.st_size, source.st_size);
  EXPECT_LE(copied.st_blocks, source.st_blocks + 64);
  const Fd result(::open(to("sparse").c_str(), O_RDONLY));
  std::string block(data.size(), '\0');
  ASSERT_EQ(::pread(result.get(), block.data(), block.size(), (300 << 20) + 4096),
            static_cast<ssize_t>(block.size()));
  EXPECT_EQ(block, data);
  ASSERT_EQ(::pread(result.get(), block.data(), block.size(), 100 << 20),
            static_cast<ssize_t>(block.size()));
  EXPECT_EQ(block, std::string(data.size(), '\0'));
}

TEST_F(SessionTest, MoreFilesThanMayBeOutstanding) {
  for (int i = 0; i < 3000; ++i) write_file(from(std::to_string(i)), std::to_string(i * 7));
  const Outcome outcome = copy("from", "to/all");
  expect_clean(outcome);
  EXPECT_EQ(outcome.sender.done, 3000u);
  EXPECT_EQ(describe_tree(directory_ / "from"), describe_tree(to("all")));
}

TEST_F(SessionTest, CorruptedPiecesAreSentAgain) {
  write_file(from("file"), random_bytes(5 * kPieceBytes, 1));
  FakeWire wire;
  wire.fault = [](uint64_t n) {
    return n == 1 || n == 3 ? FakeWire::Fault::kCorrupt : FakeWire::Fault::kNone;
  };
  const Outcome outcome = copy(wire, "from/file", "to/file");
  expect_clean(outcome);
  EXPECT_EQ(outcome.receiver.repeated, 2u);
  EXPECT_EQ(outcome.sender.repeated, 2u);
  EXPECT_EQ(read_file(from("file")), read_file(to("file")));
}

TEST_F(SessionTest, EndlessCorruptionFailsTheFileAndOnlyThatFile) {
  write_file(from("a"), random_bytes(3 * kPieceBytes, 1));
  write_file(from("b"), random_bytes(1000, 2));
  ::mkdir(to("from").c_str(), 0755);
  write_file(to("from/a"), "the old content");
  FakeWire wire;
  uint64_t large_writes = 0;
  wire.fault = [&](uint64_t n) {
    (void)n;
    return ++large_writes <= 9 ? FakeWire::Fault::kCorrupt : FakeWire::Fault::kNone;
  };
  const Outcome outcome = copy(wire, "from", "to");
  EXPECT_TRUE(outcome.sent.ok());
  EXPECT_TRUE(outcome.received.ok());
  EXPECT_THAT(outcome.sender.problems, HasSubstr("a: its content at byte 0 was corrupted 3 times"));
  EXPECT_EQ(read_file(to("from/a")), "the old content");
  EXPECT_EQ(read_file(to("from/b")), read_file(from("b")));
}

TEST_F(SessionTest, AnInterruptedTransferContinuesWhereItWas) {
  const size_t size = 20 * kPieceBytes + 12'345;
  write_file(from("file"), random_bytes(size, 3));
  FakeWire wire;
  wire.fault = [](uint64_t n) {
    return n == 12 ? FakeWire::Fault::kBreak : FakeWire::Fault::kNone;
  };
  const Outcome cut = copy(wire, "from/file", "to/file");
  EXPECT_EQ(cut.sent.error().code, EPIPE);
  EXPECT_FALSE(exists(to("file"))) << "a half file has the final name";
  EXPECT_TRUE(exists(to(".file.farverbs-partial")));
  FakeWire again;
  const Outcome outcome = copy(again, "from/file", "to/file");
  expect_clean(outcome);
  EXPECT_EQ(outcome.receiver.resumed, 12 * kPieceBytes);
  EXPECT_EQ(outcome.sender.resumed, 12 * kPieceBytes);
  EXPECT_EQ(again.written_bytes, size - 12 * kPieceBytes);
  EXPECT_EQ(read_file(from("file")), read_file(to("file")));
  expect_no_leftovers();
}

TEST_F(SessionTest, NotesAreNotTrusted) {
  write_file(from("file"), random_bytes(8 * kPieceBytes, 3));
  FakeWire wire;
  wire.fault = [](uint64_t n) { return n == 6 ? FakeWire::Fault::kBreak : FakeWire::Fault::kNone; };
  (void)copy(wire, "from/file", "to/file");
  // As after a crash that kept the notes but lost a page.
  const Fd partial(::open(to(".file.farverbs-partial").c_str(), O_RDWR));
  ASSERT_EQ(::pwrite(partial.get(), "lost", 4, 2 * kPieceBytes + 77), 4);
  const Outcome outcome = copy("from/file", "to/file");
  expect_clean(outcome);
  EXPECT_EQ(outcome.receiver.resumed, 5 * kPieceBytes);
  EXPECT_EQ(read_file(from("file")), read_file(to("file")));
}

TEST_F(SessionTest, APartialFileOfAnotherVersionIsDiscarded) {
  write_file(from("file"), random_bytes(8 * kPieceBytes, 3));
  FakeWire wire;
  wire.fault = [](uint64_t n) { return n == 6 ? FakeWire::Fault::kBreak : FakeWire::Fault::kNone; };
  (void)copy(wire, "from/file", "to/file");
  write_file(from("file"), random_bytes(8 * kPieceBytes, 4));
  const Outcome outcome = copy("from/file", "to/file");
  expect_clean(outcome);
  EXPECT_EQ(outcome.receiver.resumed, 0u);
  EXPECT_EQ(read_file(from("file")), read_file(to("file")));
}

TEST_F(SessionTest, AnInterruptedTreeContinuesInPlace) {
  for (int i = 0; i < 40; ++i) write_file(from(std::to_string(i)), random_bytes(200'000, 40 + i));
  FakeWire wire;
  wire.fault = [](uint64_t n) {
    return n == 17 ? FakeWire::Fault::kBreak : FakeWire::Fault::kNone;
  };
  const Outcome cut = copy(wire, "from", "to/tree");
  EXPECT_FALSE(cut.sent.ok());
  FakeWire again;
  const Outcome outcome = copy(again, "from", "to/tree");
  expect_clean(outcome);
  EXPECT_FALSE(exists(to("tree/from"))) << "it was copied into itself";
  EXPECT_GE(outcome.receiver.unchanged, 10u);
  EXPECT_LE(again.writes, 30u);
  EXPECT_EQ(describe_tree(directory_ / "from"), describe_tree(to("tree")));
  // A finished one is an existing directory like any other.
  expect_clean(copy("from", "to/tree"));
  EXPECT_TRUE(exists(to("tree/from")));
}

TEST_F(SessionTest, WhatIsThereIsNotSentAgainUnlessAsked) {
  write_file(from("file"), "content");
  expect_clean(copy("from/file", "to/file"));
  FakeWire wire;
  const Outcome outcome = copy(wire, "from/file", "to/file");
  expect_clean(outcome);
  EXPECT_EQ(outcome.sender.unchanged, 1u);
  EXPECT_EQ(wire.writes, 0u);
  FakeWire always;
  expect_clean(copy(always, "from/file", "to/file", false, true));
  EXPECT_EQ(always.writes, 1u);
}

TEST_F(SessionTest, ASourceThatIsTruncatedWhileSentIsReported) {
  write_file(from("file"), random_bytes(8 * kPieceBytes, 3));
  write_file(to("file"), "the old content");
  FakeWire wire;
  wire.before_write = [&](uint64_t n) {
    if (n != 3) return;
    ASSERT_EQ(::truncate(from("file").c_str(), 4 * kPieceBytes + 100), 0);
  };
  const Outcome outcome = copy(wire, "from/file", "to/file");
  EXPECT_TRUE(outcome.sent.ok());
  EXPECT_THAT(outcome.sender.problems, HasSubstr("changed while being sent"));
  EXPECT_EQ(read_file(to("file")), "the old content");
  expect_no_leftovers();
}

TEST_F(SessionTest, ASourceTruncatedUnderTheTransportEndsTheConnectionNotTheProcess) {
  write_file(from("file"), random_bytes(8 * kPieceBytes, 3));
  FakeWire wire;
  wire.before_write = [&](uint64_t n) {
    if (n != 3) return;
    ASSERT_EQ(::truncate(from("file").c_str(), 2 * kPieceBytes), 0);
  };
  const Outcome outcome = copy(wire, "from/file", "to/file");
  EXPECT_EQ(outcome.sent.error().code, ESTALE);
  EXPECT_THAT(outcome.sent.error().message, HasSubstr("file' changed while being sent"));
  EXPECT_FALSE(exists(to("file")));
}

TEST_F(SessionTest, ASourceThatVanishesIsReportedAndTheRestCopied) {
  write_file(from("a"), "a");
  write_file(from("b"), random_bytes(100, 1));
  Result<SourceRoot> root = resolve_local_source(directory_ / "from", true);
  ASSERT_TRUE(root.ok());
  Walk walk(root->base.get(), "", true);
  Entry entry;
  while (auto found = walk.next()) entry = std::get<Entry>(*found);
  EXPECT_EQ(entry.path, "b");
  EXPECT_TRUE(walk.open_file(entry).ok());
  write_file(from("b"), "shorter");
  EXPECT_EQ(walk.open_file(entry).error().code, ESTALE);
  ASSERT_EQ(::unlink(from("b").c_str()), 0);
  EXPECT_EQ(walk.open_file(entry).error().code, ENOENT);
}

TEST_F(SessionTest, SpecialFilesAreSkippedWithAWarning) {
  write_file(from("file"), "x");
  ASSERT_EQ(::mkfifo(from("pipe").c_str(), 0644), 0);
  const Outcome outcome = copy("from", "to/all");
  EXPECT_TRUE(outcome.sent.ok());
  EXPECT_THAT(outcome.sender.problems, HasSubstr("pipe: skipped: it is a named pipe"));
  EXPECT_THAT(outcome.receiver.problems, HasSubstr("pipe: skipped"));
  EXPECT_EQ(read_file(to("all/file")), "x");
  EXPECT_FALSE(exists(to("all/pipe")));
}

TEST_F(SessionTest, ADirectoryInTheWayIsNotReplaced) {
  write_file(from("a"), "file");
  write_file(from("b"), "other");
  ::mkdir(to("from").c_str(), 0755);
  ::mkdir(to("from/a").c_str(), 0755);
  const Outcome outcome = copy("from", "to");
  EXPECT_TRUE(outcome.sent.ok());
  EXPECT_THAT(outcome.sender.problems, HasSubstr("'from/a' is a directory there"));
  EXPECT_EQ(read_file(to("from/b")), "other");
}

TEST_F(SessionTest, AFileInTheWayOfADirectoryIsNotReplaced) {
  ::mkdir(from("a").c_str(), 0755);
  write_file(from("a/b"), "x");
  ::mkdir(to("from").c_str(), 0755);
  write_file(to("from/a"), "precious");
  const Outcome outcome = copy("from", "to");
  EXPECT_TRUE(outcome.sent.ok());
  EXPECT_THAT(outcome.sender.problems, HasSubstr("exists there and is not a directory"));
  EXPECT_EQ(read_file(to("from/a")), "precious");
}

TEST_F(SessionTest, WhatIsWrongWithSourceOrTargetIsSaid) {
  EXPECT_EQ(copy("nothing", "to").sent.error().code, ENOENT);
  EXPECT_THAT(copy("from", "to", false).sent.error().message, HasSubstr("add -r"));
  write_file(from("file"), "x");
  EXPECT_THAT(copy("from/file", "to/no/where", false).received.error().message,
              HasSubstr("does not exist: create it first"));
}

}  // namespace
}  // namespace farverbs::tools::copy
