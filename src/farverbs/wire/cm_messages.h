// The connection manager's messages (IBTA volume 1, chapter 12.6 and 12.11; the tables "REQ message
// contents" and following): what stands behind the MAD header in a management datagram of class 7
// to QP1, 232 bytes each, and the header with IP addresses that begins the private data of
// connections between IP addresses (annex A11, "RDMA IP CM Service").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "farverbs/base/check.h"
#include "farverbs/base/ip_address.h"
#include "farverbs/wire/mad.h"

namespace farverbs::wire {

inline constexpr uint8_t kCmClassVersion = 2;
inline constexpr uint8_t kMadMethodSend = 3;
inline constexpr size_t kCmBodySize = kMadSize - MadHeader::kSize;
inline constexpr uint32_t kGsiQkey = 0x8001'0000;

enum class CmAttribute : uint16_t {
  req = 0x10,
  mra = 0x11,
  rej = 0x12,
  rep = 0x13,
  rtu = 0x14,
  dreq = 0x15,
  drep = 0x16,
  sidr_req = 0x17,
  sidr_rep = 0x18,
  lap = 0x19,
  apr = 0x1a,
};

// REJ reasons (table "REJ reason codes") that this code gives or tells apart.
enum class CmReject : uint16_t {
  no_qp = 1,
  no_resources = 3,
  timeout = 4,
  unsupported = 5,
  invalid_communication_id = 6,
  invalid_instance = 7,
  invalid_service_id = 8,
  invalid_transport_type = 9,
  stale_connection = 10,
  consumer_defined = 28,
};

// Which message a REJ or MRA is about.
enum class CmRejected : uint8_t { req = 0, rep = 1, other = 2 };

enum class CmTransport : uint8_t { rc = 0, uc = 1, rd = 2, extended = 3 };

enum class SidrStatus : uint8_t { valid = 0, invalid_service_id = 1, rejected = 2, no_qp = 3 };

template <size_t N>
using CmBytes = std::array<std::byte, N>;

struct CmReq {
  static constexpr size_t kSize = kCmBodySize;
  static constexpr size_t kPrivateBytes = 92;
  uint32_t local_comm_id = 0;
  uint32_t reserved_4 = 0;
  uint64_t service_id = 0;
  uint64_t local_ca_guid = 0;
  uint32_t reserved_24 = 0;
  uint32_t local_qkey = 0;
  Qpn local_qpn;
  uint8_t responder_resources = 0;
  uint32_t local_eecn = 0;
  uint8_t initiator_depth = 0;
  uint32_t remote_eecn = 0;
  uint8_t remote_response_timeout = 0;
  uint8_t transport = 0;  // CmTransport
  bool flow_control = false;
  uint32_t starting_psn = 0;
  uint8_t local_response_timeout = 0;
  uint8_t retry_count = 0;
  uint16_t pkey = 0xFFFF;
  uint8_t path_mtu = 0;  // a model::PathMtu's code
  bool rdc_exists = false;
  uint8_t rnr_retry_count = 0;
  uint8_t max_cm_retries = 0;
  bool srq = false;
  uint8_t extended_transport = 0;
  uint16_t primary_local_lid = 0xFFFF;
  uint16_t primary_remote_lid = 0xFFFF;
  Gid primary_local_gid{};
  Gid primary_remote_gid{};
  uint32_t primary_flow_label = 0;
  uint8_t reserved_90 = 0;
  uint8_t primary_packet_rate = 0;
  uint8_t primary_traffic_class = 0;
  uint8_t primary_hop_limit = 0;
  uint8_t primary_sl = 0;
  bool primary_subnet_local = false;
  uint8_t reserved_94 = 0;
  uint8_t primary_ack_timeout = 0;
  uint8_t reserved_95 = 0;
  uint16_t alternate_local_lid = 0;
  uint16_t alternate_remote_lid = 0;
  Gid alternate_local_gid{};
  Gid alternate_remote_gid{};
  uint32_t alternate_flow_label = 0;
  uint8_t reserved_134 = 0;
  uint8_t alternate_packet_rate = 0;
  uint8_t alternate_traffic_class = 0;
  uint8_t alternate_hop_limit = 0;
  uint8_t alternate_sl = 0;
  bool alternate_subnet_local = false;
  uint8_t reserved_138 = 0;
  uint8_t alternate_ack_timeout = 0;
  uint8_t reserved_139 = 0;
  CmBytes<kPrivateBytes> private_data{};
  bool operator==(const CmReq&) const = default;

  static constexpr auto kFields = std::tuple(
      bind_field(&CmReq::local_comm_id, {0, 0, 32}), bind_field(&CmReq::reserved_4, {4, 0, 32}),
      bind_field(&CmReq::service_id, {8, 0, 64}), bind_field(&CmReq::local_ca_guid, {16, 0, 64}),
      bind_field(&CmReq::reserved_24, {24, 0, 32}), bind_field(&CmReq::local_qkey, {28, 0, 32}),
      bind_field(&CmReq::local_qpn, {32, 0, 24}),
      bind_field(&CmReq::responder_resources, {35, 0, 8}),
      bind_field(&CmReq::local_eecn, {36, 0, 24}), bind_field(&CmReq::initiator_depth, {39, 0, 8}),
      bind_field(&CmReq::remote_eecn, {40, 0, 24}),
      bind_field(&CmReq::remote_response_timeout, {43, 0, 5}),
      bind_field(&CmReq::transport, {43, 5, 2}), bind_field(&CmReq::flow_control, {43, 7, 1}),
      bind_field(&CmReq::starting_psn, {44, 0, 24}),
      bind_field(&CmReq::local_response_timeout, {47, 0, 5}),
      bind_field(&CmReq::retry_count, {47, 5, 3}), bind_field(&CmReq::pkey, {48, 0, 16}),
      bind_field(&CmReq::path_mtu, {50, 0, 4}), bind_field(&CmReq::rdc_exists, {50, 4, 1}),
      bind_field(&CmReq::rnr_retry_count, {50, 5, 3}),
      bind_field(&CmReq::max_cm_retries, {51, 0, 4}), bind_field(&CmReq::srq, {51, 4, 1}),
      bind_field(&CmReq::extended_transport, {51, 5, 3}),
      bind_field(&CmReq::primary_local_lid, {52, 0, 16}),
      bind_field(&CmReq::primary_remote_lid, {54, 0, 16}),
      bind_field(&CmReq::primary_local_gid, {56, 0, 128}),
      bind_field(&CmReq::primary_remote_gid, {72, 0, 128}),
      bind_field(&CmReq::primary_flow_label, {88, 0, 20}),
      bind_field(&CmReq::reserved_90, {90, 4, 6}),
      bind_field(&CmReq::primary_packet_rate, {91, 2, 6}),
      bind_field(&CmReq::primary_traffic_class, {92, 0, 8}),
      bind_field(&CmReq::primary_hop_limit, {93, 0, 8}), bind_field(&CmReq::primary_sl, {94, 0, 4}),
      bind_field(&CmReq::primary_subnet_local, {94, 4, 1}),
      bind_field(&CmReq::reserved_94, {94, 5, 3}),
      bind_field(&CmReq::primary_ack_timeout, {95, 0, 5}),
      bind_field(&CmReq::reserved_95, {95, 5, 3}),
      bind_field(&CmReq::alternate_local_lid, {96, 0, 16}),
      bind_field(&CmReq::alternate_remote_lid, {98, 0, 16}),
      bind_field(&CmReq::alternate_local_gid, {100, 0, 128}),
      bind_field(&CmReq::alternate_remote_gid, {116, 0, 128}),
      bind_field(&CmReq::alternate_flow_label, {132, 0, 20}),
      bind_field(&CmReq::reserved_134, {134, 4, 6}),
      bind_field(&CmReq::alternate_packet_rate, {135, 2, 6}),
      bind_field(&CmReq::alternate_traffic_class, {136, 0, 8}),
      bind_field(&CmReq::alternate_hop_limit, {137, 0, 8}),
      bind_field(&CmReq::alternate_sl, {138, 0, 4}),
      bind_field(&CmReq::alternate_subnet_local, {138, 4, 1}),
      bind_field(&CmReq::reserved_138, {138, 5, 3}),
      bind_field(&CmReq::alternate_ack_timeout, {139, 0, 5}),
      bind_field(&CmReq::reserved_139, {139, 5, 3}),
      bind_field(&CmReq::private_data, {140, 0, 736}));
};
FV_CHECK_LAYOUT(CmReq);

struct CmMra {
  static constexpr size_t kSize = kCmBodySize;
  static constexpr size_t kPrivateBytes = 222;
  uint32_t local_comm_id = 0;
  uint32_t remote_comm_id = 0;
  uint8_t message = 0;  // CmRejected
  uint8_t reserved_8 = 0;
  uint8_t service_timeout = 0;
  uint8_t reserved_9 = 0;
  CmBytes<kPrivateBytes> private_data{};
  bool operator==(const CmMra&) const = default;

  static constexpr auto kFields = std::tuple(
      bind_field(&CmMra::local_comm_id, {0, 0, 32}), bind_field(&CmMra::remote_comm_id, {4, 0, 32}),
      bind_field(&CmMra::message, {8, 0, 2}), bind_field(&CmMra::reserved_8, {8, 2, 6}),
      bind_field(&CmMra::service_timeout, {9, 0, 5}), bind_field(&CmMra::reserved_9, {9, 5, 3}),
      bind_field(&CmMra::private_data, {10, 0, 1776}));
};
FV_CHECK_LAYOUT(CmMra);

struct CmRej {
  static constexpr size_t kSize = kCmBodySize;
  static constexpr size_t kPrivateBytes = 148;
  uint32_t local_comm_id = 0;
  uint32_t remote_comm_id = 0;
  uint8_t message = 0;  // CmRejected
  uint8_t reserved_8 = 0;
  uint8_t information_length = 0;
  uint8_t reserved_9 = 0;
  uint16_t reason = 0;  // CmReject
  CmBytes<72> information{};
  CmBytes<kPrivateBytes> private_data{};
  bool operator==(const CmRej&) const = default;

  static constexpr auto kFields = std::tuple(
      bind_field(&CmRej::local_comm_id, {0, 0, 32}), bind_field(&CmRej::remote_comm_id, {4, 0, 32}),
      bind_field(&CmRej::message, {8, 0, 2}), bind_field(&CmRej::reserved_8, {8, 2, 6}),
      bind_field(&CmRej::information_length, {9, 0, 7}), bind_field(&CmRej::reserved_9, {9, 7, 1}),
      bind_field(&CmRej::reason, {10, 0, 16}), bind_field(&CmRej::information, {12, 0, 576}),
      bind_field(&CmRej::private_data, {84, 0, 1184}));
};
FV_CHECK_LAYOUT(CmRej);

struct CmRep {
  static constexpr size_t kSize = kCmBodySize;
  static constexpr size_t kPrivateBytes = 196;
  uint32_t local_comm_id = 0;
  uint32_t remote_comm_id = 0;
  uint32_t local_qkey = 0;
  Qpn local_qpn;
  uint8_t reserved_15 = 0;
  uint32_t local_eecn = 0;
  uint8_t reserved_19 = 0;
  uint32_t starting_psn = 0;
  uint8_t reserved_23 = 0;
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  uint8_t target_ack_delay = 0;
  uint8_t failover_accepted = 0;
  bool flow_control = false;
  uint8_t rnr_retry_count = 0;
  bool srq = false;
  uint8_t reserved_27 = 0;
  uint64_t local_ca_guid = 0;
  CmBytes<kPrivateBytes> private_data{};
  bool operator==(const CmRep&) const = default;

  static constexpr auto kFields = std::tuple(
      bind_field(&CmRep::local_comm_id, {0, 0, 32}), bind_field(&CmRep::remote_comm_id, {4, 0, 32}),
      bind_field(&CmRep::local_qkey, {8, 0, 32}), bind_field(&CmRep::local_qpn, {12, 0, 24}),
      bind_field(&CmRep::reserved_15, {15, 0, 8}), bind_field(&CmRep::local_eecn, {16, 0, 24}),
      bind_field(&CmRep::reserved_19, {19, 0, 8}), bind_field(&CmRep::starting_psn, {20, 0, 24}),
      bind_field(&CmRep::reserved_23, {23, 0, 8}),
      bind_field(&CmRep::responder_resources, {24, 0, 8}),
      bind_field(&CmRep::initiator_depth, {25, 0, 8}),
      bind_field(&CmRep::target_ack_delay, {26, 0, 5}),
      bind_field(&CmRep::failover_accepted, {26, 5, 2}),
      bind_field(&CmRep::flow_control, {26, 7, 1}), bind_field(&CmRep::rnr_retry_count, {27, 0, 3}),
      bind_field(&CmRep::srq, {27, 3, 1}), bind_field(&CmRep::reserved_27, {27, 4, 4}),
      bind_field(&CmRep::local_ca_guid, {28, 0, 64}),
      bind_field(&CmRep::private_data, {36, 0, 1568}));
};
FV_CHECK_LAYOUT(CmRep);

struct CmRtu {
  static constexpr size_t kSize = kCmBodySize;
  static constexpr size_t kPrivateBytes = 224;
  uint32_t local_comm_id = 0;
  uint32_t remote_comm_id = 0;
  CmBytes<kPrivateBytes> private_data{};
  bool operator==(const CmRtu&) const = default;

  static constexpr auto kFields = std::tuple(bind_field(&CmRtu::local_comm_id, {0, 0, 32}),
                                             bind_field(&CmRtu::remote_comm_id, {4, 0, 32}),
                                             bind_field(&CmRtu::private_data, {8, 0, 1792}));
};
FV_CHECK_LAYOUT(CmRtu);

// DREP has the shape of RTU.
using CmDrep = CmRtu;

struct CmDreq {
  static constexpr size_t kSize = kCmBodySize;
  static constexpr size_t kPrivateBytes = 220;
  uint32_t local_comm_id = 0;
  uint32_t remote_comm_id = 0;
  Qpn remote_qpn;
  uint8_t reserved_11 = 0;
  CmBytes<kPrivateBytes> private_data{};
  bool operator==(const CmDreq&) const = default;

  static constexpr auto kFields = std::tuple(bind_field(&CmDreq::local_comm_id, {0, 0, 32}),
                                             bind_field(&CmDreq::remote_comm_id, {4, 0, 32}),
                                             bind_field(&CmDreq::remote_qpn, {8, 0, 24}),
                                             bind_field(&CmDreq::reserved_11, {11, 0, 8}),
                                             bind_field(&CmDreq::private_data, {12, 0, 1760}));
};
FV_CHECK_LAYOUT(CmDreq);

// LAP asks for an alternate path; only who asks is of interest here, because all are refused.
struct CmLap {
  static constexpr size_t kSize = kCmBodySize;
  uint32_t local_comm_id = 0;
  uint32_t remote_comm_id = 0;
  CmBytes<224> path{};
  bool operator==(const CmLap&) const = default;

  static constexpr auto kFields = std::tuple(bind_field(&CmLap::local_comm_id, {0, 0, 32}),
                                             bind_field(&CmLap::remote_comm_id, {4, 0, 32}),
                                             bind_field(&CmLap::path, {8, 0, 1792}));
};
FV_CHECK_LAYOUT(CmLap);

struct CmApr {
  static constexpr size_t kSize = kCmBodySize;
  static constexpr uint8_t kStatusUnsupported = 1;
  uint32_t local_comm_id = 0;
  uint32_t remote_comm_id = 0;
  uint8_t information_length = 0;
  uint8_t status = 0;
  uint16_t reserved_10 = 0;
  CmBytes<72> information{};
  CmBytes<148> private_data{};
  bool operator==(const CmApr&) const = default;

  static constexpr auto kFields = std::tuple(
      bind_field(&CmApr::local_comm_id, {0, 0, 32}), bind_field(&CmApr::remote_comm_id, {4, 0, 32}),
      bind_field(&CmApr::information_length, {8, 0, 8}), bind_field(&CmApr::status, {9, 0, 8}),
      bind_field(&CmApr::reserved_10, {10, 0, 16}), bind_field(&CmApr::information, {12, 0, 576}),
      bind_field(&CmApr::private_data, {84, 0, 1184}));
};
FV_CHECK_LAYOUT(CmApr);

struct CmSidrReq {
  static constexpr size_t kSize = kCmBodySize;
  static constexpr size_t kPrivateBytes = 216;
  uint32_t request_id = 0;
  uint16_t pkey = 0xFFFF;
  uint16_t reserved_6 = 0;
  uint64_t service_id = 0;
  CmBytes<kPrivateBytes> private_data{};
  bool operator==(const CmSidrReq&) const = default;

  static constexpr auto kFields = std::tuple(bind_field(&CmSidrReq::request_id, {0, 0, 32}),
                                             bind_field(&CmSidrReq::pkey, {4, 0, 16}),
                                             bind_field(&CmSidrReq::reserved_6, {6, 0, 16}),
                                             bind_field(&CmSidrReq::service_id, {8, 0, 64}),
                                             bind_field(&CmSidrReq::private_data, {16, 0, 1728}));
};
FV_CHECK_LAYOUT(CmSidrReq);

struct CmSidrRep {
  static constexpr size_t kSize = kCmBodySize;
  static constexpr size_t kPrivateBytes = 136;
  uint32_t request_id = 0;
  uint8_t status = 0;  // SidrStatus
  uint8_t information_length = 0;
  uint16_t reserved_6 = 0;
  Qpn qpn;
  uint8_t reserved_11 = 0;
  uint64_t service_id = 0;
  uint32_t qkey = 0;
  CmBytes<72> information{};
  CmBytes<kPrivateBytes> private_data{};
  bool operator==(const CmSidrRep&) const = default;

  static constexpr auto kFields = std::tuple(
      bind_field(&CmSidrRep::request_id, {0, 0, 32}), bind_field(&CmSidrRep::status, {4, 0, 8}),
      bind_field(&CmSidrRep::information_length, {5, 0, 8}),
      bind_field(&CmSidrRep::reserved_6, {6, 0, 16}), bind_field(&CmSidrRep::qpn, {8, 0, 24}),
      bind_field(&CmSidrRep::reserved_11, {11, 0, 8}),
      bind_field(&CmSidrRep::service_id, {12, 0, 64}), bind_field(&CmSidrRep::qkey, {20, 0, 32}),
      bind_field(&CmSidrRep::information, {24, 0, 576}),
      bind_field(&CmSidrRep::private_data, {96, 0, 1088}));
};
FV_CHECK_LAYOUT(CmSidrRep);

// The first 36 bytes of the private data of a REQ or SIDR_REQ between IP addresses.
struct CmIpHeader {
  static constexpr size_t kSize = 36;
  uint8_t version = 0;
  uint8_t ip_version = 4;
  uint8_t reserved_1 = 0;
  uint16_t port = 0;
  Gid source{};  // an IPv4 address stands in the last four bytes, behind zeros
  Gid destination{};
  bool operator==(const CmIpHeader&) const = default;

  static constexpr auto kFields = std::tuple(
      bind_field(&CmIpHeader::version, {0, 0, 8}), bind_field(&CmIpHeader::ip_version, {1, 0, 4}),
      bind_field(&CmIpHeader::reserved_1, {1, 4, 4}), bind_field(&CmIpHeader::port, {2, 0, 16}),
      bind_field(&CmIpHeader::source, {4, 0, 128}),
      bind_field(&CmIpHeader::destination, {20, 0, 128}));
};
FV_CHECK_LAYOUT(CmIpHeader);

// What is behind the header is the application's.
inline constexpr size_t kCmReqUserBytes = CmReq::kPrivateBytes - CmIpHeader::kSize;
inline constexpr size_t kSidrReqUserBytes = CmSidrReq::kPrivateBytes - CmIpHeader::kSize;

// Service IDs of the RDMA IP CM service: a prefix, the IP protocol or port space, the port.
constexpr uint64_t ip_service_id(uint16_t port_space, uint16_t port) {
  return (uint64_t{port_space} << 16) | port;
}

// The 256 bytes of a datagram: header and body.
using Mad = std::array<std::byte, kMadSize>;

template <class Message>
Mad make_cm_mad(CmAttribute attribute, uint64_t transaction, const Message& message,
                uint32_t modifier = 0) {
  static_assert(Message::kSize == kCmBodySize);
  MadHeader header;
  header.management_class = kMadClassCm;
  header.class_version = kCmClassVersion;
  header.method = kMadMethodSend;
  header.transaction = transaction;
  header.attribute = static_cast<uint16_t>(attribute);
  header.attribute_modifier = modifier;
  Mad mad;
  emit_header(header, mad.data());
  emit_header(message, mad.data() + MadHeader::kSize);
  return mad;
}

// The header of a datagram that is one of the connection manager's; nothing for others.
inline std::optional<MadHeader> cm_header(std::span<const std::byte> mad) {
  if (mad.size() != kMadSize) return std::nullopt;
  const auto header = parse_header<MadHeader>(mad.data());
  if (header.base_version != 1 || header.management_class != kMadClassCm ||
      header.class_version != kCmClassVersion || header.method != kMadMethodSend ||
      cm_message_name(header.attribute) == nullptr) {
    return std::nullopt;
  }
  return header;
}

template <class Message>
Message cm_body(std::span<const std::byte> mad) {
  FV_CHECK(mad.size() == kMadSize);
  return parse_header<Message>(mad.data() + MadHeader::kSize);
}

}  // namespace farverbs::wire
