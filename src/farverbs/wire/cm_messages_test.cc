// The connection manager's messages of the golden captures, field by field and byte for byte.
#include "farverbs/wire/cm_messages.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "farverbs/wire/cm_check.h"
#include "farverbs/wire/frame.h"
#include "farverbs/wire/pcap.h"

namespace farverbs::wire {
namespace {

const std::filesystem::path kCaptures = std::string(FARVERBS_SOURCE_DIR) + "/tests/captures";

template <class Body>
void for_each_mad(const std::string& name, Body body) {
  Result<PcapReader> reader = PcapReader::open((kCaptures / (name + ".pcap")).string());
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  while (true) {
    Result<std::optional<CapturedPacket>> captured = reader->next();
    ASSERT_TRUE(captured.ok());
    if (!captured->has_value()) return;
    const Frame frame = dissect((*captured)->link, (*captured)->data);
    if (frame.kind != FrameKind::roce_v2) continue;
    const ParseResult packet = parse(frame.packet);
    if (!packet || packet->bth.dest_qp != kManagementQpn) continue;
    body(*packet);
  }
}

TEST(CmMessages, CapturesReemitByteForByte) {
  std::map<std::string, size_t> seen;
  for (const char* name :
       {"cm_drop_req", "cm_drop_rtu", "cm_perftest_R", "cm_private_data", "cm_reject_nolistener",
        "cm_reject_private", "cm_rping", "cm_rping_ipv6", "cm_rstream", "cm_tos_dscp",
        "cm_ucmatose", "cm_udaddy", "cm_udaddy_nolistener"}) {
    for_each_mad(name, [&](const PacketView& packet) {
      EXPECT_EQ(packet.deth().qkey, kGsiQkey);
      EXPECT_EQ(packet.deth().source_qp, kManagementQpn);
      const auto header = cm_header(packet.payload());
      ASSERT_TRUE(header) << name;
      ++seen[cm_message_name(header->attribute)];
      EXPECT_TRUE(reemits(packet.payload())) << name;
    });
  }
  for (const char* kind : {"REQ", "REP", "RTU", "REJ", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP"}) {
    EXPECT_GT(seen[kind], 0u) << kind;
  }
}

TEST(CmMessages, ARequestHasItsFields) {
  size_t requests = 0;
  for_each_mad("cm_rping", [&](const PacketView& packet) {
    const auto header = cm_header(packet.payload());
    ASSERT_TRUE(header);
    if (header->attribute != static_cast<uint16_t>(CmAttribute::req)) return;
    ++requests;
    const auto req = cm_body<CmReq>(packet.payload());
    EXPECT_EQ(req.service_id >> 16, 0x0106u);
    EXPECT_EQ(req.primary_ack_timeout, 19);
    EXPECT_EQ(req.remote_response_timeout, 20);
    EXPECT_EQ(req.local_response_timeout, 20);
    EXPECT_EQ(req.max_cm_retries, 15);
    EXPECT_EQ(req.primary_hop_limit, 64);
    EXPECT_EQ(req.primary_local_lid, 0xFFFF);
    EXPECT_EQ(req.pkey, 0xFFFF);
    EXPECT_EQ(req.path_mtu, 3);  // 1024
    const auto ip = parse_header<CmIpHeader>(req.private_data.data());
    EXPECT_EQ(ip.version, 0);
    EXPECT_EQ(ip.ip_version, 4);
    EXPECT_EQ(IpAddress::from_gid(req.primary_local_gid).v4_value(),
              load_be<uint32_t>(ip.source.data() + 12));
    EXPECT_EQ(IpAddress::from_gid(req.primary_remote_gid).v4_value(),
              load_be<uint32_t>(ip.destination.data() + 12));
  });
  EXPECT_EQ(requests, 1u);
}

TEST(CmMessages, RejectionsSayWhy) {
  const auto reasons = [](const char* name) {
    std::vector<unsigned> found;
    for_each_mad(name, [&](const PacketView& packet) {
      if (cm_header(packet.payload())->attribute == static_cast<uint16_t>(CmAttribute::rej)) {
        found.push_back(cm_body<CmRej>(packet.payload()).reason);
      }
    });
    return found;
  };
  EXPECT_EQ(reasons("cm_reject_nolistener"), std::vector<unsigned>{8});
  EXPECT_EQ(reasons("cm_reject_private"), std::vector<unsigned>{28});
}

TEST(CmMessages, WhatIsNoMessageOfTheConnectionManagerIsRefused) {
  const Mad good = make_cm_mad(CmAttribute::rtu, 7, CmRtu{1, 2, {}});
  ASSERT_TRUE(cm_header(good));
  EXPECT_FALSE(cm_header(std::span(good).first(255)));
  for (const size_t byte : {0u, 1u, 2u, 3u, 17u}) {
    Mad bad = good;
    bad[byte] ^= std::byte{0x40};
    EXPECT_FALSE(cm_header(bad)) << byte;
  }
}

}  // namespace
}  // namespace farverbs::wire
