#include "farverbs/wire/roce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "farverbs/wire/network_headers.h"
#include "farverbs/wire/syndrome.h"
#include "farverbs/wire/tx_burst.h"

namespace farverbs::wire {
namespace {

// Parts of a header stand where the specification's figures put them.
static_assert(field_of<&Bth::pad>.bit == 2 && field_of<&Bth::psn>.byte == 9);
static_assert(field_of<&Reth::length>.byte == 12 && field_of<&AtomicEth::compare>.byte == 20);

std::vector<std::byte> bytes(std::initializer_list<int> list) {
  std::vector<std::byte> v;
  for (int b : list) v.push_back(static_cast<std::byte>(b));
  return v;
}

TEST(Field, ViewReadsSingleFields) {
  const auto raw = bytes({0x0a, 0x70, 0xff, 0xff, 0xc0, 0, 1, 0x0a, 0x80, 0xa7, 0x88, 0xbc});
  const auto view = HeaderView<Bth>::over(raw);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->get<&Bth::opcode>(), 0x0a);
  EXPECT_EQ(view->get<&Bth::pad>(), 3);
  EXPECT_TRUE(view->get<&Bth::migrated>());
  EXPECT_TRUE(view->get<&Bth::fecn>());
  EXPECT_TRUE(view->get<&Bth::becn>());
  EXPECT_EQ(view->get<&Bth::dest_qp>(), Qpn(0x10a));
  EXPECT_TRUE(view->get<&Bth::ack_request>());
  EXPECT_EQ(view->get<&Bth::psn>(), Psn(0xa788bc));
  EXPECT_FALSE(HeaderView<Bth>::over(std::span(raw).first(11)));
}

TEST(Field, EmitCutsValuesToTheirFields) {
  Bth bth;
  bth.pad = 7;
  bth.version = 0x1f;
  std::byte raw[Bth::kSize];
  emit_header(bth, raw);
  EXPECT_EQ(raw[1], std::byte{0x7f});  // migrated, pad 3, version 15; SE untouched
}

TEST(Opcode, HeaderLengths) {
  EXPECT_EQ(opcode_info(Opcode::rc_send_only).header_length, 12);
  EXPECT_EQ(opcode_info(Opcode::rc_send_only_imm).header_length, 16);
  EXPECT_EQ(opcode_info(Opcode::rc_write_only_imm).header_length, 32);
  EXPECT_EQ(opcode_info(Opcode::rc_write_only_imm).offset_of(Extension::imm), 28u);
  EXPECT_EQ(opcode_info(Opcode::rc_atomic_ack).header_length, 24);
  EXPECT_EQ(opcode_info(Opcode::rc_fetch_add).header_length, 40);
  EXPECT_EQ(opcode_info(Opcode::ud_send_only_imm).header_length, 24);
  EXPECT_EQ(opcode_info(Opcode::cnp).header_length, 28);
  EXPECT_EQ(opcode_info(0xac).header_length, 12 + 4 + 16);      // XRC READ_REQUEST
  EXPECT_EQ(opcode_info(0x54).header_length, 12 + 4 + 8 + 28);  // RD FETCH_ADD
  EXPECT_EQ(opcode_info(Opcode::far_write).header_length, 12 + 8 + 16);
  EXPECT_EQ(opcode_info(Opcode::far_send_imm).header_length, 12 + 8 + 8 + 4);
  EXPECT_EQ(opcode_info(Opcode::far_ack).header_length, 12 + 8 + 24);
  // At least 93 % of a full Ethernet packet of 1,538 bytes is payload.
  EXPECT_EQ(packet_size(Opcode::far_write, 1432), 1472u);
  EXPECT_EQ(opcode_info(0xff).service, Service::manufacturer);
  EXPECT_FALSE(opcode_info(0x15).known());
  EXPECT_FALSE(opcode_info(0x2c).known());  // UC has no READ
  EXPECT_FALSE(opcode_info(0x60).known());  // UD has no SEND_FIRST
  EXPECT_FALSE(opcode_info(0x80).known());
}

TEST(Opcode, PositionsAndKinds) {
  EXPECT_TRUE(opcode_info(Opcode::rc_send_first).begins());
  EXPECT_FALSE(opcode_info(Opcode::rc_send_first).ends());
  EXPECT_TRUE(opcode_info(Opcode::rc_write_last_imm).ends());
  EXPECT_TRUE(opcode_info(Opcode::rc_read_request).begins());
  EXPECT_TRUE(opcode_info(Opcode::rc_read_request).ends());
  EXPECT_FALSE(opcode_info(Opcode::rc_read_response_middle).has(Extension::aeth));
  EXPECT_TRUE(opcode_info(Opcode::rc_read_response_last).has(Extension::aeth));
  EXPECT_TRUE(opcode_info(Opcode::rc_ack).is_response());
  EXPECT_STREQ(opcode_name(0x0b), "RC WRITE_ONLY_IMM");
  EXPECT_STREQ(opcode_name(0x17), "RC SEND_ONLY_INVALIDATE");
  EXPECT_STREQ(opcode_name(0x64), "UD SEND_ONLY");
  EXPECT_STREQ(opcode_name(0x81), "CNP");
  EXPECT_STREQ(opcode_name(0xc4), "FAR SEND_INVALIDATE");
  EXPECT_STREQ(opcode_name(0xca), "FAR ACK");
  EXPECT_STREQ(opcode_name(0xfe), "MANUFACTURER 0xfe");
  EXPECT_STREQ(opcode_name(0x15), "UNKNOWN 0x15");
}

std::vector<std::byte> write_only(size_t payload) {
  Bth bth;
  bth.opcode = static_cast<uint8_t>(Opcode::rc_write_only);
  bth.pad = pad_for(payload);
  std::vector<std::byte> packet(packet_size(Opcode::rc_write_only, payload), std::byte{0x11});
  emit_headers(packet.data(), bth, Reth{0x1234, MemoryKey(0xabcd), static_cast<uint32_t>(payload)});
  return packet;
}

TEST(Parse, GivesHeadersAndPayload) {
  const auto packet = write_only(5);
  ASSERT_EQ(packet.size(), 28u + 5 + 3 + 4);
  const ParseResult r = parse(packet);
  ASSERT_TRUE(r);
  EXPECT_EQ(r->opcode(), Opcode::rc_write_only);
  EXPECT_EQ(r->reth(), (Reth{0x1234, MemoryKey(0xabcd), 5}));
  EXPECT_EQ(r->payload().size(), 5u);
  EXPECT_EQ(r->payload().data(), packet.data() + 28);
  EXPECT_EQ(r->icrc(), 0x11111111u);
}

TEST(Parse, NamesWhatIsWrong) {
  const auto error = [](std::vector<std::byte> packet) { return parse(packet).error(); };
  auto good = write_only(4);
  EXPECT_EQ(error(good), ParseError::none);
  EXPECT_EQ(error(std::vector<std::byte>(good.begin(), good.begin() + 15)), ParseError::too_short);
  EXPECT_EQ(error({}), ParseError::too_short);
  EXPECT_EQ(error(std::vector<std::byte>(good.begin(), good.begin() + 28)),
            ParseError::headers_cut);
  EXPECT_EQ(error(std::vector<std::byte>(good.begin(), good.begin() + 33)), ParseError::bad_length);
  auto bad = good;
  bad[0] = std::byte{0x15};
  EXPECT_EQ(error(bad), ParseError::unknown_opcode);
  bad = good;
  bad[1] |= std::byte{0x01};
  EXPECT_EQ(error(bad), ParseError::bad_version);
  bad = write_only(0);
  bad[1] |= std::byte{0x10};
  EXPECT_EQ(error(bad), ParseError::bad_pad);
  bad = good;
  bad[0] = static_cast<std::byte>(Opcode::rc_read_request);
  EXPECT_EQ(error(bad), ParseError::unexpected_payload);
}

TEST(Parse, AcceptsAnyLengthOfManufacturerPackets) {
  std::vector<std::byte> packet(17, std::byte{0});
  packet[0] = std::byte{0xfe};
  const ParseResult r = parse(packet);
  ASSERT_TRUE(r);
  EXPECT_EQ(r->payload().size(), 1u);
}

TEST(Syndrome, KindsAndCodes) {
  EXPECT_EQ(Syndrome(0x1f), Syndrome::ack());
  EXPECT_EQ(Syndrome(0x60).kind(), SyndromeKind::nak);
  EXPECT_EQ(Syndrome(0x62).nak_code(), NakCode::remote_access_error);
  EXPECT_EQ(Syndrome::rnr_nak(18).byte(), 0x32);
  EXPECT_EQ(Syndrome(0x80).kind(), SyndromeKind::reserved);
}

TEST(Syndrome, CreditsFollowTheTable) {
  const uint32_t table[] = {0,    1,    2,    3,    4,    6,     8,     12,    16,   24,   32,
                            48,   64,   96,   128,  192,  256,   384,   512,   768,  1024, 1536,
                            2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};
  for (uint8_t code = 0; code < 31; ++code) {
    EXPECT_EQ(credits_of(code), table[code]) << int{code};
    EXPECT_EQ(credit_code_for(table[code]), code);
    if (code > 0) {
      EXPECT_EQ(credit_code_for(table[code] - 1), code - 1);
    }
  }
  EXPECT_EQ(credit_code_for(1'000'000), 30);
}

TEST(Syndrome, RnrTimers) {
  EXPECT_EQ(rnr_delay(0), Duration::microseconds(655'360));
  EXPECT_EQ(rnr_delay(1), Duration::microseconds(10));
  EXPECT_EQ(rnr_delay(14), Duration::microseconds(1280));
  EXPECT_EQ(rnr_delay(31), Duration::microseconds(491'520));
  for (uint8_t code = 1; code < 32; ++code) EXPECT_EQ(rnr_timer_code_for(rnr_delay(code)), code);
  EXPECT_EQ(rnr_timer_code_for(Duration::milliseconds(500)), 0);
  EXPECT_EQ(rnr_timer_code_for(Duration::nanoseconds(0)), 1);
}

TEST(JoinedAcknowledgement, EndsWhereItsHeaderSays) {
  FarAck ack;
  ack.range_count = 2;
  const size_t size = packet_size(Opcode::far_ack, 2 * FarRange::kSize);
  std::vector<std::byte> datagram(size + 60);
  Bth bth;
  bth.opcode = static_cast<uint8_t>(Opcode::far_ack);
  emit_headers(datagram.data(), bth, FarBase{}, ack);
  EXPECT_EQ(joined_acknowledgement(datagram), size);
  const std::span<const std::byte> bytes(datagram);
  // By itself, or cut off, it is a packet like others: whole or malformed.
  for (size_t n = 0; n <= size; ++n) EXPECT_EQ(joined_acknowledgement(bytes.first(n)), 0u) << n;
  EXPECT_EQ(joined_acknowledgement(bytes.first(size + 1)), size);
  datagram[0] = static_cast<std::byte>(Opcode::far_send);
  EXPECT_EQ(joined_acknowledgement(datagram), 0u);
}

TEST(TxBurst, AnotherPacketJoinsTheOnlyDatagramInFront) {
  std::vector<std::byte> storage(100);
  TxBurst burst;
  burst.reset(storage, 4);
  EXPECT_FALSE(burst.can_join(8));
  burst.append(20)[0] = std::byte{7};
  EXPECT_FALSE(burst.can_join(81));
  ASSERT_TRUE(burst.can_join(80));
  burst.join_front(8)[0] = std::byte{9};
  EXPECT_EQ(burst.count(), 1u);
  EXPECT_EQ(burst.segment_size(), 28u);
  EXPECT_EQ(burst.bytes().size(), 28u);
  EXPECT_EQ(burst.bytes()[0], std::byte{9});
  EXPECT_EQ(burst.bytes()[8], std::byte{7});
  EXPECT_TRUE(burst.fits(28));
  burst.append(28);
  EXPECT_FALSE(burst.can_join(8));
}

}  // namespace
}  // namespace farverbs::wire
