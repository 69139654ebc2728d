#include "farverbs/wire/icrc.h"

#include <array>

#include "farverbs/wire/crc32_polynomial.h"
#include "farverbs/wire/network_headers.h"

namespace farverbs::wire {
namespace {

constexpr size_t kLrhSize = 8;  // the bytes of ones
constexpr size_t kIpv4Part = kLrhSize + Ipv4Header::kSize + UdpHeader::kSize;
constexpr size_t kIpv6Part = kLrhSize + Ipv6Header::kSize + UdpHeader::kSize;
constexpr size_t kGrhPart = kLrhSize + Grh::kSize;

// What a big-endian 16-bit field adds to the seed, `after` bytes before the end of the constant
// part. CRCs are linear: a byte b contributes b * x^(8 * bytes after it), and the fields' values
// can be changed by adding differences.
struct FieldTable {
  std::array<uint32_t, 256> high{};
  std::array<uint32_t, 256> low{};
  uint32_t operator()(uint16_t v) const { return high[v >> 8] ^ low[v & 0xff]; }
};

constexpr void fill(std::array<uint32_t, 256>& table, size_t after) {
  for (size_t bit = 0; bit < 8; ++bit) {
    const uint32_t term =
        crc::multiply(uint32_t{1} << (24 + bit), crc::power_of_x(8 * static_cast<int64_t>(after)));
    const size_t begin = size_t{1} << bit;
    for (size_t b = 0; b < begin; ++b) table[begin + b] = table[b] ^ term;
  }
}

constexpr FieldTable field_table(size_t part_size, size_t header_at, Field field) {
  FieldTable table;
  const size_t after = part_size - (header_at + field.byte + 2);
  fill(table.high, after + 1);
  fill(table.low, after);
  return table;
}

constexpr size_t kUdpInIpv4 = kLrhSize + Ipv4Header::kSize;
constexpr FieldTable kIpv4Length =
    field_table(kIpv4Part, kLrhSize, field_of<&Ipv4Header::total_length>);
constexpr FieldTable kIpv4Id =
    field_table(kIpv4Part, kLrhSize, field_of<&Ipv4Header::identification>);
constexpr FieldTable kIpv6Length =
    field_table(kIpv6Part, kLrhSize, field_of<&Ipv6Header::payload_length>);
constexpr FieldTable kGrhLength = field_table(kGrhPart, kLrhSize, field_of<&Grh::payload_length>);
// The UDP header ends the constant part of both, so one table serves.
constexpr FieldTable kUdpLength = field_table(kIpv4Part, kUdpInIpv4, field_of<&UdpHeader::length>);

// x^-8n = kBack.low[n % 256] * kBack.high[n / 256].
struct BackTable {
  std::array<uint32_t, 256> low{};
  std::array<uint32_t, 256> high{};
};
constexpr BackTable make_back_table() {
  BackTable table;
  uint32_t r = crc::kOne;
  for (uint32_t& entry : table.low) {
    entry = r;
    for (int i = 0; i < 8; ++i) r = crc::over_x(r);
  }
  const uint32_t step = r;  // x^-2048
  r = crc::kOne;
  for (uint32_t& entry : table.high) {
    entry = r;
    r = crc::multiply(r, step);
  }
  return table;
}
constexpr BackTable kBack = make_back_table();

// The 16-bit identification that, added to the one a register was computed with, changes it by
// `difference`; nothing if none does.
bool solve_ip_id(uint32_t difference, size_t packet_size, uint16_t& id) {
  // Bytes hashed after the identification, and the 4 that the register itself stands for.
  constexpr size_t kAfterId =
      kIpv4Part - (kLrhSize + field_of<&Ipv4Header::identification>.byte + 2);
  const size_t n = kAfterId + packet_size - kIcrcSize + 4;
  const Crc32Kernel& kernel = crc32_kernel();
  uint32_t r = kernel.multiply(difference, kBack.low[n & 0xff]);
  if (n > 0xff) r = kernel.multiply(r, kBack.high[(n >> 8) & 0xff]);
  id = byte_swap(static_cast<uint16_t>(r >> 16));
  return (r & 0xffff) == 0;
}

IcrcCheck conclude(const IcrcFlow& flow, const PacketView& packet, uint32_t state,
                   uint16_t expected_ip_id) {
  const uint32_t difference = crc32_value(state) ^ packet.icrc();
  if (!flow.has_ip_id()) return {difference == 0, 0};
  if (difference == 0) return {true, expected_ip_id};
  uint16_t change = 0;
  if (!solve_ip_id(difference, packet.bytes().size(), change)) return {};
  return {true, static_cast<uint16_t>(expected_ip_id ^ change)};
}

// Puts ones where routers may write.
void mask_ipv6(std::byte* header) {
  Ipv6Header h = parse_header<Ipv6Header>(header);
  h.traffic_class = 0xff;
  h.flow_label = 0xfffff;
  h.hop_limit = 0xff;
  emit_header(h, header);
}

}  // namespace

IcrcFlow::IcrcFlow(Kind kind, std::span<const std::byte> constant_part) : kind_(kind) {
  constexpr uint32_t kUndo = crc::power_of_x(-32);
  const uint32_t state = crc32_update(kCrc32Start, constant_part.data(), constant_part.size());
  base_ = crc32_kernel().multiply(state, kUndo);
}

IcrcFlow IcrcFlow::roce_v2(const Endpoint& source, const Endpoint& destination,
                           bool dont_fragment) {
  FV_CHECK(source.address.is_v4() == destination.address.is_v4());
  std::array<std::byte, kIpv6Part> bytes;
  bytes.fill(std::byte{0xff});
  std::byte* const ip = bytes.data() + kLrhSize;
  const UdpHeader udp{source.port, destination.port, 0, 0xffff};
  if (source.address.is_v4()) {
    Ipv4Header h;
    h.dscp = 0x3f;
    h.ecn = 3;
    h.ttl = 0xff;
    h.checksum = 0xffff;
    h.dont_fragment = dont_fragment;
    h.source = source.address.v4_value();
    h.destination = destination.address.v4_value();
    emit_header(h, ip);
    emit_header(udp, ip + Ipv4Header::kSize);
    return IcrcFlow(Kind::ipv4, std::span(bytes).first(kIpv4Part));
  }
  Ipv6Header h;
  h.source = source.address.bytes();
  h.destination = destination.address.bytes();
  emit_header(h, ip);
  mask_ipv6(ip);
  emit_header(udp, ip + Ipv6Header::kSize);
  return IcrcFlow(Kind::ipv6, bytes);
}

IcrcFlow IcrcFlow::roce_v1(const Gid& source, const Gid& destination) {
  std::array<std::byte, kGrhPart> bytes;
  bytes.fill(std::byte{0xff});
  Grh h;
  h.next_header = kNextHeaderIba;
  h.source = source;
  h.destination = destination;
  emit_header(h, bytes.data() + kLrhSize);
  mask_ipv6(bytes.data() + kLrhSize);
  return IcrcFlow(Kind::grh, bytes);
}

IcrcFlow IcrcFlow::far() {
  std::array<std::byte, kLrhSize> bytes;
  bytes.fill(std::byte{0xff});
  return IcrcFlow(Kind::bare, bytes);
}

uint32_t IcrcFlow::seed(size_t packet_size, uint16_t ip_id) const {
  const auto plus = [&](size_t n) { return static_cast<uint16_t>(packet_size + n); };
  switch (kind_) {
    case Kind::ipv4:
      return base_ ^ kIpv4Length(plus(Ipv4Header::kSize + UdpHeader::kSize)) ^
             kUdpLength(plus(UdpHeader::kSize)) ^ kIpv4Id(ip_id);
    case Kind::ipv6:
      return base_ ^ kIpv6Length(plus(UdpHeader::kSize)) ^ kUdpLength(plus(UdpHeader::kSize));
    case Kind::bare:
      return base_;
    case Kind::grh:
      break;
  }
  return base_ ^ kGrhLength(plus(0));
}

uint32_t IcrcFlow::ip_id_term(uint16_t ip_id) { return kIpv4Id(ip_id); }

IcrcRun::IcrcRun(const IcrcFlow& flow, size_t header_length, size_t payload_length)
    : flow_(flow),
      seed_(flow.seed(header_length + payload_length + kIcrcSize, 0)),
      header_length_(header_length),
      payload_length_(payload_length) {
  FV_CHECK(header_length >= Bth::kSize && header_length <= kMaxIcrcHeaders);
  FV_CHECK(pad_for(payload_length) == 0);
}

size_t seal(std::byte* packet, size_t header_length,
            std::span<const std::span<const std::byte>> pieces, const IcrcFlow& flow,
            uint16_t ip_id) {
  FV_CHECK(header_length >= Bth::kSize && header_length <= kMaxIcrcHeaders);
  size_t payload = 0;
  for (const auto& piece : pieces) payload += piece.size();
  const size_t pad = pad_for(payload);
  const size_t end = header_length + payload + pad;
  const uint32_t state = crc32_kernel().gather(flow.seed(end + kIcrcSize, ip_id), packet,
                                               header_length, pieces.data(), pieces.size(), pad);
  store_be(packet + end, byte_swap(crc32_value(state)));
  return end + kIcrcSize;
}

size_t seal(std::byte* packet, size_t header_length, std::span<const std::byte> payload,
            const IcrcFlow& flow, uint16_t ip_id) {
  return seal(packet, header_length, std::span(&payload, 1), flow, ip_id);
}

uint32_t compute_icrc(const IcrcFlow& flow, std::span<const std::byte> packet, uint16_t ip_id) {
  FV_CHECK(packet.size() >= kMinPacketSize);
  return crc32_value(crc32_kernel().scatter(flow.seed(packet.size(), ip_id), packet.data(),
                                            Bth::kSize, packet.size() - kMinPacketSize, 0, nullptr,
                                            0));
}

IcrcCheck verify(const IcrcFlow& flow, const PacketView& packet, uint16_t expected_ip_id) {
  return verify_and_copy(flow, packet, std::span<const std::span<std::byte>>{}, expected_ip_id);
}

IcrcCheck verify_and_copy(const IcrcFlow& flow, const PacketView& packet,
                          std::span<const std::span<std::byte>> pieces, uint16_t expected_ip_id) {
  const std::span<const std::byte> bytes = packet.bytes();
  const uint32_t state = crc32_kernel().scatter(
      flow.seed(bytes.size(), expected_ip_id), bytes.data(), packet.info->header_length,
      packet.payload().size(), packet.bth.pad, pieces.data(), pieces.size());
  return conclude(flow, packet, state, expected_ip_id);
}

IcrcCheck verify_and_copy(const IcrcFlow& flow, const PacketView& packet,
                          std::span<std::byte> destination, uint16_t expected_ip_id) {
  return verify_and_copy(flow, packet, std::span(&destination, 1), expected_ip_id);
}

}  // namespace farverbs::wire
