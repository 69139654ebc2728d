// The packet path's view of one RoCE packet, from the BTH to the ICRC: what a UDP datagram to port
// 4791 carries (RoCEv2, IBTA annex A17) and what follows a GRH (RoCEv1, annex A16).
//
//   receive:  const ParseResult r = parse(datagram);
//             if (!r) count(r.error());                 // ParseError: the peer's mistake, drop
//             r->bth.psn, r->info->kind, r->reth(), r->payload(), ...
//             verify(flow, *r) or verify_and_copy(flow, *r, pieces)             (icrc.h)
//   send:     const size_t n = emit_headers(buffer, bth, reth, imm);    // bth.pad = pad_for(bytes)
//             seal(buffer, n, payload_pieces, flow, ip_id)                      (icrc.h)
//
// parse checks every bound once; afterwards nothing that a PacketView gives can be out of bounds.
// It neither allocates nor copies payload; a PacketView borrows the datagram's bytes. The ICRC is
// not checked here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "farverbs/base/check.h"
#include "farverbs/wire/opcode.h"

namespace farverbs::wire {

enum class ParseError : uint8_t {
  none,
  too_short,  // less than a BTH and an ICRC
  unknown_opcode,
  bad_version,         // TVer is not 0
  bad_length,          // BTH to ICRC is no multiple of 4 bytes
  headers_cut,         // the extended headers that the opcode asks for do not fit
  bad_pad,             // more padding than payload
  unexpected_payload,  // payload after headers that never have one
};
inline constexpr size_t kParseErrorCount = 8;
// "too short", "unknown opcode", ...
const char* to_string(ParseError error);

inline constexpr size_t kMinPacketSize = Bth::kSize + kIcrcSize;

// Pad bytes that bring a payload of `bytes` to a multiple of 4.
constexpr uint8_t pad_for(size_t bytes) { return static_cast<uint8_t>(-bytes & 3); }

// Bytes from the BTH to the ICRC inclusive: the length of the UDP payload.
constexpr size_t packet_size(const OpcodeInfo& info, size_t payload_bytes) {
  return info.header_length + payload_bytes + pad_for(payload_bytes) + kIcrcSize;
}
constexpr size_t packet_size(Opcode opcode, size_t payload_bytes) {
  return packet_size(opcode_info(opcode), payload_bytes);
}

// In a datagram of the far transport an acknowledgement may stand in front of another packet
// (docs/far-transport.md section 2): its bytes then, otherwise 0.
inline size_t joined_acknowledgement(std::span<const std::byte> datagram) {
  constexpr size_t kCountAt = Bth::kSize + FarBase::kSize + 3;
  if (datagram.size() <= packet_size(Opcode::far_ack, 0) ||
      datagram[0] != static_cast<std::byte>(Opcode::far_ack)) {
    return 0;
  }
  const size_t size =
      packet_size(Opcode::far_ack, std::to_integer<size_t>(datagram[kCountAt]) * FarRange::kSize);
  return size < datagram.size() ? size : 0;
}

class PacketView;
class ParseResult;
ParseResult parse(std::span<const std::byte> packet);

class PacketView {
 public:
  Bth bth;
  const OpcodeInfo* info = &kOpcodeTable[0x15];  // never null

  Opcode opcode() const { return static_cast<Opcode>(bth.opcode); }
  bool has(Extension e) const { return info->has(e); }

  // Extended headers. Asking for one that the opcode does not have is our own bug: test info->kind
  // or has() first.
  Reth reth() const { return get<Reth>(Extension::reth); }
  AtomicEth atomic_eth() const { return get<AtomicEth>(Extension::atomic_eth); }
  Aeth aeth() const { return get<Aeth>(Extension::aeth); }
  AtomicAckEth atomic_ack_eth() const { return get<AtomicAckEth>(Extension::atomic_ack_eth); }
  Deth deth() const { return get<Deth>(Extension::deth); }
  ImmDt imm() const { return get<ImmDt>(Extension::imm); }
  Ieth ieth() const { return get<Ieth>(Extension::ieth); }
  Rdeth rdeth() const { return get<Rdeth>(Extension::rdeth); }
  XrcEth xrceth() const { return get<XrcEth>(Extension::xrceth); }
  FarBase far_base() const { return get<FarBase>(Extension::far_base); }
  FarPlace far_place() const { return get<FarPlace>(Extension::far_place); }
  FarSequence far_sequence() const { return get<FarSequence>(Extension::far_sequence); }
  FarOffset far_offset() const { return get<FarOffset>(Extension::far_offset); }
  FarAck far_ack() const { return get<FarAck>(Extension::far_ack); }
  FarToken far_token() const { return get<FarToken>(Extension::far_token); }
  FarRepair far_repair() const { return get<FarRepair>(Extension::far_repair); }
  CnpPayload cnp() const { return get<CnpPayload>(Extension::cnp); }

  // Without pad and ICRC.
  std::span<const std::byte> payload() const {
    return {data_ + info->header_length, payload_size_};
  }
  // BTH and extended headers.
  std::span<const std::byte> headers() const { return {data_, info->header_length}; }
  // BTH to ICRC inclusive.
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // What the sender wrote, as the CRC-32's value (the wire has its least significant byte first).
  uint32_t icrc() const {
    uint32_t big_endian = load_be<uint32_t>(data_ + size_ - kIcrcSize);
    return byte_swap(big_endian);
  }

 private:
  friend ParseResult parse(std::span<const std::byte> packet);
  template <class H>
  H get(Extension e) const {
    FV_CHECK(info->has(e));
    return parse_header<H>(data_ + info->offset_of(e));
  }
  const std::byte* data_ = nullptr;
  uint32_t size_ = 0;
  uint32_t payload_size_ = 0;
};

// A PacketView, or why there is none.
class [[nodiscard]] ParseResult {
 public:
  bool ok() const { return error_ == ParseError::none; }
  explicit operator bool() const { return ok(); }
  ParseError error() const { return error_; }
  const PacketView& operator*() const {
    FV_CHECK(ok());
    return view_;
  }
  const PacketView* operator->() const { return &**this; }

 private:
  friend ParseResult parse(std::span<const std::byte> packet);
  PacketView view_;
  ParseError error_ = ParseError::none;
};

// `packet` is the UDP payload, or what follows the GRH without the Ethernet FCS. Its end is the
// packet's end: a caller with trailing bytes cuts them off first.
inline ParseResult parse(std::span<const std::byte> packet) {
  ParseResult r;
  PacketView& v = r.view_;
  if (packet.size() < kMinPacketSize || packet.size() > UINT32_MAX) [[unlikely]] {
    r.error_ = ParseError::too_short;
    return r;
  }
  parse_header(packet.data(), v.bth);
  v.info = &kOpcodeTable[v.bth.opcode];
  v.data_ = packet.data();
  v.size_ = static_cast<uint32_t>(packet.size());
  // Signed: negative when the headers, or the pad, do not fit.
  const int64_t body =
      static_cast<int64_t>(packet.size()) - v.info->header_length - static_cast<int64_t>(kIcrcSize);
  const int64_t payload = body - v.bth.pad;
  v.payload_size_ = static_cast<uint32_t>(payload);
  // One test for all: the sum is 0 for a good packet, and the compiler makes no branches of it.
  const unsigned faults = unsigned{!v.info->known()} + unsigned{v.bth.version != 0} +
                          unsigned{(packet.size() & v.info->length_mask) != 0} +
                          unsigned{payload < 0} + unsigned{body > v.info->max_payload};
  if (faults != 0) [[unlikely]] {
    r.error_ = !v.info->known()                             ? ParseError::unknown_opcode
               : v.bth.version != 0                         ? ParseError::bad_version
               : (packet.size() & v.info->length_mask) != 0 ? ParseError::bad_length
               : body < 0                                   ? ParseError::headers_cut
               : payload < 0                                ? ParseError::bad_pad
                                                            : ParseError::unexpected_payload;
    v = PacketView{};
  }
  return r;
}

// Writes the BTH and then `extensions` in the order given, which is the order of enum Extension,
// and returns their length. The extensions must be exactly those of bth.opcode.
template <class... Extensions>
inline size_t emit_headers(std::byte* out, const Bth& bth, const Extensions&... extensions) {
  constexpr size_t kLength = (Bth::kSize + ... + Extensions::kSize);
  FV_CHECK(opcode_info(bth.opcode).header_length == kLength);
  emit_header(bth, out);
  size_t at = Bth::kSize;
  ((emit_header(extensions, out + at), at += Extensions::kSize), ...);
  return kLength;
}

}  // namespace farverbs::wire
