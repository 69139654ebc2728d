#include "tools/cp/messages.h"

#include <gtest/gtest.h>

#include "tools/cp/record.h"

namespace farverbs::tools::copy {
namespace {

template <typename T>
T round_trip(const T& message) {
  const Result<Message> decoded = decode_message(encode(message));
  EXPECT_TRUE(decoded.ok()) << decoded.error().message << encode(message);
  if (!decoded.ok() || !std::holds_alternative<T>(*decoded)) return {};
  return std::get<T>(*decoded);
}

TEST(Messages, SurviveTheirEncoding) {
  Hello hello;
  hello.put = true;
  hello.path = "a\xff b";
  hello.name = "n\"\n";
  hello.directory = hello.always = true;
  hello.traffic = model::TrafficClass::kBackground;
  const Hello hello2 = round_trip(hello);
  EXPECT_EQ(hello2.path, hello.path);
  EXPECT_EQ(hello2.name, hello.name);
  EXPECT_EQ(hello2.traffic, model::TrafficClass::kBackground);
  EXPECT_TRUE(hello2.put && hello2.directory && hello2.always && !hello2.sync);

  Entry entry;
  entry.id = 7;
  entry.path = "x\x80";
  entry.mode = 0755;
  entry.mtime_ns = -5;
  entry.size = UINT64_C(1) << 40;
  entry.identity = "abc";
  entry.sparse = true;
  entry.extents = {{0, 5}, {UINT64_C(1) << 39, 9}};
  Entry link;
  link.kind = EntryKind::kLink;
  link.target = "/a\nb";
  const Entries entries = round_trip(Entries{{entry, link}, {{"p", "why"}}, true});
  ASSERT_EQ(entries.entries.size(), 2u);
  EXPECT_EQ(entries.entries[0].mtime_ns, -5);
  EXPECT_EQ(entries.entries[0].extents, entry.extents);
  EXPECT_TRUE(entries.entries[0].sparse);
  EXPECT_FALSE(entries.entries[1].sparse);
  EXPECT_EQ(entries.entries[1].target, "/a\nb");
  EXPECT_EQ(entries.notes.at(0).message, "why");
  EXPECT_TRUE(entries.last);

  Entry empty_sparse;
  empty_sparse.size = 100;
  empty_sparse.sparse = true;
  EXPECT_TRUE(round_trip(Entries{{empty_sparse}, {}, false}).entries.at(0).data_extents().empty());

  const Grant grant{3, kWindowBytes, 5, UINT64_MAX, UINT32_MAX, {{0, 1}, {7, 2}}};
  const Answers answers =
      round_trip(Answers{{grant}, {{3, false, false, 0, "no"}, {4, true, true, 9, ""}}, true});
  EXPECT_EQ(answers.grants.at(0).address, UINT64_MAX);
  EXPECT_EQ(answers.grants[0].pieces, grant.pieces);
  EXPECT_FALSE(answers.settled.at(0).ok);
  EXPECT_EQ(answers.settled[0].message, "no");
  EXPECT_TRUE(answers.settled.at(1).ok && answers.settled[1].unchanged);
  EXPECT_EQ(answers.settled[1].resumed_bytes, 9u);
  EXPECT_TRUE(answers.finished);

  Welcome refusal;
  refusal.error = EACCES;
  refusal.message = "\xff no";
  EXPECT_EQ(round_trip(refusal).message, refusal.message);
  const Goodbye goodbye = round_trip(Goodbye{ESTALE, "why\n"});
  EXPECT_EQ(goodbye.error, ESTALE);
  EXPECT_EQ(goodbye.message, "why\n");
}

TEST(Messages, WhatAPeerMustNotSayIsRefused) {
  const char* bad[] = {"",
                       "nonsense",
                       "[]",
                       "{}",
                       "7",
                       R"({"farverbs-copy":1})",
                       R"({"farverbs-copy":-1,"operation":"get"})",
                       R"({"farverbs-copy":1,"operation":"steal"})",
                       R"({"farverbs-copy":1,"operation":"get","path":"%zz"})",
                       R"({"farverbs-copy":1,"operation":"get","path":"%00"})",
                       R"({"farverbs-copy":1,"operation":"get","path":7})",
                       R"({"farverbs-copy":1,"operation":"get","recursive":1})",
                       R"({"entries":{}})",
                       R"({"entries":[7]})",
                       R"({"entries":[{}]})",
                       R"({"entries":[{"kind":"device"}]})",
                       R"({"entries":[{"kind":"file","size":-1}]})",
                       R"({"entries":[{"kind":"file","size":1e30}]})",
                       R"({"entries":[{"kind":"file","mode":65536}]})",
                       R"({"entries":[{"kind":"file","id":4294967296}]})",
                       R"({"entries":[{"kind":"file","mtime":18446744073709551615}]})",
                       R"({"entries":[{"kind":"file","extents":[[1]]}]})",
                       R"({"entries":[{"kind":"file","extents":[[1,-2]]}]})",
                       R"({"grants":[{"pieces":[["a",1]]}]})",
                       R"({"grants":7})",
                       R"({"grants":[],"settled":[{"file":"x"}]})"};
  for (const char* text : bad) EXPECT_FALSE(decode_message(text).ok()) << text;
  std::string many = R"({"entries":[)";
  for (size_t i = 0; i <= kMaxEntriesPerMessage; ++i) many += R"({"kind":"file"},)";
  many.back() = ']';
  EXPECT_FALSE(decode_message(many + "}").ok());
  EXPECT_FALSE(decode_message(std::string(1'000'000, '[')).ok());
}

TEST(Records, SurviveTheirEncodingAndNothingElseDoes) {
  const Record record{RecordKind::kPiece, AbortReason::kNone, 0x01020304,
                      0x1122334455667788, 0x99AABBCCDDEEFF00, 0x0FFFFFFF};
  auto bytes = encode_record(record);
  EXPECT_EQ(*decode_record(bytes), record);
  EXPECT_FALSE(decode_record(std::span(bytes).first(31)).ok());
  for (const size_t zero : {2u, 3u, 28u, 31u}) {
    auto changed = bytes;
    changed[zero] = std::byte{1};
    EXPECT_FALSE(decode_record(changed).ok()) << zero;
  }
  for (const int kind : {0, 5, 255}) {
    bytes[0] = static_cast<std::byte>(kind);
    EXPECT_FALSE(decode_record(bytes).ok());
  }
}

}  // namespace
}  // namespace farverbs::tools::copy
