// Peers that do not keep to the protocol: they end their own session, and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/cp/session_fixture.h"

namespace farverbs::tools::copy {
namespace {

using testing::HasSubstr;

class HostileSenderTest : public SessionTest {
 protected:
  void SetUp() override {
    SessionTest::SetUp();
    write_file(directory_ / "outside", "precious");
  }
  // Runs a receiver; `script` plays the sender.
  Result<void> receive(const std::function<void(FakeLink&)>& script) {
    FakeWire wire;
    FakeLink ours(wire, 0);
    FakeLink receiver_link(wire, 1);
    Result<Target> target = resolve_local_target({to("root"), false, "x", true});
    EXPECT_TRUE(target.ok());
    Receiver receiver(receiver_link, std::move(*target), {}, ledger_);
    std::thread peer([&] {
      script(ours);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      wire.close();
    });
    const Result<void> result = receiver.run([] { return false; });
    peer.join();
    return result;
  }
  static Entry entry(uint32_t id, EntryKind kind, const std::string& path) {
    Entry made;
    made.id = id;
    made.kind = kind;
    made.path = path;
    made.mode = 0755;
    return made;
  }
  static Entry file(uint32_t id, const std::string& path, uint64_t size) {
    Entry made = entry(id, EntryKind::kFile, path);
    made.size = size;
    return made;
  }
  static std::optional<Answers> await_answers(FakeLink& link) {
    for (int i = 0; i < 100; ++i) {
      Result<std::optional<LinkEvent>> event = link.next(Duration::milliseconds(100));
      if (!event.ok() || !event->has_value()) continue;
      if (const auto* text = std::get_if<std::string>(&**event)) {
        return std::get<Answers>(*decode_message(*text));
      }
    }
    return std::nullopt;
  }
  Ledger ledger_;
};

TEST_F(HostileSenderTest, NamesThatClimbEndTheSession) {
  for (const char* path : {"..", "../outside", "a/../../outside", "/etc/x", "a//b", "."}) {
    const Result<void> result = receive([&](FakeLink& link) {
      (void)link.send(encode(Entries{{file(1, path, 4)}, {}, true}));
    });
    EXPECT_EQ(result.error().code, EPROTO) << path;
  }
  EXPECT_EQ(read_file(directory_ / "outside"), "precious");
}

TEST_F(HostileSenderTest, NothingIsCreatedThroughALinkThatWasSent) {
  Entry link_entry = entry(2, EntryKind::kLink, "way");
  link_entry.target = "../..";
  const Result<void> result = receive([&](FakeLink& link) {
    (void)link.send(
        encode(Entries{{entry(1, EntryKind::kDirectory, ""), link_entry, file(3, "way/outside", 0),
                        file(4, "way/created", 0), entry(5, EntryKind::kDirectory, "way/made")},
                       {},
                       true}));
  });
  EXPECT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(read_file(directory_ / "outside"), "precious");
  EXPECT_FALSE(exists(directory_ / "created"));
  EXPECT_FALSE(exists(directory_ / "made"));
  EXPECT_THAT(ledger_.problems, HasSubstr("way/outside"));
}

TEST_F(HostileSenderTest, RecordsMustBeOfPiecesThatWereAskedFor) {
  const auto with_record = [&](Record record) {
    return receive([&](FakeLink& link) {
             (void)link.send(encode(Entries{{file(1, "", 2 * kPieceBytes)}, {}, false}));
             ASSERT_TRUE(await_answers(link).has_value());
             (void)link.notify(record);
           })
        .error();
  };
  Record good;
  good.file = 1;
  good.length = kPieceBytes;
  Record record = good;
  record.file = 2;
  EXPECT_THAT(with_record(record).message, HasSubstr("unknown file"));
  record = good;
  record.piece = 2;
  EXPECT_THAT(with_record(record).message, HasSubstr("does not exist"));
  record = good;
  record.length = 7;
  EXPECT_THAT(with_record(record).message, HasSubstr("not asked for"));
  record = good;
  record.kind = RecordKind::kVerified;
  EXPECT_THAT(with_record(record).message, HasSubstr("not its turn"));
  // A wrong CRC is only a request to send again.
  record = good;
  record.crc = 1;
  EXPECT_EQ(with_record(record).code, EPIPE);
}

TEST_F(HostileSenderTest, FloodsEndTheSession) {
  const Result<void> flood = receive([&](FakeLink& link) {
    for (uint32_t message = 0; message < 2 * kMaxOutstandingFiles / kMaxEntriesPerMessage;
         ++message) {
      Entries entries;
      for (uint32_t i = 0; i < kMaxEntriesPerMessage; ++i) {
        const uint32_t id = message * 1000 + i;
        entries.entries.push_back(file(id, std::to_string(id), 100));
      }
      (void)link.send(encode(entries));
    }
  });
  EXPECT_FALSE(flood.ok());
  const Result<void> twins = receive([&](FakeLink& link) {
    (void)link.send(encode(Entries{
        {entry(0, EntryKind::kDirectory, ""), file(1, "a", 100), file(1, "b", 100)}, {}, false}));
  });
  EXPECT_THAT(twins.error().message, HasSubstr("two files with one number"));
  const Result<void> nonsense = receive([&](FakeLink& link) { (void)link.send("{\"x\":1}"); });
  EXPECT_EQ(nonsense.error().code, EPROTO);
}

class HostileReceiverTest : public SessionTest {
 protected:
  // Runs a sender of one file of two pieces; `script` plays the receiver.
  Result<void> send(const Message& answer, const std::function<void(FakeLink&)>& more = {}) {
    write_file(from("file"), random_bytes(2 * kPieceBytes, 1));
    FakeWire wire;
    FakeLink ours(wire, 1);
    FakeLink sender_link(wire, 0);
    Result<SourceRoot> root = resolve_local_source(from("file"), false);
    Sender sender(sender_link, Walk(root->base.get(), root->entry, false), ledger_);
    std::thread peer([&] {
      (void)ours.next(Duration::seconds(5));
      (void)ours.send(encode(answer));
      if (more) more(ours);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      wire.close();
    });
    const Result<void> result = sender.run([] { return false; });
    peer.join();
    return result;
  }
  Ledger ledger_;
};

TEST_F(HostileReceiverTest, GrantsMustFitTheFile) {
  const Grant good{0, 0, 2 * kPieceBytes, 4096, 5, {{0, 2}}};
  const auto refused = [&](const std::function<void(Grant&)>& change) {
    Grant grant = good;
    change(grant);
    return send(Answers{{grant}, {}, false}).error().code == EPROTO;
  };
  EXPECT_TRUE(refused([](Grant& g) { g.file = 9; }));
  EXPECT_TRUE(refused([](Grant& g) { g.offset = 4096; }));
  EXPECT_TRUE(refused([](Grant& g) { g.length = 1; }));
  EXPECT_TRUE(refused([](Grant& g) { g.pieces = {{0, 3}}; }));
  EXPECT_TRUE(refused([](Grant& g) { g.pieces = {{1, UINT64_MAX}}; }));
  EXPECT_TRUE(refused([](Grant& g) { g.pieces = {{0, 1}, {0, 1}}; }));
  EXPECT_TRUE(refused([](Grant& g) { g.pieces = {{0, 0}}; }));
  EXPECT_TRUE(refused([](Grant& g) { g.pieces = {}; }));
  EXPECT_EQ(send(Answers{{good, good}, {}, false}).error().code, EPROTO);
}

TEST_F(HostileReceiverTest, AnswersMustBeToSomething) {
  EXPECT_EQ(send(Answers{{}, {{9, true, false, 0, ""}}, false}).error().code, EPROTO);
  EXPECT_EQ(send(Answers{{}, {}, true}).error().code, EPROTO);
  EXPECT_EQ(send(Entries{}).error().code, EPROTO);
  const auto record = [&](uint64_t piece) {
    return send(Answers{},
                [&](FakeLink& link) {
                  Record r;
                  r.kind = RecordKind::kVerified;
                  r.piece = piece;
                  (void)link.notify(r);
                })
        .error()
        .code;
  };
  EXPECT_EQ(record(0), EPROTO);
  EXPECT_EQ(record(2), EPROTO);
}

}  // namespace
}  // namespace farverbs::tools::copy
