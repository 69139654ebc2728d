// Packet: one read of a TUN device with a vnet header (virtio 1.2 section 5.1.6, Linux
// if_tun.h): a whole IP packet, or a super-packet that stands for up to 64 or more wire packets of
// one TCP (TSO) or UDP (USO) flow. It is parsed once, where it lies, and its wire packets are then
// named by index; the bytes of the payload are never rewritten.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace farverbs::tools::lab {

// struct virtio_net_hdr as TUN uses it: little-endian hosts only see their own order.
struct VnetHeader {
  uint8_t flags = 0;
  uint8_t gso_type = 0;
  uint16_t header_length = 0;
  uint16_t gso_size = 0;
  uint16_t csum_start = 0;
  uint16_t csum_offset = 0;
};
static_assert(sizeof(VnetHeader) == 10);

inline constexpr uint8_t kVnetNeedsChecksum = 1;
inline constexpr uint8_t kGsoNone = 0;
inline constexpr uint8_t kGsoTcp4 = 1;
inline constexpr uint8_t kGsoTcp6 = 4;
inline constexpr uint8_t kGsoUdp = 5;
inline constexpr uint8_t kGsoEcn = 0x80;

inline constexpr uint8_t kProtocolTcp = 6;
inline constexpr uint8_t kProtocolUdp = 17;

inline constexpr size_t kMaxHeader = 120;  // IPv4 with options and TCP with options
inline constexpr size_t kMaxRead = 65'536 + kMaxHeader;

struct Packet {
  std::byte* bytes = nullptr;
  uint32_t length = 0;
  uint32_t segment_size = 0;  // payload bytes of a wire packet; the last may have fewer
  uint16_t segments = 1;
  uint16_t ip_header = 0;
  uint16_t header = 0;  // IP and, when mergeable, TCP or UDP
  uint8_t version = 0;
  uint8_t protocol = 0;
  bool mergeable = false;  // a whole TCP or UDP packet with a checksum: its header can be rebuilt
  VnetHeader vnet;

  uint32_t payload() const { return length - header; }
  uint32_t payload_of(uint32_t index) const {
    const uint32_t before = index * segment_size;
    return index + 1 < segments ? segment_size : payload() - before;
  }
  // The IP length of a wire packet.
  uint32_t wire_length(uint32_t index) const { return header + payload_of(index); }
  const std::byte* payload_at(uint32_t index) const {
    return bytes + header + size_t{index} * segment_size;
  }
  // ECT(0), ECT(1) or CE in the IP header.
  bool ecn_capable() const;
};

// False if `bytes` is no IP packet or claims a segmentation it cannot have; the packet keeps
// pointing at `bytes`.
bool parse_packet(const VnetHeader& vnet, std::span<std::byte> bytes, Packet& packet);

// Whether the packet is the kernel's own talk on a new interface (multicast listener reports,
// neighbour and router discovery to multicast groups), which a two-host path does not need and
// which would make the count of packets depend on timing.
bool is_interface_chatter(const Packet& packet);

// The header that wire packet `first` and the `count - 1` after it carry as one packet with
// `payload` bytes, as a NIC's segmentation gives it (IPv4 identification and TCP sequence number
// moved on, FIN and PSH only on the last), with CE if `mark`. `last` says that the last wire packet
// of the super-packet is among them. Writes packet.header bytes to `out` and gives the vnet header.
VnetHeader write_header(const Packet& packet, uint32_t first, uint32_t count, uint32_t payload,
                        bool last, bool mark, std::byte* out);

// Flips one to three bits after the IP header of the single wire packet `bytes`, and marks its TCP,
// UDP or ICMP checksum as already checked, so that the damage reaches the application.
void corrupt_packet(std::span<std::byte> bytes, size_t ip_header, uint32_t noise, VnetHeader& vnet);

// The folded ones' complement sum of `bytes` added to `sum`, not inverted.
uint16_t checksum_fold(std::span<const std::byte> bytes, uint32_t sum = 0);

}  // namespace farverbs::tools::lab
