#include "tools/decode/examine.h"

#include <algorithm>

#include <fmt/format.h>

namespace farverbs::tools {
namespace {

using wire::FrameKind;

std::optional<wire::MadHeader> mad_of(const wire::PacketView& packet) {
  if (packet.info->service != wire::Service::ud || packet.bth.dest_qp != kManagementQpn ||
      packet.payload().size() < wire::MadHeader::kSize) {
    return std::nullopt;
  }
  return wire::parse_header<wire::MadHeader>(packet.payload().data());
}

// Names the part of the frame in which byte `at` lies.
std::string place_of(const Examined& e, size_t at) {
  const size_t packet_at = e.frame.packet_at;
  if (at < e.frame.network_at) return "the link header";
  if (at < packet_at) return "the IP and UDP headers";
  const wire::PacketView& packet = *e.parsed;
  const size_t inside = at - packet_at;
  if (inside < wire::Bth::kSize) return "the BTH";
  if (inside < packet.headers().size()) return "the extended headers";
  if (inside < packet.headers().size() + packet.payload().size()) return "the payload";
  return inside < packet.bytes().size() - wire::kIcrcSize ? "the pad" : "the ICRC";
}

void check_inverse(Examined& e) {
  const std::optional<std::vector<std::byte>> again = wire::reemit(e.frame, e.captured.data);
  if (!again) return;
  const auto differs = std::mismatch(again->begin(), again->end(), e.captured.data.begin()).first;
  if (differs == again->end()) return;
  const auto at = static_cast<size_t>(differs - again->begin());
  e.problems.push_back(
      fmt::format("parse and emit are not inverse: byte {} differs, in {}", at, place_of(e, at)));
}

void check_lengths(Examined& e) {
  const wire::PacketView& packet = *e.parsed;
  if (packet.info->kind == wire::OpKind::write && packet.info->begins() && packet.info->ends() &&
      packet.reth().length != packet.payload().size()) {
    e.problems.push_back(fmt::format("the RETH announces {} bytes, the only packet carries {}",
                                     packet.reth().length, packet.payload().size()));
  }
}

}  // namespace

std::string icrc_text(uint32_t icrc) { return fmt::format("{:08x}", byte_swap(icrc)); }

Examined examine(const wire::CapturedPacket& captured, bool verify) {
  Examined e;
  e.captured = captured;
  e.frame = wire::dissect(captured.link, captured.data);
  if (!e.is_rdma()) return e;
  if (e.frame.kind == FrameKind::malformed) {
    if (captured.data.size() < captured.original_length) {
      e.problems.push_back(fmt::format("the capture holds only {} of its {} bytes",
                                       captured.data.size(), captured.original_length));
    } else {
      e.problems.emplace_back(e.frame.problem);
    }
    return e;
  }
  // What the datagram is about is the packet behind a joined acknowledgement.
  e.joined = wire::joined_acknowledgement(e.frame.packet);
  if (e.joined != 0 && verify) {
    const auto bytes = e.frame.packet.first(e.joined);
    const wire::ParseResult ack = wire::parse(bytes);
    if (!ack || wire::compute_icrc(wire::IcrcFlow::far(), bytes, 0) != ack->icrc()) {
      e.problems.emplace_back("the acknowledgement in front is damaged");
    }
  }
  e.frame.packet = e.frame.packet.subspan(e.joined);
  e.parsed = wire::parse(e.frame.packet);
  if (!e.parsed) {
    e.problems.emplace_back(wire::to_string(e.parsed.error()));
    return e;
  }
  e.mad = mad_of(*e.parsed);
  if (!verify) return e;
  const uint32_t icrc = wire::compute_icrc(e.frame.icrc_flow(), e.frame.packet, e.frame.ip_id());
  if (icrc != e.parsed->icrc()) {
    e.problems.push_back(
        fmt::format("the ICRC is {}, should be {}", icrc_text(e.parsed->icrc()), icrc_text(icrc)));
  } else if (e.joined == 0) {
    check_inverse(e);  // with a wrong ICRC it could only say the same again
  }
  check_lengths(e);
  return e;
}

}  // namespace farverbs::tools
