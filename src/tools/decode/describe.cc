#include "tools/decode/describe.h"

#include <fmt/format.h>

#include "farverbs/wire/syndrome.h"

namespace farverbs::tools {
namespace {

using nlohmann::ordered_json;
using wire::Extension;
using wire::FrameKind;
using wire::Syndrome;
using wire::SyndromeKind;

constexpr uint8_t kEcnMask = 3;
constexpr uint8_t kEcnCongested = 3;

const char* nak_text(wire::NakCode code) {
  switch (code) {
    case wire::NakCode::psn_sequence_error:
      return "PSN sequence error";
    case wire::NakCode::invalid_request:
      return "invalid request";
    case wire::NakCode::remote_access_error:
      return "remote access error";
    case wire::NakCode::remote_operational_error:
      return "remote operational error";
    case wire::NakCode::invalid_rd_request:
      return "invalid RD request";
  }
  return "unknown NAK code";
}

std::string syndrome_text(Syndrome syndrome) {
  switch (syndrome.kind()) {
    case SyndromeKind::ack:
      return syndrome.value() == wire::kNoCredit
                 ? "ack"
                 : fmt::format("ack credits={}", wire::credits_of(syndrome.value()));
    case SyndromeKind::rnr_nak:
      return fmt::format("rnr-nak timer={} ({} ms)", syndrome.value(),
                         static_cast<double>(wire::rnr_delay(syndrome.value()).ns()) * 1e-6);
    case SyndromeKind::nak:
      return fmt::format("nak code={} ({})", syndrome.value(), nak_text(syndrome.nak_code()));
    case SyndromeKind::reserved:
      break;
  }
  return fmt::format("syndrome=0x{:02x} (reserved)", syndrome.byte());
}

std::string host_text(const Endpoint& endpoint) {
  return endpoint.port == 0 ? endpoint.address.to_string() : endpoint.to_string();
}

void append_bth(std::string& line, const wire::Bth& bth) {
  line += fmt::format(" qp=0x{:06x} psn=0x{:06x}", bth.dest_qp.value(), bth.psn.value());
  if (bth.solicited) line += " se";
  if (bth.ack_request) line += " ackreq";
  if (bth.fecn) line += " fecn";
  if (bth.becn) line += " becn";
  if (bth.migrated) line += " migreq";
  if (bth.pkey != wire::kDefaultPkey) line += fmt::format(" pkey=0x{:04x}", bth.pkey);
  if (bth.reserved6 != 0) line += fmt::format(" reserved6=0x{:02x}", bth.reserved6);
}

const char* far_status_text(uint8_t status) {
  switch (static_cast<wire::FarStatus>(status)) {
    case wire::FarStatus::ok:
      return "ok";
    case wire::FarStatus::not_ready:
      return "not-ready";
    case wire::FarStatus::refused:
      return "refused";
  }
  return "unknown";
}

void append_far(std::string& line, const wire::PacketView& p) {
  const wire::FarBase base = p.far_base();
  line += fmt::format(" high=0x{:04x} message={}", base.number_high, base.message);
  if (base.last) line += " last";
  if (base.repairable) line += " repairable";
  if (p.has(Extension::far_place)) {
    const wire::FarPlace place = p.far_place();
    line += fmt::format(" va=0x{:x} rkey=0x{:08x} offset={}", place.address, place.rkey.value(),
                        place.offset);
  }
  if (p.has(Extension::far_sequence)) line += fmt::format(" receive={}", p.far_sequence().receive);
  if (p.has(Extension::far_offset)) line += fmt::format(" offset={}", p.far_offset().offset);
  if (p.has(Extension::far_token)) line += fmt::format(" token=0x{:016x}", p.far_token().token);
  if (p.has(Extension::far_repair)) {
    const wire::FarRepair repair = p.far_repair();
    line += fmt::format(" block=0x{:08x}+{} symbol={}/{}", repair.first_low, repair.count,
                        repair.index, repair.repairs);
  }
  if (p.has(Extension::far_ack)) {
    const wire::FarAck ack = p.far_ack();
    line += fmt::format(" {} delay={}us time={}us marks={} ranges={}+{}",
                        far_status_text(ack.status), ack.delay_us, ack.receive_time_us,
                        ack.congestion_marks, ack.first_range, ack.range_count);
    if (ack.has_receive_limit) line += fmt::format(" limit={}", ack.receive_limit);
  }
}

void append_extensions(std::string& line, const wire::PacketView& p) {
  if (p.has(Extension::far_base)) append_far(line, p);
  if (p.has(Extension::rdeth)) line += fmt::format(" eec=0x{:06x}", p.rdeth().ee_context);
  if (p.has(Extension::deth)) {
    const wire::Deth deth = p.deth();
    line += fmt::format(" qkey=0x{:08x} srcqp=0x{:06x}", deth.qkey, deth.source_qp.value());
  }
  if (p.has(Extension::xrceth)) line += fmt::format(" srq=0x{:06x}", p.xrceth().srq);
  if (p.has(Extension::reth)) {
    const wire::Reth reth = p.reth();
    line += fmt::format(" va=0x{:x} rkey=0x{:08x} len={}", reth.address, reth.rkey.value(),
                        reth.length);
  }
  if (p.has(Extension::atomic_eth)) {
    const wire::AtomicEth atomic = p.atomic_eth();
    line += fmt::format(" va=0x{:x} rkey=0x{:08x}", atomic.address, atomic.rkey.value());
    if (p.info->kind == wire::OpKind::compare_swap) {
      line += fmt::format(" compare=0x{:x} swap=0x{:x}", atomic.compare, atomic.swap_or_add);
    } else {
      line += fmt::format(" add=0x{:x}", atomic.swap_or_add);
    }
  }
  if (p.has(Extension::aeth)) {
    const wire::Aeth aeth = p.aeth();
    line += fmt::format(" {} msn={}", syndrome_text(Syndrome(aeth.syndrome)), aeth.msn);
  }
  if (p.has(Extension::atomic_ack_eth)) {
    line += fmt::format(" original=0x{:x}", p.atomic_ack_eth().original);
  }
  if (p.has(Extension::imm)) line += fmt::format(" imm=0x{:08x}", p.imm().value);
  if (p.has(Extension::ieth)) line += fmt::format(" inv=0x{:08x}", p.ieth().rkey.value());
}

std::string mad_text(const wire::MadHeader& mad) {
  const char* message = wire::cm_message_name(mad.attribute);
  if (mad.management_class == wire::kMadClassCm && message != nullptr) {
    return fmt::format("CM {} tid=0x{:x}", message, mad.transaction);
  }
  return fmt::format("MAD class=0x{:02x} method=0x{:02x} attribute=0x{:04x} tid=0x{:x}",
                     mad.management_class, mad.method, mad.attribute, mad.transaction);
}

ordered_json aeth_json(const wire::Aeth& aeth) {
  const Syndrome syndrome(aeth.syndrome);
  ordered_json j;
  switch (syndrome.kind()) {
    case SyndromeKind::ack:
      j["kind"] = "ack";
      j["credits"] = syndrome.value() == wire::kNoCredit
                         ? ordered_json(nullptr)
                         : ordered_json(wire::credits_of(syndrome.value()));
      break;
    case SyndromeKind::rnr_nak:
      j["kind"] = "rnr_nak";
      j["timer"] = syndrome.value();
      j["timer_ns"] = wire::rnr_delay(syndrome.value()).ns();
      break;
    case SyndromeKind::nak:
      j["kind"] = "nak";
      j["code"] = syndrome.value();
      j["reason"] = nak_text(syndrome.nak_code());
      break;
    case SyndromeKind::reserved:
      j["kind"] = "reserved";
      break;
  }
  j["syndrome"] = aeth.syndrome;
  j["msn"] = aeth.msn;
  return j;
}

void add_far(ordered_json& j, const wire::PacketView& p) {
  const wire::FarBase base = p.far_base();
  j["packet_number"] = uint64_t{base.number_high} << 24 | p.bth.psn.value();
  j["message"] = base.message;
  j["last"] = base.last;
  if (p.has(Extension::far_place)) {
    const wire::FarPlace place = p.far_place();
    j["place"] = {{"va", place.address}, {"rkey", place.rkey.value()}, {"offset", place.offset}};
  }
  if (p.has(Extension::far_sequence)) j["receive"] = p.far_sequence().receive;
  if (p.has(Extension::far_offset)) j["offset"] = p.far_offset().offset;
  if (p.has(Extension::far_ack)) {
    const wire::FarAck ack = p.far_ack();
    j["ack"] = {{"status", far_status_text(ack.status)},  {"delay_us", ack.delay_us},
                {"receive_time_us", ack.receive_time_us}, {"marks", ack.congestion_marks},
                {"first_range", ack.first_range},         {"ranges", ack.range_count}};
    if (ack.has_receive_limit) j["ack"]["receive_limit"] = ack.receive_limit;
  }
}

void add_extensions(ordered_json& j, const wire::PacketView& p) {
  if (p.has(Extension::far_base)) add_far(j, p);
  if (p.has(Extension::rdeth)) j["ee_context"] = p.rdeth().ee_context;
  if (p.has(Extension::deth)) {
    j["qkey"] = p.deth().qkey;
    j["source_qp"] = p.deth().source_qp.value();
  }
  if (p.has(Extension::xrceth)) j["xrc_srq"] = p.xrceth().srq;
  if (p.has(Extension::reth)) {
    const wire::Reth reth = p.reth();
    j["reth"] = {{"va", reth.address}, {"rkey", reth.rkey.value()}, {"length", reth.length}};
  }
  if (p.has(Extension::atomic_eth)) {
    const wire::AtomicEth a = p.atomic_eth();
    j["atomic"] = {{"va", a.address},
                   {"rkey", a.rkey.value()},
                   {"swap_or_add", a.swap_or_add},
                   {"compare", a.compare}};
  }
  if (p.has(Extension::aeth)) j["aeth"] = aeth_json(p.aeth());
  if (p.has(Extension::atomic_ack_eth)) j["original"] = p.atomic_ack_eth().original;
  if (p.has(Extension::imm)) j["imm"] = p.imm().value;
  if (p.has(Extension::ieth)) j["invalidate_rkey"] = p.ieth().rkey.value();
}

const char* transport_text(FrameKind kind) {
  switch (kind) {
    case FrameKind::roce_v1:
      return "RoCEv1";
    case FrameKind::roce_v2:
      return "RoCEv2";
    case FrameKind::malformed:
      return "malformed";
    case FrameKind::other:
      break;
  }
  return "other";
}

}  // namespace

std::string describe_line(const Examined& e, Time start) {
  std::string line = fmt::format(
      "{:6} {:13.6f} {} > {}", e.captured.number, (e.captured.time - start).to_seconds(),
      host_text(e.frame.source()), e.frame.destination().address.to_string());
  if (!e.shown()) {
    line += " MALFORMED:";
    for (const std::string& problem : e.problems) line += " " + problem;
    return line;
  }
  const wire::PacketView& packet = *e.parsed;
  if (e.joined != 0) {
    line += fmt::format(" {} and", wire::opcode_name(static_cast<uint8_t>(wire::Opcode::far_ack)));
  }
  line += std::string(" ") + wire::opcode_name(packet.bth.opcode);
  append_bth(line, packet.bth);
  append_extensions(line, packet);
  if (e.mad) line += " " + mad_text(*e.mad);
  if (packet.info->has_payload()) line += fmt::format(" payload={}", packet.payload().size());
  const uint8_t traffic_class = e.frame.traffic_class();
  if (traffic_class >> 2 != 0) line += fmt::format(" dscp={}", traffic_class >> 2);
  if ((traffic_class & kEcnMask) == kEcnCongested) line += " ce";
  for (const std::string& problem : e.problems) line += " WRONG: " + problem;
  return line;
}

ordered_json describe_json(const Examined& e, bool verified) {
  ordered_json j;
  j["number"] = e.captured.number;
  j["time_ns"] = e.captured.time.ns();
  j["transport"] = transport_text(e.frame.kind);
  j["source"] = e.frame.source().address.to_string();
  j["source_port"] = e.frame.source().port;
  j["destination"] = e.frame.destination().address.to_string();
  j["traffic_class"] = e.frame.traffic_class();
  if (e.frame.ipv4) j["ip_id"] = e.frame.ip_id();
  if (e.shown()) {
    const wire::PacketView& packet = *e.parsed;
    j["opcode"] = wire::opcode_name(packet.bth.opcode);
    j["opcode_number"] = packet.bth.opcode;
    j["qp"] = packet.bth.dest_qp.value();
    j["psn"] = packet.bth.psn.value();
    j["pkey"] = packet.bth.pkey;
    j["solicited"] = packet.bth.solicited;
    j["ack_request"] = packet.bth.ack_request;
    j["migrated"] = packet.bth.migrated;
    j["fecn"] = packet.bth.fecn;
    j["becn"] = packet.bth.becn;
    add_extensions(j, packet);
    if (e.mad) {
      const char* message = wire::cm_message_name(e.mad->attribute);
      const bool cm = e.mad->management_class == wire::kMadClassCm && message != nullptr;
      j["mad"] = {{"class", e.mad->management_class},
                  {"method", e.mad->method},
                  {"attribute", e.mad->attribute},
                  {"transaction", e.mad->transaction},
                  {"cm_message", cm ? ordered_json(message) : ordered_json(nullptr)}};
    }
    j["payload_bytes"] = packet.payload().size();
    j["pad_bytes"] = packet.bth.pad;
    j["icrc"] = icrc_text(packet.icrc());
  }
  if (verified) j["correct"] = e.problems.empty();
  if (!e.problems.empty()) j["problems"] = e.problems;
  return j;
}

}  // namespace farverbs::tools
