// What must hold for any bytes whatever that are taken for a packet or a frame: the body of the
// fuzzers, run by the unit tests too. A violation ends the process.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <span>
#include <vector>

#include "farverbs/base/check.h"
#include "farverbs/wire/frame.h"

namespace farverbs::wire {

// Reads every part of a packet that parses: a sanitizer sees each step outside of `packet`.
inline void touch_everything(const PacketView& p) {
  unsigned sum = 0;
  const auto add = [&](const auto& header) {
    std::byte bytes[64];
    emit_header(header, bytes);
    sum += std::to_integer<unsigned>(bytes[0]);
  };
  if (p.has(Extension::rdeth)) add(p.rdeth());
  if (p.has(Extension::deth)) add(p.deth());
  if (p.has(Extension::xrceth)) add(p.xrceth());
  if (p.has(Extension::far_base)) add(p.far_base());
  if (p.has(Extension::far_place)) add(p.far_place());
  if (p.has(Extension::far_sequence)) add(p.far_sequence());
  if (p.has(Extension::far_offset)) add(p.far_offset());
  if (p.has(Extension::far_ack)) add(p.far_ack());
  if (p.has(Extension::far_token)) add(p.far_token());
  if (p.has(Extension::far_repair)) add(p.far_repair());
  if (p.has(Extension::reth)) add(p.reth());
  if (p.has(Extension::atomic_eth)) add(p.atomic_eth());
  if (p.has(Extension::aeth)) add(p.aeth());
  if (p.has(Extension::atomic_ack_eth)) add(p.atomic_ack_eth());
  if (p.has(Extension::imm)) add(p.imm());
  if (p.has(Extension::ieth)) add(p.ieth());
  if (p.has(Extension::cnp)) add(p.cnp());
  for (std::byte b : p.payload()) sum += std::to_integer<unsigned>(b);
  // Kept, so that no read is optimized away.
  static std::atomic<unsigned> sink;
  sink.store(sum + p.icrc(), std::memory_order_relaxed);
}

inline void check_packet(std::span<const std::byte> bytes) {
  const ParseResult parsed = parse(bytes);
  if (!parsed) return;
  touch_everything(*parsed);
  FV_CHECK(parsed->bytes().size() == bytes.size());
  FV_CHECK(parsed->headers().size() + parsed->payload().size() + parsed->bth.pad + kIcrcSize ==
           bytes.size());
  FV_CHECK(parsed->info->has_payload() || parsed->payload().empty());

  // Checking, and checking with a copy in two pieces, agree; so do seal and compute_icrc.
  const Endpoint a{IpAddress::v4(0x0a000001), 1};
  const Endpoint b{IpAddress::v4(0x0a000002), kRoceUdpPort};
  const IcrcFlow flow = IcrcFlow::roce_v2(a, b);
  const IcrcCheck check = verify(flow, *parsed);
  FV_CHECK(!check.ok || compute_icrc(flow, bytes, check.ip_id) == parsed->icrc());
  std::vector<std::byte> copy(parsed->payload().size());
  const size_t split = copy.size() / 3;
  const std::span<std::byte> pieces[] = {std::span(copy).first(split),
                                         std::span(copy).subspan(split)};
  FV_CHECK(verify_and_copy(flow, *parsed, pieces).ok == check.ok);
  FV_CHECK(std::equal(copy.begin(), copy.end(), parsed->payload().begin()));
}

inline void check_frame(LinkType link, std::span<const std::byte> bytes) {
  const Frame frame = dissect(link, bytes);
  if (frame.kind != FrameKind::roce_v1 && frame.kind != FrameKind::roce_v2) return;
  FV_CHECK(frame.packet_at + frame.packet.size() + frame.trailer.size() == bytes.size());
  check_packet(frame.packet);
  const std::optional<std::vector<std::byte>> again = reemit(frame, bytes);
  FV_CHECK(again.has_value() == parse(frame.packet).ok());
  if (!again) return;
  FV_CHECK(again->size() == bytes.size());
  // All but pad and ICRC, which emit makes anew, come back as they were; and once made they stay.
  const ParseResult parsed = parse(frame.packet);
  const size_t same = frame.packet_at + parsed->headers().size() + parsed->payload().size();
  FV_CHECK(std::equal(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(same), again->begin()));
  const Frame second = dissect(link, *again);
  FV_CHECK(reemit(second, *again) == again);
  FV_CHECK(verify(second.icrc_flow(), *parse(second.packet)).ok);
}

// The first byte chooses how the rest is taken.
inline void check_any_bytes(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  constexpr LinkType kLinks[] = {LinkType::ethernet, LinkType::raw_ip, LinkType::linux_sll,
                                 LinkType::linux_sll2};
  const auto choice = std::to_integer<unsigned>(bytes[0]);
  // An exact copy, so that reads beyond the end are seen.
  const std::vector<std::byte> exact(bytes.begin() + 1, bytes.end());
  if (choice % 5 == 0) {
    check_packet(exact);
  } else {
    check_frame(kLinks[choice % 5 - 1], exact);
  }
}

// A whole capture file.
inline void check_capture(std::span<const std::byte> bytes) {
  Result<PcapReader> reader = PcapReader::from_bytes(bytes, "bytes");
  if (!reader.ok()) return;
  while (true) {
    const Result<std::optional<CapturedPacket>> packet = reader->next();
    if (!packet.ok() || !packet->has_value()) return;
    check_frame((*packet)->link, (*packet)->data);
  }
}

}  // namespace farverbs::wire
