// The headers that carry RDMA packets: Ethernet (IEEE 802.3) with 802.1Q tags, IPv4 (RFC 791),
// IPv6 (RFC 8200), UDP (RFC 768), and the GRH, which has IPv6's layout (IBTA volume 1,
// chapter 8.3).
#pragma once

#include "farverbs/base/ip_address.h"
#include "farverbs/wire/field.h"

namespace farverbs::wire {

using MacAddress = std::array<std::byte, 6>;

inline constexpr uint16_t kEtherTypeIpv4 = 0x0800;
inline constexpr uint16_t kEtherTypeVlan = 0x8100;
inline constexpr uint16_t kEtherTypeServiceVlan = 0x88A8;
inline constexpr uint16_t kEtherTypeIpv6 = 0x86DD;
inline constexpr uint16_t kEtherTypeRoceV1 = 0x8915;
inline constexpr uint8_t kProtocolUdp = 17;
inline constexpr uint8_t kNextHeaderIba = 0x1B;  // GRH NxtHdr: an IBA transport header follows

struct EthernetHeader {
  static constexpr size_t kSize = 14;
  MacAddress destination{};
  MacAddress source{};
  uint16_t ether_type = 0;
  bool operator==(const EthernetHeader&) const = default;

  static constexpr auto kFields = std::tuple(bind_field(&EthernetHeader::destination, {0, 0, 48}),
                                             bind_field(&EthernetHeader::source, {6, 0, 48}),
                                             bind_field(&EthernetHeader::ether_type, {12, 0, 16}));
};
FV_CHECK_LAYOUT(EthernetHeader);

// What follows an EtherType of kEtherTypeVlan.
struct VlanTag {
  static constexpr size_t kSize = 4;
  uint8_t priority = 0;
  bool drop_eligible = false;
  uint16_t vlan = 0;
  uint16_t ether_type = 0;
  bool operator==(const VlanTag&) const = default;

  static constexpr auto kFields = std::tuple(
      bind_field(&VlanTag::priority, {0, 0, 3}), bind_field(&VlanTag::drop_eligible, {0, 3, 1}),
      bind_field(&VlanTag::vlan, {0, 4, 12}), bind_field(&VlanTag::ether_type, {2, 0, 16}));
};
FV_CHECK_LAYOUT(VlanTag);

// The 20 bytes before the options.
struct Ipv4Header {
  static constexpr size_t kSize = 20;
  uint8_t version = 4;
  uint8_t header_words = 5;  // IHL
  uint8_t dscp = 0;
  uint8_t ecn = 0;
  uint16_t total_length = 0;
  uint16_t identification = 0;
  bool reserved = false;
  bool dont_fragment = true;
  bool more_fragments = false;
  uint16_t fragment_offset = 0;
  uint8_t ttl = 64;
  uint8_t protocol = kProtocolUdp;
  uint16_t checksum = 0;
  uint32_t source = 0;  // host order
  uint32_t destination = 0;
  bool operator==(const Ipv4Header&) const = default;

  static constexpr auto kFields = std::tuple(
      bind_field(&Ipv4Header::version, {0, 0, 4}), bind_field(&Ipv4Header::header_words, {0, 4, 4}),
      bind_field(&Ipv4Header::dscp, {1, 0, 6}), bind_field(&Ipv4Header::ecn, {1, 6, 2}),
      bind_field(&Ipv4Header::total_length, {2, 0, 16}),
      bind_field(&Ipv4Header::identification, {4, 0, 16}),
      bind_field(&Ipv4Header::reserved, {6, 0, 1}),
      bind_field(&Ipv4Header::dont_fragment, {6, 1, 1}),
      bind_field(&Ipv4Header::more_fragments, {6, 2, 1}),
      bind_field(&Ipv4Header::fragment_offset, {6, 3, 13}), bind_field(&Ipv4Header::ttl, {8, 0, 8}),
      bind_field(&Ipv4Header::protocol, {9, 0, 8}), bind_field(&Ipv4Header::checksum, {10, 0, 16}),
      bind_field(&Ipv4Header::source, {12, 0, 32}),
      bind_field(&Ipv4Header::destination, {16, 0, 32}));
};
FV_CHECK_LAYOUT(Ipv4Header);

struct Ipv6Header {
  static constexpr size_t kSize = 40;
  uint8_t version = 6;
  uint8_t traffic_class = 0;  // DSCP in the upper 6 bits, ECN in the lower 2
  uint32_t flow_label = 0;
  uint16_t payload_length = 0;
  uint8_t next_header = kProtocolUdp;
  uint8_t hop_limit = 64;
  std::array<std::byte, 16> source{};
  std::array<std::byte, 16> destination{};
  bool operator==(const Ipv6Header&) const = default;

  static constexpr auto kFields = std::tuple(bind_field(&Ipv6Header::version, {0, 0, 4}),
                                             bind_field(&Ipv6Header::traffic_class, {0, 4, 8}),
                                             bind_field(&Ipv6Header::flow_label, {1, 4, 20}),
                                             bind_field(&Ipv6Header::payload_length, {4, 0, 16}),
                                             bind_field(&Ipv6Header::next_header, {6, 0, 8}),
                                             bind_field(&Ipv6Header::hop_limit, {7, 0, 8}),
                                             bind_field(&Ipv6Header::source, {8, 0, 128}),
                                             bind_field(&Ipv6Header::destination, {24, 0, 128}));
};
FV_CHECK_LAYOUT(Ipv6Header);

// Global route header: source and destination are GIDs, payload_length counts from the BTH to the
// ICRC inclusive, next_header is kNextHeaderIba.
using Grh = Ipv6Header;

struct UdpHeader {
  static constexpr size_t kSize = 8;
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
  uint16_t length = 0;  // of header and payload
  uint16_t checksum = 0;
  bool operator==(const UdpHeader&) const = default;

  static constexpr auto kFields = std::tuple(bind_field(&UdpHeader::source_port, {0, 0, 16}),
                                             bind_field(&UdpHeader::destination_port, {2, 0, 16}),
                                             bind_field(&UdpHeader::length, {4, 0, 16}),
                                             bind_field(&UdpHeader::checksum, {6, 0, 16}));
};
FV_CHECK_LAYOUT(UdpHeader);

}  // namespace farverbs::wire
