#include "tools/decode/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace farverbs::tools {
namespace {

using testing::HasSubstr;

const std::string kCaptures = std::string(FARVERBS_SOURCE_DIR) + "/tests/captures/";

struct Outcome {
  int status;
  std::string out;
  std::string err;
};

Outcome run(DecodeOptions options) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome o;
  o.status = decode(options);
  o.out = testing::internal::GetCapturedStdout();
  o.err = testing::internal::GetCapturedStderr();
  return o;
}

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// A file that lives as long as the object.
class Scratch {
 public:
  explicit Scratch(const std::string& content) {
    const int fd = mkstemp(path_.data());
    EXPECT_GE(fd, 0);
    ::close(fd);
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~Scratch() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/farverbs-decode-XXXXXX";
};

// The offset of packet `number`'s data in a classic little-endian file.
size_t data_offset(const std::string& file, int number) {
  size_t at = 24;
  for (int i = 1; i < number; ++i) {
    const auto length =
        static_cast<unsigned char>(file[at + 8]) + 256u * static_cast<unsigned char>(file[at + 9]);
    at += 16 + length;
  }
  return at + 16;
}

TEST(Decode, VerifiesAllCaptures) {
  std::ifstream counts(kCaptures + "counts.txt");
  std::string name;
  int files = 0;
  for (size_t count = 0; counts >> name >> count; ++files) {
    const Outcome o = run({kCaptures + name + ".pcap", true, false, true});
    EXPECT_EQ(o.status, 0) << name << o.err;
    EXPECT_EQ(o.err, "") << name;
    EXPECT_THAT(o.out, HasSubstr(" " + std::to_string(count) + " RDMA, ")) << name;
    EXPECT_THAT(o.out, HasSubstr(", 0 wrong\n")) << name;
  }
  EXPECT_EQ(files, 66);
}

TEST(Decode, SaysEachPacketInFieldTerms) {
  const Outcome write = run({kCaptures + "rc_write_imm.pcap"});
  EXPECT_EQ(write.status, 0);
  EXPECT_THAT(write.out, testing::ContainsRegex(
                             "     1      0.000000 10.77.0.3:[0-9]+ > 10.77.0.2 RC WRITE_ONLY_IMM "
                             "qp=0x[0-9a-f]+ psn=0x000100 ackreq va=0x[0-9a-f]+ rkey=0x[0-9a-f]+ "
                             "len=0 imm=0x00000011 payload=0\n"));
  EXPECT_THAT(write.out, HasSubstr(" ack msn=1\n"));
  EXPECT_THAT(run({kCaptures + "rnr_exhausted.pcap"}).out, HasSubstr(" RC ACK qp=0x"));
  EXPECT_THAT(run({kCaptures + "rnr_exhausted.pcap"}).out, HasSubstr("rnr-nak timer=18 (5.12 ms)"));
  EXPECT_THAT(run({kCaptures + "nak_write_badkey.pcap"}).out,
              HasSubstr("nak code=2 (remote access error)"));
  EXPECT_THAT(run({kCaptures + "rc_atomics.pcap"}).out, HasSubstr("RC COMPARE_SWAP"));
  EXPECT_THAT(run({kCaptures + "rc_atomics.pcap"}).out, HasSubstr("add=0xffffffffffffffff"));
  EXPECT_THAT(run({kCaptures + "rc_sendinv_mw.pcap"}).out, HasSubstr("SEND_ONLY_INVALIDATE"));
  EXPECT_THAT(run({kCaptures + "cm_tos_dscp.pcap"}).out, HasSubstr(" dscp=26"));
  const std::string cm = run({kCaptures + "cm_rping.pcap"}).out;
  for (const char* message : {"CM REQ ", "CM REP ", "CM RTU ", "CM DREQ ", "CM DREP "}) {
    EXPECT_THAT(cm, HasSubstr(message));
  }
  const std::string udaddy = run({kCaptures + "cm_udaddy.pcap"}).out;
  EXPECT_THAT(udaddy, HasSubstr("CM SIDR_REQ"));
  EXPECT_THAT(udaddy, HasSubstr("8 packets: 8 RDMA, 0 other\n"));
  EXPECT_THAT(run({kCaptures + "rc_pingpong_64.pcap"}).out,
              testing::ContainsRegex("43 packets: 16|43 packets: [0-9]+ RDMA, [1-9][0-9]* other"));
}

TEST(Decode, WritesOneJsonDocument) {
  const Outcome o = run({kCaptures + "nak_read_badkey.pcap", true, true});
  EXPECT_EQ(o.status, 0);
  const nlohmann::json j = nlohmann::json::parse(o.out);
  ASSERT_EQ(j["packets"].size(), 2u);
  EXPECT_EQ(j["packets"][0]["opcode"], "RC READ_REQUEST");
  EXPECT_EQ(j["packets"][0]["reth"]["length"], 100);
  EXPECT_EQ(j["packets"][0]["correct"], true);
  EXPECT_EQ(j["packets"][1]["aeth"]["kind"], "nak");
  EXPECT_EQ(j["packets"][1]["aeth"]["reason"], "remote access error");
  EXPECT_EQ(j["summary"]["rdma"], 2);
  EXPECT_EQ(j["summary"]["wrong"], 0);
}

TEST(Decode, NamesACorruptedPacket) {
  const std::string good = slurp(kCaptures + "rc_send_sizes.pcap");
  std::string bad = good;
  const size_t at = data_offset(bad, 7);
  bad[at + 14 + 20 + 8 + 12] ^= 0x10;  // first byte behind the BTH of packet 7
  const Scratch file(bad);
  const Outcome plain = run({file.path()});
  EXPECT_EQ(plain.status, 0);
  const Outcome o = run({file.path(), true});
  EXPECT_EQ(o.status, 1);
  EXPECT_THAT(o.err,
              testing::MatchesRegex(
                  "farverbs decode: packet 7: the ICRC is [0-9a-f]+, should be [0-9a-f]+\n"));
  EXPECT_THAT(o.out, HasSubstr(" WRONG: the ICRC is "));
  EXPECT_THAT(o.out, HasSubstr("35 packets: 35 RDMA, 0 other, 1 wrong\n"));
  const nlohmann::json j = nlohmann::json::parse(run({file.path(), true, true}).out);
  EXPECT_EQ(j["packets"][6]["correct"], false);
  EXPECT_EQ(j["packets"][5]["correct"], true);
}

// Every byte from the BTH to the ICRC matters, except the one that routers may change.
TEST(Decode, FindsDamageAnywhereInAPacket) {
  const std::string good = slurp(kCaptures + "nak_sendinv_badkey.pcap");
  const size_t bth = data_offset(good, 1) + 14 + 20 + 8;
  for (size_t i = 0; i < 30; ++i) {
    std::string bad = good;
    bad[bth + i] ^= 0x01;
    const Scratch file(bad);
    EXPECT_EQ(run({file.path(), true, false, true}).status, i == 4 ? 0 : 1) << i;
  }
}

TEST(Decode, SaysWhyALengthIsWrong) {
  std::string bad = slurp(kCaptures + "nak_read_badkey.pcap");
  bad[data_offset(bad, 1) + 14 + 20 + 5] ^= 0x04;  // UDP length
  const Scratch lengths(bad);
  const Outcome o = run({lengths.path(), true});
  EXPECT_EQ(o.status, 1);
  EXPECT_THAT(o.err, HasSubstr("packet 1: UDP and IP lengths differ"));
  EXPECT_THAT(o.out, HasSubstr("MALFORMED: UDP and IP lengths differ"));

  bad = slurp(kCaptures + "nak_read_badkey.pcap");
  bad[24 + 8] = 50;  // the first record keeps 50 bytes of its packet
  bad.erase(24 + 16 + 50);
  const Scratch snapped(bad);
  EXPECT_THAT(run({snapped.path(), true}).err,
              HasSubstr("packet 1: the capture holds only 50 of its 74 bytes"));

  bad = slurp(kCaptures + "nak_read_badkey.pcap");
  bad[data_offset(bad, 1) + 14 + 20 + 8] = 0x15;  // a reserved opcode
  const Scratch opcode(bad);
  EXPECT_THAT(run({opcode.path(), true}).err, HasSubstr("packet 1: unknown opcode"));
}

TEST(Decode, SaysWhatIsWrongWithTheFile) {
  Outcome o = run({"/nonexistent.pcap"});
  EXPECT_EQ(o.status, 1);
  EXPECT_EQ(o.err, "farverbs decode: cannot open /nonexistent.pcap: No such file or directory\n");

  const Scratch text("This is no capture, this is a text.\n");
  o = run({text.path()});
  EXPECT_EQ(o.status, 1);
  EXPECT_THAT(o.err, HasSubstr("is not a packet capture (pcap or pcapng)"));

  const std::string good = slurp(kCaptures + "cm_udaddy.pcap");
  const Scratch cut(good.substr(0, good.size() - 10));
  o = run({cut.path(), false, true});
  EXPECT_EQ(o.status, 1);
  EXPECT_THAT(o.err, HasSubstr("is truncated inside a packet after packet 7"));
  const nlohmann::json j = nlohmann::json::parse(o.out);
  EXPECT_EQ(j["packets"].size(), 7u);
  EXPECT_THAT(j["error"].get<std::string>(), HasSubstr("truncated"));

  const Scratch empty(good.substr(0, 24));
  EXPECT_EQ(run({empty.path()}).status, 0);
  o = run({empty.path(), true});
  EXPECT_EQ(o.status, 1);
  EXPECT_THAT(o.err, HasSubstr("nothing to verify"));
}

}  // namespace
}  // namespace farverbs::tools
