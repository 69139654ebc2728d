#include "tools/lab/packet.h"

#include <algorithm>
#include <cstring>

#include "farverbs/base/byte_order.h"

namespace farverbs::tools::lab {
namespace {

constexpr size_t kIp4Header = 20;
constexpr size_t kIp6Header = 40;
constexpr uint8_t kTcpFin = 0x01;
constexpr uint8_t kTcpPush = 0x08;
constexpr uint8_t kTcpCwr = 0x80;
constexpr uint8_t kEcnMask = 0x03;

uint8_t octet(const std::byte* p) { return static_cast<uint8_t>(*p); }

uint8_t ecn_of(const Packet& packet) {
  if (packet.version == 4) return octet(packet.bytes + 1) & kEcnMask;
  return (octet(packet.bytes + 1) >> 4) & kEcnMask;
}

void mark_ce(std::byte* ip, uint8_t version) {
  if (version == 4) {
    ip[1] |= std::byte{kEcnMask};
  } else {
    ip[1] |= std::byte{kEcnMask << 4};
  }
}

void write_ip4_checksum(std::byte* ip, size_t header) {
  store_be<uint16_t>(ip + 10, 0);
  store_be<uint16_t>(ip + 10, static_cast<uint16_t>(~checksum_fold({ip, header})));
}

size_t checksum_field(uint8_t protocol) { return protocol == kProtocolTcp ? 16 : 6; }

// What a checksum that is still to be completed holds: the sum of the pseudo header.
uint16_t pseudo_header_sum(const std::byte* ip, uint8_t version, uint8_t protocol,
                           uint32_t length) {
  const std::span<const std::byte> addresses =
      version == 4 ? std::span(ip + 12, 8) : std::span(ip + 8, 32);
  return checksum_fold(addresses, (length & 0xFFFF) + (length >> 16) + protocol);
}

bool parse_transport(Packet& packet, size_t ip_header) {
  const std::byte* l4 = packet.bytes + ip_header;
  const size_t rest = packet.length - ip_header;
  if (packet.protocol == kProtocolTcp && rest >= 20) {
    const size_t header = size_t{octet(l4 + 12)} / 16 * 4;
    if (header < 20 || header > rest) return false;
    packet.header = static_cast<uint16_t>(ip_header + header);
    return true;
  }
  if (packet.protocol == kProtocolUdp && rest >= 8) {
    // A zero checksum means that there is none, and it must arrive so.
    if (load_be<uint16_t>(l4 + 6) == 0 && !(packet.vnet.flags & kVnetNeedsChecksum)) return false;
    packet.header = static_cast<uint16_t>(ip_header + 8);
    return true;
  }
  return false;
}

bool gso_matches(const Packet& packet) {
  switch (packet.vnet.gso_type & ~kGsoEcn) {
    case kGsoTcp4:
      return packet.protocol == kProtocolTcp && packet.version == 4;
    case kGsoTcp6:
      return packet.protocol == kProtocolTcp && packet.version == 6;
    case kGsoUdp:
      return packet.protocol == kProtocolUdp;
    default:
      return false;
  }
}

}  // namespace

uint16_t checksum_fold(std::span<const std::byte> bytes, uint32_t sum) {
  uint64_t total = sum;
  size_t i = 0;
  for (; i + 2 <= bytes.size(); i += 2) total += load_be<uint16_t>(bytes.data() + i);
  if (i < bytes.size()) total += uint64_t{octet(bytes.data() + i)} << 8;
  while (total >> 16 != 0) total = (total & 0xFFFF) + (total >> 16);
  return static_cast<uint16_t>(total);
}

bool Packet::ecn_capable() const { return ecn_of(*this) != 0; }

bool parse_packet(const VnetHeader& vnet, std::span<std::byte> bytes, Packet& packet) {
  packet = Packet{};
  packet.bytes = bytes.data();
  packet.length = static_cast<uint32_t>(bytes.size());
  packet.vnet = vnet;
  if (bytes.size() < kIp4Header) return false;
  packet.version = octet(bytes.data()) >> 4;
  size_t ip_header = 0;
  bool whole = true;
  if (packet.version == 4) {
    ip_header = size_t{octet(bytes.data())} % 16 * 4;
    if (ip_header < kIp4Header || ip_header > bytes.size()) return false;
    packet.protocol = octet(bytes.data() + 9);
    whole = (load_be<uint16_t>(bytes.data() + 6) & 0x3FFF) == 0;
    whole = whole && load_be<uint16_t>(bytes.data() + 2) == bytes.size();
  } else if (packet.version == 6) {
    ip_header = kIp6Header;
    if (ip_header > bytes.size()) return false;
    packet.protocol = octet(bytes.data() + 6);
    whole = load_be<uint16_t>(bytes.data() + 4) + kIp6Header == bytes.size();
  } else {
    return false;
  }
  packet.ip_header = packet.header = static_cast<uint16_t>(ip_header);
  packet.mergeable = whole && parse_transport(packet, ip_header);
  packet.segment_size = packet.payload();
  if (vnet.gso_type == kGsoNone) return true;
  if (!packet.mergeable || !gso_matches(packet) || vnet.gso_size == 0) return false;
  if (packet.payload() > vnet.gso_size) {
    packet.segment_size = vnet.gso_size;
    packet.segments = static_cast<uint16_t>((packet.payload() + vnet.gso_size - 1) / vnet.gso_size);
  }
  return true;
}

bool is_interface_chatter(const Packet& packet) {
  return packet.version == 6 && load_be<uint16_t>(packet.bytes + 24) == 0xFF02 &&
         packet.protocol != kProtocolUdp && packet.protocol != kProtocolTcp;
}

VnetHeader write_header(const Packet& packet, uint32_t first, uint32_t count, uint32_t payload,
                        bool last, bool mark, std::byte* out) {
  std::memcpy(out, packet.bytes, packet.header);
  if (mark) mark_ce(out, packet.version);
  if (!packet.mergeable || (packet.segments == 1 && count == 1)) {
    if (mark && packet.version == 4) write_ip4_checksum(out, packet.ip_header);
    VnetHeader vnet = packet.vnet;
    vnet.gso_type = kGsoNone;
    vnet.gso_size = 0;
    return vnet;
  }
  const uint32_t l4_length = packet.header - packet.ip_header + payload;
  if (packet.version == 4) {
    store_be<uint16_t>(out + 2, static_cast<uint16_t>(packet.header + payload));
    store_be<uint16_t>(out + 4, static_cast<uint16_t>(load_be<uint16_t>(out + 4) + first));
    write_ip4_checksum(out, packet.ip_header);
  } else {
    store_be<uint16_t>(out + 4, static_cast<uint16_t>(l4_length));
  }
  std::byte* l4 = out + packet.ip_header;
  if (packet.protocol == kProtocolTcp) {
    store_be<uint32_t>(l4 + 4, load_be<uint32_t>(l4 + 4) + first * packet.segment_size);
    if (!last) l4[13] &= ~std::byte{kTcpFin | kTcpPush};
    if (first > 0) l4[13] &= ~std::byte{kTcpCwr};
  } else {
    store_be<uint16_t>(l4 + 4, static_cast<uint16_t>(l4_length));
  }
  store_be<uint16_t>(l4 + checksum_field(packet.protocol),
                     pseudo_header_sum(out, packet.version, packet.protocol, l4_length));
  VnetHeader vnet;
  vnet.flags = kVnetNeedsChecksum;
  vnet.header_length = packet.header;
  vnet.csum_start = packet.ip_header;
  vnet.csum_offset = static_cast<uint16_t>(checksum_field(packet.protocol));
  if (count > 1) {
    vnet.gso_size = static_cast<uint16_t>(packet.segment_size);
    vnet.gso_type = packet.protocol == kProtocolUdp ? kGsoUdp
                    : packet.version == 4           ? kGsoTcp4
                                                    : kGsoTcp6;
  }
  return vnet;
}

void corrupt_packet(std::span<std::byte> bytes, size_t ip_header, uint32_t noise,
                    VnetHeader& vnet) {
  if (bytes.size() <= ip_header) return;
  const uint8_t version = octet(bytes.data()) >> 4;
  const uint8_t protocol = octet(bytes.data() + (version == 4 ? 9 : 6));
  std::span<std::byte> rest = bytes.subspan(ip_header);
  constexpr uint8_t kIcmp = 1, kIcmp6 = 58;
  const size_t field = protocol == kProtocolTcp ? 16 : protocol == kProtocolUdp ? 6 : 2;
  const bool summed = protocol == kProtocolTcp || protocol == kProtocolUdp || protocol == kIcmp ||
                      protocol == kIcmp6;
  const bool unchecked = protocol == kProtocolUdp && rest.size() >= 8 &&
                         load_be<uint16_t>(rest.data() + 6) == 0 && vnet.flags == 0;
  if (summed && !unchecked && rest.size() >= field + 2) {
    vnet.flags = kVnetNeedsChecksum;
    vnet.csum_start = static_cast<uint16_t>(ip_header);
    vnet.csum_offset = static_cast<uint16_t>(field);
  }
  const uint32_t flips = 1 + noise % 3;
  const uint64_t bits = uint64_t{rest.size()} * 8;
  uint64_t state = noise;
  for (uint32_t i = 0; i < flips; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t bit = (state >> 33) % bits;
    rest[bit / 8] ^= std::byte{static_cast<uint8_t>(1u << (bit % 8))};
  }
}

}  // namespace farverbs::tools::lab
