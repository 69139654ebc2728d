// The invariant CRC of RoCE packets (IBTA volume 1, chapter 7.8.1; annexes A16 and A17): CRC-32
// over 8 bytes of ones in place of the LRH, then the IP (or GRH) header, the UDP header, and
// everything from the BTH to before the ICRC, where what routers may change counts as ones: IPv4
// type of service, time to live and checksum; IPv6 and GRH traffic class, flow label and hop limit;
// the UDP checksum; BTH byte 4.
//
//   IcrcFlow flow = IcrcFlow::roce_v2(source, destination);     // once per QP and peer; 8 bytes
//   size = seal(buffer, header_length, pieces, flow, ip_id);     // send: copy, pad, ICRC in one
//   pass IcrcCheck c = verify(flow, *parsed);                         // receive, or IcrcCheck c =
//   verify_and_copy(flow, *parsed, pieces);        // check and place in one pass
//
// The IPv4 identification is inside the ICRC, and who receives from a UDP socket never learns it.
// A CRC is linear, so verify solves for it: a packet is accepted if some identification explains
// its ICRC, and the answer names it. That weakens the check by up to 16 bits for such packets;
// senders of ours use the packet's index in its GSO call (0 to 127), which `expected_ip_id` can
// tell ahead. IPv6 and RoCEv1 have no such field, and the check is exact.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "farverbs/base/ip_address.h"
#include "farverbs/wire/crc32.h"
#include "farverbs/wire/roce.h"

namespace farverbs::wire {

// The constant part of the ICRC's input for one direction of one flow. A value, immutable.
class IcrcFlow {
 public:
  IcrcFlow() = default;  // fits no packet
  // Both addresses of one family. `dont_fragment` is the IPv4 DF flag of the packets; stacks that
  // send RoCE set it. No IPv4 options and no IPv6 extension headers.
  static IcrcFlow roce_v2(const Endpoint& source, const Endpoint& destination,
                          bool dont_fragment = true);
  // The far transport's packets, which may pass address translators: the 8 bytes of ones, and no IP
  // or UDP header. One value for all flows.
  static IcrcFlow far();
  // RoCEv1: the GRH's GIDs.
  static IcrcFlow roce_v1(const Gid& source, const Gid& destination);

  // True if packets carry an IPv4 identification.
  bool has_ip_id() const { return kind_ == Kind::ipv4; }

  // The CRC register after the constant part, times x^-32, for a packet of `packet_size` bytes from
  // BTH to ICRC: where the kernels of crc32.h start. `ip_id` is ignored without IPv4.
  uint32_t seed(size_t packet_size, uint16_t ip_id) const;
  // The same from `seed_of_0`, the seed of a packet of that size with identification 0.
  uint32_t seed_with(uint32_t seed_of_0, uint16_t ip_id) const {
    return has_ip_id() ? seed_of_0 ^ ip_id_term(ip_id) : seed_of_0;
  }

 private:
  static uint32_t ip_id_term(uint16_t ip_id);
  enum class Kind : uint8_t { ipv4, ipv6, grh, bare };
  IcrcFlow(Kind kind, std::span<const std::byte> constant_part);

  uint32_t base_ = 0;  // seed with all variable fields 0
  Kind kind_ = Kind::grh;
};

struct IcrcCheck {
  bool ok = false;
  uint16_t ip_id = 0;  // the IPv4 identification that explains the ICRC; 0 without IPv4
  explicit operator bool() const { return ok; }
};

// Which identifications a flow's packets have, learned from the flow itself. A sender of ours
// numbers its packets 0 to 127 (the index in a GSO call). Once a run of packets kept to that,
// another number means a damaged packet whose ICRC some identification happens to explain, which
// one in 65,536 has; so the check regains 9 of the 16 bits that solving for the number costs. A
// sender that starts to count differently is let through after a few packets in a row.
class IdentificationGuard {
 public:
  static constexpr uint16_t kOurs = 128;  // numbers below are a sender's of ours

  bool accept(uint16_t ip_id) {
    newest_ = ip_id;
    if (ip_id < kOurs) {
      strange_ = 0;
      if (ours_ < kLearn) ++ours_;
      return true;
    }
    if (ours_ == kLearn && ++strange_ < kUnlearn) return false;
    ours_ = strange_ = 0;
    return true;
  }
  // accept() of `count` numbers from `first` on, all below kOurs.
  void accept_run(uint16_t first, size_t count) {
    newest_ = static_cast<uint16_t>(first + count - 1);
    strange_ = 0;
    ours_ = static_cast<uint8_t>(std::min<size_t>(ours_ + count, kLearn));
  }
  // What the packet that follows the one asked about last should have, if one send made both.
  uint16_t next() const { return static_cast<uint16_t>(newest_ + 1); }

 private:
  static constexpr uint8_t kLearn = 16;
  static constexpr uint8_t kUnlearn = 4;
  uint8_t ours_ = 0;     // packets in a row with a small number
  uint8_t strange_ = 0;  // packets in a row with another one, since
  uint16_t newest_ = 0xffff;
};

// Finishes the packet whose headers stand in packet[0, header_length): copies the pieces behind
// them in one pass with the ICRC, adds pad_for(total) zero bytes and the ICRC. bth.pad must have
// been emitted accordingly. Returns the packet's size, packet_size(opcode, total). The buffer must
// have that much space; pieces may be empty, odd and unaligned, and must not overlap it.
size_t seal(std::byte* packet, size_t header_length,
            std::span<const std::span<const std::byte>> pieces, const IcrcFlow& flow,
            uint16_t ip_id);
// One piece.
size_t seal(std::byte* packet, size_t header_length, std::span<const std::byte> payload,
            const IcrcFlow& flow, uint16_t ip_id);

// The ICRC that `packet` (BTH to ICRC) should carry, whatever it does carry; as a number, like
// PacketView::icrc(). At least kMinPacketSize bytes.
uint32_t compute_icrc(const IcrcFlow& flow, std::span<const std::byte> packet, uint16_t ip_id);

// Checks a parsed packet. expected_ip_id is tried first, which saves about 5 ns if it is right.
IcrcCheck verify(const IcrcFlow& flow, const PacketView& packet, uint16_t expected_ip_id = 0);

// The same in one pass with copying the payload into the pieces, in order, as far as they reach.
// The pieces' memory has been written even if the check fails: use it where the packet's place is
// known from the receiver's own state or where such bytes will be written again (a retransmission),
// and verify first where a forged or damaged header would choose the place.
IcrcCheck verify_and_copy(const IcrcFlow& flow, const PacketView& packet,
                          std::span<const std::span<std::byte>> pieces,
                          uint16_t expected_ip_id = 0);
IcrcCheck verify_and_copy(const IcrcFlow& flow, const PacketView& packet,
                          std::span<std::byte> destination, uint16_t expected_ip_id = 0);

// seal() and verify_and_copy() for a run of packets of one flow and one size, whose payload needs
// no pad: what depends on the size alone is worked out once. A value; the flow need not outlive it.
class IcrcRun {
 public:
  IcrcRun(const IcrcFlow& flow, size_t header_length, size_t payload_length);

  // The packet's headers stand at `packet`; copies the payload behind them and adds the ICRC.
  void seal(std::byte* packet, const std::byte* payload, uint16_t ip_id) const {
    const std::span<const std::byte> piece(payload, payload_length_);
    const uint32_t state =
        crc32_kernel().gather(flow_.seed_with(seed_, ip_id), packet, header_length_, &piece, 1, 0);
    store_be(packet + header_length_ + payload_length_, byte_swap(crc32_value(state)));
  }
  // True if the ICRC holds with that identification and no other. The payload has been copied
  // whatever the answer is.
  bool verify_and_copy(const std::byte* packet, std::byte* to, uint16_t ip_id) const {
    const std::span<std::byte> piece(to, payload_length_);
    const uint32_t state = crc32_kernel().scatter(flow_.seed_with(seed_, ip_id), packet,
                                                  header_length_, payload_length_, 0, &piece, 1);
    return byte_swap(crc32_value(state)) ==
           load_be<uint32_t>(packet + header_length_ + payload_length_);
  }

 private:
  IcrcFlow flow_;
  uint32_t seed_;  // with identification 0
  size_t header_length_;
  size_t payload_length_;
};

}  // namespace farverbs::wire
