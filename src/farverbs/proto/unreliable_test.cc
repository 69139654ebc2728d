// UC and UD.
#include "farverbs/proto/proto_testing.h"

namespace farverbs::proto {
namespace {

using namespace testing;

Options uc() {
  Options options;
  options.type = QpType::kUc;
  return options;
}

TEST(Uc, SendsAndWritesArriveAndCompleteAtOnce) {
  Link link(uc(), uc());
  link.a.fill(0, 3000, 1);
  link.b.receive(8192, 1000);
  link.a.write(0, 3000, link.b, 0);
  link.a.send(0, 1000);
  const auto lines = link.a.trace();
  EXPECT_EQ(lines.front(), "WRITE_FIRST 100 len 3000");
  EXPECT_EQ(lines.back(), "SEND_LAST 115");
  EXPECT_EQ(link.a.sends().size(), 2u);  // nothing to wait for
  link.a.write(0, 3000, link.b, 0);
  link.a.poll();
  EXPECT_TRUE(link.a.qp->next_timer().is_never());
}

TEST(Uc, BytesArrive) {
  Link link(uc(), uc());
  link.a.fill(0, 3000, 1);
  link.b.receive(8192, 1000);
  link.a.write(0, 3000, link.b, 0);
  link.a.send(0, 1000);
  link.settle();
  EXPECT_EQ(std::memcmp(link.a.bytes(0), link.b.bytes(0), 3000), 0);
  EXPECT_EQ(std::memcmp(link.a.bytes(0), link.b.bytes(8192), 1000), 0);
  EXPECT_EQ(Side::summary(link.b.receives()), "1 success");
}

TEST(Uc, AfterAGapTheRestIsDroppedUntilTheNextFirstOrOnly) {
  Link link(uc(), uc());
  link.b.receive(0, 1000);
  link.b.receive(2000, 1000);
  link.a.fill(0, 1000, 2);
  link.a.send(0, 1000);  // PSNs 100 to 103
  link.a.send(0, 300);   // 104, 105
  link.settle(drop(1, 102));
  const auto got = link.b.receives();
  // The receive of the broken message serves the next one.
  ASSERT_EQ(Side::summary(got), "1 success");
  EXPECT_EQ(got[0].byte_length, 300u);
  EXPECT_EQ(std::memcmp(link.a.bytes(0), link.b.bytes(0), 300), 0);
  EXPECT_EQ(link.b.state(), QpState::kRts);
}

TEST(Uc, ALostFirstDropsTheMessage) {
  Link link(uc(), uc());
  link.b.receive(0, 1000);
  link.a.send(0, 600);
  link.a.send(0, 8);
  link.settle(drop(1, 100));
  const auto got = link.b.receives();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].byte_length, 8u);
}

TEST(Uc, ALostLastIsNoMessage) {
  Link link(uc(), uc());
  link.b.receive(0, 1000);
  link.a.send(0, 600);
  link.a.send(0, 8);
  link.settle(drop(1, 102));
  const auto got = link.b.receives();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].byte_length, 8u);
}

TEST(Uc, ADamagedMiddleDropsTheMessage) {
  Options options = uc();
  options.ipv6 = true;
  Link link(options, options);
  link.b.receive(0, 1000);
  link.a.send(0, 1000);
  link.a.send(0, 8);
  link.settle([](const Side&, Bytes& bytes) {
    if ((*wire::parse(bytes)).bth.psn.value() == 101) bytes[40] ^= std::byte{1};
    return true;
  });
  const auto got = link.b.receives();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].byte_length, 8u);
}

TEST(Uc, WithoutAReceiveTheMessageIsDroppedInSilence) {
  Link link(uc(), uc());
  link.a.send(0, 600);
  link.settle();
  link.b.receive(0, 8);
  link.a.send(0, 8);
  link.settle();
  EXPECT_EQ(link.b.receives().size(), 1u);
  EXPECT_EQ(link.b.poll().size(), 0u);
}

TEST(Uc, ABadKeyIsDroppedInSilence) {
  Link link(uc(), uc());
  link.a.one_sided(SendOpcode::kWrite, 0, 600, link.b.address(0), MemoryKey(5));
  link.settle();
  EXPECT_EQ(link.b.state(), QpState::kRts);
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success");
  EXPECT_EQ(link.b.counters().dropped_packets, 3u);
}

TEST(Uc, ABadSourceTakesTheQpToSqeWhereReceivesGoOn) {
  Link link(uc(), uc());
  auto bad = link.a.request(SendOpcode::kSend, 0, 8);
  link.a.one.lkey = MemoryKey(3);
  link.a.post(bad);
  link.a.write(0, 8, link.b, 0);
  link.settle();
  EXPECT_EQ(Side::summary(link.a.sends()), "1 local protection error, 2 work request flushed");
  EXPECT_EQ(link.a.state(), QpState::kSqe);
  link.a.write(0, 8, link.b, 0);
  EXPECT_EQ(Side::summary(link.a.sends()), "3 work request flushed");
  link.a.receive(0, 8);
  link.b.send(0, 8);
  link.settle();
  EXPECT_EQ(Side::summary(link.a.receives()), "1 success");
  link.a.to_state(QpState::kRts);
  link.a.write(0, 8, link.b, 0);
  link.settle();
  EXPECT_EQ(Side::summary(link.a.sends()), "4 success");
}

TEST(Uc, PsnsWrap) {
  Options options = uc();
  options.send_psn = options.receive_psn = 0xFFFFFE;
  Link link(options, options);
  link.a.fill(0, 1500, 3);
  link.a.write(0, 1500, link.b, 0);
  link.settle();
  EXPECT_EQ(std::memcmp(link.a.bytes(0), link.b.bytes(0), 1500), 0);
}

TEST(Uc, ErrorFlushes) {
  Link link(uc(), uc());
  link.a.receive(0, 8);
  link.a.write(0, 8, link.b, 0);
  link.a.to_state(QpState::kErr);
  EXPECT_EQ(Side::summary(link.a.sends()), "1 work request flushed");
  EXPECT_EQ(Side::summary(link.a.receives()), "1 work request flushed");
}

// --- UD ------------------------------------------------------------------------------------------

Options ud() {
  Options options;
  options.type = QpType::kUd;
  return options;
}

class UdTest : public ::testing::Test {
 protected:
  UdTest() : link(ud(), ud()) {
    address.destination_gid = endpoint(2).address.to_gid();
    link.a.limits.max_path_mtu = model::PathMtu::k1024;
  }
  model::SendWorkRequest datagram(uint32_t length, uint32_t qkey = 0x1234) {
    auto r = link.a.request(SendOpcode::kSend, 0, length);
    r.address_vector = &address;
    r.remote_qpn = link.b.qp->qp().qpn;
    r.remote_qkey = qkey;
    return r;
  }
  model::AddressVector address;
  Link link;
};

TEST_F(UdTest, ADatagramArrivesBehindFortyBytes) {
  link.a.fill(0, 100, 1);
  link.b.receive(0, 200);
  auto r = datagram(100);
  r.opcode = SendOpcode::kSendWithImmediate;
  r.immediate = 77;
  link.a.post(r);
  ASSERT_NE(link.a.qp->next_flow(), nullptr);
  EXPECT_EQ(link.a.qp->next_flow()->destination_gid, address.destination_gid);
  link.settle();
  EXPECT_EQ(link.a.qp->next_flow(), nullptr);
  EXPECT_EQ(Side::summary(link.a.sends()), "1 success");
  const auto got = link.b.receives();
  ASSERT_EQ(Side::summary(got), "1 success");
  EXPECT_EQ(got[0].byte_length, 140u);
  EXPECT_EQ(got[0].source_qpn, link.a.qp->qp().qpn);
  EXPECT_EQ(got[0].immediate, 77u);
  EXPECT_EQ(got[0].flags, model::kGrhPresent | model::kOverIpv4 | model::kWithImmediate);
  EXPECT_EQ(std::memcmp(link.b.bytes(40), link.a.bytes(0), 100), 0);
  EXPECT_EQ(link.b.bytes(0)[0], std::byte{0});
  EXPECT_EQ(link.b.bytes(20)[0], std::byte{0x45});
  EXPECT_EQ(load_be<uint32_t>(link.b.bytes(32)), 0x0A000001u);
  EXPECT_EQ(load_be<uint32_t>(link.b.bytes(36)), 0x0A000002u);
  uint32_t sum = 0;
  for (size_t i = 20; i < 40; i += 2) sum += load_be<uint16_t>(link.b.bytes(i));
  EXPECT_EQ((sum & 0xFFFF) + (sum >> 16), 0xFFFFu);  // the header's checksum holds
}

TEST_F(UdTest, AWrongQkeyIsDropped) {
  link.b.receive(0, 200);
  link.a.post(datagram(8, 0x9999));
  link.settle();
  EXPECT_EQ(link.b.receives().size(), 0u);
  EXPECT_EQ(link.b.counters().dropped_packets, 1u);
}

TEST_F(UdTest, AQkeyWithItsHighBitMeansTheQpsOwn) {
  link.b.receive(0, 200);
  link.a.post(datagram(8, 0x80000000));
  link.settle();
  EXPECT_EQ(link.b.receives().size(), 1u);
}

TEST_F(UdTest, AMessageLongerThanTheMtuIsRefusedAtPost) {
  link.a.to_state(QpState::kErr);
  link.a.to_state(QpState::kReset);
  link.a.connect(link.b);
  const auto result = link.a.qp->post_send(datagram(1025));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, EINVAL);
  EXPECT_TRUE(link.a.qp->post_send(datagram(1024)).ok());
}

TEST_F(UdTest, ATooSmallReceiveStaysForTheNextDatagram) {
  link.b.receive(0, 60);
  link.a.post(datagram(21));
  link.settle();
  EXPECT_EQ(link.b.receives().size(), 0u);
  link.a.post(datagram(20));
  link.settle();
  EXPECT_EQ(Side::summary(link.b.receives()), "1 success");
}

TEST_F(UdTest, WithoutAReceiveDatagramsAreDropped) {
  link.a.post(datagram(8));
  link.settle();
  EXPECT_EQ(link.b.counters().dropped_packets, 1u);
}

TEST_F(UdTest, OneBurstOneAddress) {
  model::AddressVector other = address;
  other.destination_gid = endpoint(9).address.to_gid();
  link.a.post(datagram(8));
  link.a.post(datagram(8));
  auto r = datagram(8);
  r.address_vector = &other;
  link.a.post(r);
  std::vector<std::byte> storage(65'000);
  wire::TxBurst burst;
  TransmitContext context;
  context.burst = &burst;
  context.icrc = &link.a.flow;
  context.request_allowance = 1 << 20;
  context.max_packets = 100;
  burst.reset(storage, 64);
  EXPECT_EQ(link.a.qp->poll_transmit(context).status, TransmitStatus::kBurstFull);
  EXPECT_EQ(burst.count(), 2u);
  ASSERT_NE(link.a.qp->next_flow(), nullptr);
  EXPECT_EQ(link.a.qp->next_flow()->destination_gid, other.destination_gid);
  burst.reset(storage, 64);
  EXPECT_EQ(link.a.qp->poll_transmit(context).status, TransmitStatus::kIdle);
  EXPECT_EQ(burst.count(), 1u);
}

TEST_F(UdTest, PsnsCountUpAndAreNotChecked) {
  link.b.receive(0, 200);
  link.b.receive(0, 200);
  link.a.post(datagram(8));
  link.a.post(datagram(8));
  const auto packets = link.a.poll();
  EXPECT_EQ(describe(packets), (Lines{"SEND_ONLY 100", "SEND_ONLY 101"}));
  link.b.arrive(packets[1], link.a.flow, 1);
  link.b.arrive(packets[0], link.a.flow, 1);
  EXPECT_EQ(link.b.receives().size(), 2u);
}

}  // namespace
}  // namespace farverbs::proto
