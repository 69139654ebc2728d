// A captured frame taken apart: link, network and UDP headers and the RoCE packet inside; and the
// way back, from a RoCE packet to an Ethernet frame. For tools, tests, and links that carry whole
// frames; a UDP socket gives the packet alone and needs none of this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "farverbs/base/ip_address.h"
#include "farverbs/wire/icrc.h"
#include "farverbs/wire/network_headers.h"
#include "farverbs/wire/pcap.h"

namespace farverbs::wire {

// What a frame turned out to be.
enum class FrameKind : uint8_t {
  roce_v1,
  roce_v2,
  other,      // not RDMA
  malformed,  // RDMA, by its port or EtherType, with lengths that contradict each other
};

struct Frame {
  FrameKind kind = FrameKind::other;
  const char* problem = nullptr;  // of a malformed frame; static text
  std::optional<EthernetHeader> ethernet;
  std::vector<VlanTag> vlans;
  std::optional<Ipv4Header> ipv4;
  std::optional<Ipv6Header> ipv6;  // the GRH for RoCEv1
  std::optional<UdpHeader> udp;
  size_t network_at = 0;               // offset of the IP header or GRH in the frame
  size_t packet_at = 0;                // offset of the BTH
  std::span<const std::byte> packet;   // BTH to ICRC
  std::span<const std::byte> trailer;  // after the packet: Ethernet padding

  Endpoint source() const;  // port 0 for RoCEv1
  Endpoint destination() const;
  uint8_t traffic_class() const;  // type of service for IPv4
  uint16_t ip_id() const { return ipv4 ? ipv4->identification : 0; }
  IcrcFlow icrc_flow() const;
};

// Only for RoCE kinds are all members set; the packet's own contents are not looked at. Borrows the
// bytes.
Frame dissect(LinkType link, std::span<const std::byte> bytes);

// Every header parsed and emitted again, payload copied, ICRC computed anew: equal to `bytes` for
// a correct frame. Nothing if the RoCE packet inside does not parse. `frame` is dissect(.., bytes).
std::optional<std::vector<std::byte>> reemit(const Frame& frame, std::span<const std::byte> bytes);

// The Ethernet frame that carries `packet` (BTH to ICRC) by RoCEv2. MAC addresses are made up from
// the IP addresses; the UDP checksum is 0, the IPv4 one is computed.
struct FrameOptions {
  uint16_t ip_id = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 64;
};
std::vector<std::byte> frame_of(const Endpoint& source, const Endpoint& destination,
                                std::span<const std::byte> packet,
                                const FrameOptions& options = {});

// RFC 1071 checksum of an IPv4 header whose checksum field is 0.
uint16_t ipv4_checksum(std::span<const std::byte> header);

}  // namespace farverbs::wire
