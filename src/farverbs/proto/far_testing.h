// What the far transport's tests share beyond proto_testing.h: packets of it written by hand.
#pragma once

#include "farverbs/proto/far_responder.h"
#include "farverbs/proto/proto_testing.h"

namespace farverbs::proto::testing {

inline std::span<const std::byte> part(const Bytes& bytes, size_t begin, size_t end) {
  return std::span(bytes).subspan(begin, end - begin);
}
inline Bytes random_bytes(size_t size, uint64_t seed) {
  Prng prng(seed);
  Bytes bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(prng.next());
  return bytes;
}

template <class... Extensions>
Bytes far_packet(Opcode opcode, uint32_t message, bool last, std::span<const std::byte> payload,
                 const Extensions&... extensions) {
  wire::Bth bth;
  bth.opcode = static_cast<uint8_t>(opcode);
  bth.pad = wire::pad_for(payload.size());
  wire::FarBase base;
  base.message = message;
  base.last = last;
  Bytes bytes(wire::packet_size(opcode, payload.size()));
  const size_t header = wire::emit_headers(bytes.data(), bth, base, extensions...);
  wire::seal(bytes.data(), header, payload, wire::IcrcFlow::far(), 0);
  return bytes;
}
// Changes a packet and makes its ICRC fit.
template <typename F>
Bytes changed(Bytes bytes, F&& change) {
  change(bytes);
  const uint32_t icrc = wire::compute_icrc(wire::IcrcFlow::far(), bytes, 0);
  for (size_t i = 0; i < 4; ++i) {
    bytes[bytes.size() - 4 + i] = static_cast<std::byte>(icrc >> (8 * i));
  }
  return bytes;
}
inline Bytes numbered(Bytes bytes, PacketNumber number) {
  return changed(std::move(bytes), [number](Bytes& b) {
    for (size_t i = 0; i < 3; ++i) b[9 + i] = static_cast<std::byte>(number >> (16 - 8 * i));
    for (size_t i = 0; i < 2; ++i) b[12 + i] = static_cast<std::byte>(number >> (32 - 8 * i));
  });
}
inline Bytes solicited(Bytes bytes) {
  return changed(std::move(bytes), [](Bytes& b) { b[1] |= std::byte{0x80}; });
}

// A responder and the memory behind it; the test is the peer.
class FarSide {
 public:
  using Verdict = FarResponder::Verdict;
  explicit FarSide(const Options& options = {})
      : a(1, options), ghost(2, options), far(a.qp->qp(), a.options.config) {
    a.connect(ghost);
    far.start();
  }

  Verdict take(const Bytes& packet) {
    const wire::ParseResult parsed = wire::parse(packet);
    EXPECT_TRUE(parsed.ok()) << wire::to_string(parsed.error());
    if (!parsed) return Verdict::kDamaged;
    PacketContext context;
    context.source = endpoint(2);
    context.unchecked = &flow;
    return far.on_request(a.now, *parsed, context);
  }
  FarResponder::RunTaken take_run(const std::vector<Bytes>& packets, PacketNumber first) {
    Bytes burst;
    for (const Bytes& packet : packets) burst.insert(burst.end(), packet.begin(), packet.end());
    PacketContext context;
    context.unchecked = &flow;
    return far.on_run({burst, packets[0].size(), context}, first);
  }
  // Bytes [begin, end) of a WRITE of `data` to `to`.
  Bytes write(uint32_t message, size_t to, const Bytes& data, size_t begin, size_t end) const {
    return far_packet(Opcode::far_write, message, end == data.size(), part(data, begin, end),
                      place(to, begin));
  }
  Bytes write_imm(uint32_t message, size_t to, const Bytes& data, size_t begin, uint32_t sequence,
                  uint32_t immediate) const {
    return far_packet(Opcode::far_write_imm, message, true, part(data, begin, data.size()),
                      place(to, begin), wire::FarSequence{sequence}, wire::ImmDt{immediate});
  }
  Bytes send(uint32_t message, uint32_t sequence, const Bytes& data, size_t begin,
             size_t end) const {
    return far_packet(Opcode::far_send, message, end == data.size(), part(data, begin, end),
                      wire::FarSequence{sequence}, wire::FarOffset{static_cast<uint32_t>(begin)});
  }
  Bytes read(uint32_t message, size_t from, uint32_t length) const {
    return far_packet(Opcode::far_read_request, message, true, {},
                      wire::Reth{a.address(from), a.key(), length});
  }
  Bytes fetch_add(uint32_t message, size_t at, uint64_t add) const {
    return far_packet(Opcode::far_fetch_add, message, true, {},
                      wire::AtomicEth{a.address(at), a.key(), add, 0});
  }
  Bytes compare_swap(uint32_t message, size_t at, uint64_t compare, uint64_t swap) const {
    return far_packet(Opcode::far_compare_swap, message, true, {},
                      wire::AtomicEth{a.address(at), a.key(), swap, compare});
  }
  wire::FarPlace place(size_t to, size_t begin) const {
    return {a.address(to + begin), a.key(), static_cast<uint32_t>(begin)};
  }
  bool holds(size_t at, const Bytes& data, size_t begin, size_t end) {
    return std::memcmp(a.bytes(at + begin), data.data() + begin, end - begin) == 0;
  }
  bool zero(size_t at, size_t size) {
    return std::all_of(a.bytes(at), a.bytes(at) + size,
                       [](std::byte b) { return b == std::byte{}; });
  }
  bool refused(wire::NakCode code) const {
    return far.failed() && far.told().status == wire::FarStatus::refused &&
           far.told().detail == static_cast<uint8_t>(code);
  }

  wire::IcrcFlow flow = wire::IcrcFlow::far();
  Side a;
  Side ghost;  // only its number is used
  FarResponder far;
};

}  // namespace farverbs::proto::testing
