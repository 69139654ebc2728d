#include "farverbs/wire/frame.h"

#include <algorithm>

namespace farverbs::wire {
namespace {

constexpr size_t kSllHeader = 16;   // protocol in the last two bytes
constexpr size_t kSll2Header = 20;  // protocol in the first two bytes

// Appends bytes while the layers are read from the front.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}
  size_t at() const { return at_; }
  std::span<const std::byte> rest() const { return bytes_.subspan(at_); }
  void skip(size_t n) { at_ += n; }
  template <class H>
  std::optional<H> take() {
    if (rest().size() < H::kSize) return std::nullopt;
    const H h = parse_header<H>(rest().data());
    at_ += H::kSize;
    return h;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

Frame malformed(Frame frame, const char* problem) {
  frame.kind = FrameKind::malformed;
  frame.problem = problem;
  return frame;
}

// The EtherType of what follows the link header, or nothing.
std::optional<uint16_t> link_layer(LinkType link, Cursor& cursor, Frame& frame) {
  const std::span<const std::byte> rest = cursor.rest();
  switch (link) {
    case LinkType::ethernet: {
      frame.ethernet = cursor.take<EthernetHeader>();
      if (!frame.ethernet) return std::nullopt;
      uint16_t type = frame.ethernet->ether_type;
      while (type == kEtherTypeVlan || type == kEtherTypeServiceVlan) {
        const std::optional<VlanTag> tag = cursor.take<VlanTag>();
        if (!tag) return std::nullopt;
        frame.vlans.push_back(*tag);
        type = tag->ether_type;
      }
      return type;
    }
    case LinkType::linux_sll:
      if (rest.size() < kSllHeader) return std::nullopt;
      cursor.skip(kSllHeader);
      return load_be<uint16_t>(rest.data() + kSllHeader - 2);
    case LinkType::linux_sll2:
      if (rest.size() < kSll2Header) return std::nullopt;
      cursor.skip(kSll2Header);
      return load_be<uint16_t>(rest.data());
    case LinkType::raw_bsd:
    case LinkType::raw_ip:
    case LinkType::ipv4:
    case LinkType::ipv6:
      if (rest.empty()) return std::nullopt;
      return (rest[0] >> 4) == std::byte{6} ? kEtherTypeIpv6 : kEtherTypeIpv4;
  }
  return std::nullopt;
}

Frame finish(Frame frame, FrameKind kind, const Cursor& cursor, size_t packet_size) {
  frame.kind = kind;
  frame.packet_at = cursor.at();
  frame.packet = cursor.rest().first(packet_size);
  frame.trailer = cursor.rest().subspan(packet_size);
  return frame;
}

// The UDP layer; `length` is what the IP header leaves for it.
Frame udp_layer(Frame frame, Cursor cursor, size_t length) {
  frame.udp = cursor.take<UdpHeader>();
  if (!frame.udp || frame.udp->destination_port != kRoceUdpPort) return frame;
  if (length < UdpHeader::kSize || frame.udp->length != length) {
    return malformed(std::move(frame), "UDP and IP lengths differ");
  }
  const size_t packet_size = length - UdpHeader::kSize;
  if (cursor.rest().size() < packet_size) {
    return malformed(std::move(frame), "the frame is shorter than its IP header says");
  }
  return finish(std::move(frame), FrameKind::roce_v2, cursor, packet_size);
}

Frame ipv4_layer(Frame frame, Cursor cursor) {
  frame.ipv4 = cursor.take<Ipv4Header>();
  if (!frame.ipv4 || frame.ipv4->version != 4 || frame.ipv4->protocol != kProtocolUdp) return frame;
  const size_t header = size_t{frame.ipv4->header_words} * 4;
  const bool fragment = frame.ipv4->more_fragments || frame.ipv4->fragment_offset != 0;
  const size_t options = header - std::min(header, Ipv4Header::kSize);
  if (header < Ipv4Header::kSize || options > cursor.rest().size()) return frame;
  if (fragment) return frame;  // no packet of its own
  cursor.skip(options);
  const size_t total = frame.ipv4->total_length;
  Frame out = udp_layer(std::move(frame), cursor, total - std::min(total, header));
  if (out.kind == FrameKind::roce_v2 && options != 0) {
    return malformed(std::move(out), "IPv4 options, which RoCEv2 does not allow");
  }
  return out;
}

Frame grh_layer(Frame frame, Cursor cursor) {
  frame.ipv6 = cursor.take<Grh>();
  if (!frame.ipv6) return malformed(std::move(frame), "too short for a GRH");
  if (frame.ipv6->version != 6 || frame.ipv6->next_header != kNextHeaderIba) {
    return malformed(std::move(frame), "a GRH with a wrong version or next header");
  }
  const size_t size = frame.ipv6->payload_length;
  if (cursor.rest().size() < size) {
    return malformed(std::move(frame), "the frame is shorter than its GRH says");
  }
  return finish(std::move(frame), FrameKind::roce_v1, cursor, size);
}

template <class H>
void copy_header(std::byte* to, const std::byte* from) {
  emit_header(parse_header<H>(from), to);
}

void copy_extension(Extension e, std::byte* to, const std::byte* from) {
  switch (e) {
    case Extension::rdeth:
      return copy_header<Rdeth>(to, from);
    case Extension::deth:
      return copy_header<Deth>(to, from);
    case Extension::xrceth:
      return copy_header<XrcEth>(to, from);
    case Extension::far_base:
      return copy_header<FarBase>(to, from);
    case Extension::far_place:
      return copy_header<FarPlace>(to, from);
    case Extension::far_sequence:
      return copy_header<FarSequence>(to, from);
    case Extension::far_offset:
      return copy_header<FarOffset>(to, from);
    case Extension::far_ack:
      return copy_header<FarAck>(to, from);
    case Extension::far_token:
      return copy_header<FarToken>(to, from);
    case Extension::far_repair:
      return copy_header<FarRepair>(to, from);
    case Extension::reth:
      return copy_header<Reth>(to, from);
    case Extension::atomic_eth:
      return copy_header<AtomicEth>(to, from);
    case Extension::aeth:
      return copy_header<Aeth>(to, from);
    case Extension::atomic_ack_eth:
      return copy_header<AtomicAckEth>(to, from);
    case Extension::imm:
      return copy_header<ImmDt>(to, from);
    case Extension::ieth:
      return copy_header<Ieth>(to, from);
    case Extension::cnp:
      return copy_header<CnpPayload>(to, from);
  }
}

}  // namespace

Endpoint Frame::source() const {
  if (ipv4) return {IpAddress::v4(ipv4->source), udp ? udp->source_port : uint16_t{0}};
  if (ipv6) return {IpAddress::from_gid(ipv6->source), udp ? udp->source_port : uint16_t{0}};
  return {};
}

Endpoint Frame::destination() const {
  if (ipv4) return {IpAddress::v4(ipv4->destination), udp ? udp->destination_port : uint16_t{0}};
  if (ipv6)
    return {IpAddress::from_gid(ipv6->destination), udp ? udp->destination_port : uint16_t{0}};
  return {};
}

uint8_t Frame::traffic_class() const {
  if (ipv4) return static_cast<uint8_t>(ipv4->dscp << 2 | ipv4->ecn);
  return ipv6 ? ipv6->traffic_class : uint8_t{0};
}

IcrcFlow Frame::icrc_flow() const {
  if (!packet.empty() &&
      opcode_info(std::to_integer<uint8_t>(packet[0])).has(Extension::far_base)) {
    return IcrcFlow::far();
  }
  if (kind == FrameKind::roce_v1) return IcrcFlow::roce_v1(ipv6->source, ipv6->destination);
  if (ipv4) return IcrcFlow::roce_v2(source(), destination(), ipv4->dont_fragment);
  if (ipv6 && udp) {
    return IcrcFlow::roce_v2({IpAddress::v6(ipv6->source), udp->source_port},
                             {IpAddress::v6(ipv6->destination), udp->destination_port});
  }
  return {};
}

Frame dissect(LinkType link, std::span<const std::byte> bytes) {
  Frame frame;
  Cursor cursor(bytes);
  const std::optional<uint16_t> type = link_layer(link, cursor, frame);
  if (!type) return frame;
  frame.network_at = cursor.at();
  if (*type == kEtherTypeIpv4) return ipv4_layer(std::move(frame), cursor);
  if (*type == kEtherTypeRoceV1) return grh_layer(std::move(frame), cursor);
  if (*type != kEtherTypeIpv6) return frame;
  frame.ipv6 = cursor.take<Ipv6Header>();
  if (!frame.ipv6 || frame.ipv6->version != 6 || frame.ipv6->next_header != kProtocolUdp)
    return frame;
  const size_t length = frame.ipv6->payload_length;
  return udp_layer(std::move(frame), cursor, length);
}

std::optional<std::vector<std::byte>> reemit(const Frame& frame, std::span<const std::byte> bytes) {
  const ParseResult parsed = parse(frame.packet);
  if (!parsed) return std::nullopt;
  std::vector<std::byte> out(bytes.size());
  if (frame.ethernet) {
    size_t at = EthernetHeader::kSize;
    emit_header(*frame.ethernet, out.data());
    for (const VlanTag& tag : frame.vlans) {
      emit_header(tag, out.data() + at);
      at += VlanTag::kSize;
    }
  } else {
    std::copy_n(bytes.begin(), frame.network_at, out.begin());
  }
  if (frame.ipv4) emit_header(*frame.ipv4, out.data() + frame.network_at);
  if (frame.ipv6) emit_header(*frame.ipv6, out.data() + frame.network_at);
  if (frame.udp) emit_header(*frame.udp, out.data() + frame.packet_at - UdpHeader::kSize);

  std::byte* const packet = out.data() + frame.packet_at;
  emit_header(parsed->bth, packet);
  for (size_t e = 0; e < kExtensionCount; ++e) {
    const size_t offset = parsed->info->offset[e];
    if (offset == 0) continue;
    copy_extension(static_cast<Extension>(e), packet + offset, frame.packet.data() + offset);
  }
  const std::span<const std::byte> payload = parsed->payload();
  const size_t headers = parsed->info->header_length;
  if (parsed->bth.pad == pad_for(payload.size())) {
    seal(packet, headers, payload, frame.icrc_flow(), frame.ip_id());
  } else {  // only manufacturers' packets may be padded otherwise
    std::copy(payload.begin(), payload.end(), packet + headers);
    const uint32_t icrc =
        compute_icrc(frame.icrc_flow(), {packet, frame.packet.size()}, frame.ip_id());
    store_be(packet + frame.packet.size() - kIcrcSize, byte_swap(icrc));
  }
  std::copy(frame.trailer.begin(), frame.trailer.end(), packet + frame.packet.size());
  return out;
}

uint16_t ipv4_checksum(std::span<const std::byte> header) {
  uint32_t sum = 0;
  for (size_t i = 0; i + 1 < header.size(); i += 2) sum += load_be<uint16_t>(header.data() + i);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

std::vector<std::byte> frame_of(const Endpoint& source, const Endpoint& destination,
                                std::span<const std::byte> packet, const FrameOptions& options) {
  const auto mac_of = [](const IpAddress& address) {
    MacAddress mac{std::byte{0x02}, std::byte{0x00}};  // locally administered
    const std::byte* tail = address.bytes().data() + address.size() - 4;
    std::copy_n(tail, 4, mac.begin() + 2);
    return mac;
  };
  const bool v4 = source.address.is_v4();
  FV_CHECK(v4 == destination.address.is_v4());
  const size_t ip_size = v4 ? Ipv4Header::kSize : Ipv6Header::kSize;
  const size_t udp_length = UdpHeader::kSize + packet.size();
  FV_CHECK(udp_length + ip_size <= UINT16_MAX);
  std::vector<std::byte> out(EthernetHeader::kSize + ip_size + udp_length);
  std::byte* at = out.data();
  emit_header(EthernetHeader{mac_of(destination.address), mac_of(source.address),
                             v4 ? kEtherTypeIpv4 : kEtherTypeIpv6},
              at);
  at += EthernetHeader::kSize;
  if (v4) {
    Ipv4Header ip;
    ip.dscp = options.traffic_class >> 2;
    ip.ecn = options.traffic_class & 3;
    ip.total_length = static_cast<uint16_t>(ip_size + udp_length);
    ip.identification = options.ip_id;
    ip.ttl = options.hop_limit;
    ip.source = source.address.v4_value();
    ip.destination = destination.address.v4_value();
    emit_header(ip, at);
    ip.checksum = ipv4_checksum({at, ip_size});
    emit_header(ip, at);
  } else {
    Ipv6Header ip;
    ip.traffic_class = options.traffic_class;
    ip.payload_length = static_cast<uint16_t>(udp_length);
    ip.hop_limit = options.hop_limit;
    ip.source = source.address.bytes();
    ip.destination = destination.address.bytes();
    emit_header(ip, at);
  }
  at += ip_size;
  emit_header(UdpHeader{source.port, destination.port, static_cast<uint16_t>(udp_length), 0}, at);
  std::copy(packet.begin(), packet.end(), at + UdpHeader::kSize);
  return out;
}

}  // namespace farverbs::wire
