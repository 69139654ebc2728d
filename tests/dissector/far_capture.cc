// far_capture FILE: writes a capture with one packet of each kind of the far transport, some that
// are damaged and some of standard RC, and prints what the dissector is to show of each: the filter
// names and values, one packet a line.
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "farverbs/wire/frame.h"
#include "farverbs/wire/pcap.h"
#include "farverbs/wire/roce.h"

namespace farverbs::wire {
namespace {

using Bytes = std::vector<std::byte>;

class Capture {
 public:
  explicit Capture(PcapWriter writer) : writer_(std::move(writer)) {}

  void add(const Bytes& packet, const std::string& expected) {
    const Endpoint source{IpAddress::parse("192.0.2.1").value(), 49'152};
    const Endpoint destination{IpAddress::parse("192.0.2.2").value(), kRoceUdpPort};
    FV_CHECK(
        writer_.write(Time::from_ns(1'000'000'000), frame_of(source, destination, packet)).ok());
    fmt::print("{}\n", expected);
  }

 private:
  PcapWriter writer_;
};

constexpr uint64_t kNumber = 0x12'3456'789a;

Bth bth_of(Opcode opcode, size_t payload) {
  Bth bth;
  bth.opcode = static_cast<uint8_t>(opcode);
  bth.dest_qp = Qpn(0xABCDEF);
  bth.pad = pad_for(payload);
  bth.ack_request = opcode == Opcode::far_probe;
  bth.psn = Psn(kNumber);
  return bth;
}

template <class... Extensions>
Bytes far(Opcode opcode, bool last, size_t payload_size, const Extensions&... extensions) {
  FarBase base;
  base.number_high = static_cast<uint16_t>(kNumber >> 24);
  base.message = 77;
  base.last = last;
  base.ack_ratio = 3;
  base.ack_delay = 5;
  const Bytes payload(payload_size, std::byte{0x5A});
  Bytes bytes(packet_size(opcode, payload_size));
  const size_t header =
      emit_headers(bytes.data(), bth_of(opcode, payload_size), base, extensions...);
  seal(bytes.data(), header, std::span<const std::byte>(payload), IcrcFlow::far(), 0);
  return bytes;
}

std::string common(Opcode opcode, bool last, size_t payload, const std::string& more = {}) {
  const bool ack = opcode == Opcode::far_ack;
  const bool numbered = opcode != Opcode::far_path_challenge && opcode != Opcode::far_path_response;
  return fmt::format(
      "opcode=0x{:02x} qp=0xabcdef{} last={} ack_ratio=3 ack_delay=5 {}=77 payload_length={} "
      "icrc.bad=0{}{}",
      static_cast<unsigned>(opcode), numbered ? fmt::format(" number={}", kNumber) : "", int{last},
      ack ? "carried_out" : "message", payload, more.empty() ? "" : " ", more);
}

Bytes acknowledgement(const FarAck& ack, const std::vector<FarRange>& ranges) {
  Bytes body(ranges.size() * FarRange::kSize);
  for (size_t i = 0; i < ranges.size(); ++i) {
    emit_header(ranges[i], body.data() + i * FarRange::kSize);
  }
  FarBase base;
  base.number_high = static_cast<uint16_t>(kNumber >> 24);
  base.message = 77;
  base.ack_ratio = 3;
  base.ack_delay = 5;
  Bytes bytes(packet_size(Opcode::far_ack, body.size()));
  const size_t header = emit_headers(bytes.data(), bth_of(Opcode::far_ack, body.size()), base, ack);
  seal(bytes.data(), header, std::span<const std::byte>(body), IcrcFlow::far(), 0);
  return bytes;
}

void add_data(Capture& capture) {
  using enum Opcode;
  const FarPlace place{0x7f00'1234'5678'9abc, MemoryKey(0xdeadbeef), 1'432};
  const std::string at = "place.address=0x7f00123456789abc place.rkey=0xdeadbeef";
  capture.add(far(far_write, false, 1432, place),
              common(far_write, false, 1432, at + " offset=1432"));
  capture.add(far(far_write_imm, true, 5, place, FarSequence{9}, ImmDt{0x11223344}),
              common(far_write_imm, true, 5, at + " offset=1432 receive=9 imm=0x11223344"));
  capture.add(far(far_send, true, 3, FarSequence{8}, FarOffset{2864}),
              common(far_send, true, 3, "receive=8 offset=2864"));
  capture.add(far(far_send_imm, true, 0, FarSequence{8}, FarOffset{0}, ImmDt{7}),
              common(far_send_imm, true, 0, "receive=8 offset=0 imm=0x00000007"));
  capture.add(far(far_send_invalidate, true, 4, FarSequence{8}, FarOffset{0}, Ieth{MemoryKey(6)}),
              common(far_send_invalidate, true, 4, "receive=8 offset=0 invalidate=0x00000006"));
  const Reth reth{0x7f00'1234'5678'9abc, MemoryKey(0xdeadbeef), 1'000'000};
  capture.add(far(far_read_request, true, 0, reth),
              common(far_read_request, true, 0, at + " length=1000000"));
  capture.add(far(far_read_response, false, 100, FarOffset{4'000'000'000}),
              common(far_read_response, false, 100, "offset=4000000000"));
  const AtomicEth atomic{0x7f00'1234'5678'9abc, MemoryKey(0xdeadbeef), 5, 4};
  const std::string change = at + " swap_add=0x0000000000000005 compare=0x0000000000000004";
  capture.add(far(far_compare_swap, true, 0, atomic), common(far_compare_swap, true, 0, change));
  capture.add(far(far_fetch_add, true, 0, atomic), common(far_fetch_add, true, 0, change));
  capture.add(far(far_atomic_response, true, 0, AtomicAckEth{0xfedc}),
              common(far_atomic_response, true, 0, "original=0x000000000000fedc"));
}

void add_control(Capture& capture) {
  using enum Opcode;
  FarAck ack;
  ack.has_receive_limit = true;
  ack.restores = true;
  ack.restored = 37;
  ack.receive_limit = 12;
  ack.delay_us = 25;
  ack.receive_time_us = 123'456;
  ack.congestion_marks = 2;
  ack.first_range = 10;
  ack.range_count = 3;
  // 3 missing, 65,535 and 100 more arrived, then 2 missing and 1 arrived.
  const uint64_t a = kNumber - 9, b = a - 4, c = b - 65'635 + 1, d = c - 3;
  const std::string spans = fmt::format("{}-{},{}-{},{}-{}", a, kNumber, c, b, d, d);
  const std::string head =
      "ack.status=0 ack.has_limit=1 ack.restores=1 ack.restored=37 ack.limit=12 ack.delay=25 "
      "ack.time=123456 "
      "ack.marks=2 ack.first=10 ";
  capture.add(acknowledgement(ack, {{3, 65'535}, {0, 100}, {2, 1}}),
              common(far_ack, false, 0, head + "ack.range=" + spans + " ack.missing=5"));
  FarAck refused;
  refused.status = static_cast<uint8_t>(FarStatus::refused);
  refused.detail = 2;
  refused.first_range = 1;
  capture.add(
      acknowledgement(refused, {}),
      common(far_ack, false, 0,
             fmt::format("ack.status=2 ack.detail=2 ack.range={0}-{0} ack.missing=0", kNumber)));
  capture.add(far(far_probe, false, 1400), common(far_probe, false, 1400, "ackreq=1"));
  capture.add(far(far_path_challenge, false, 0, FarToken{0x0123'4567'89ab'cdef}),
              common(far_path_challenge, false, 0, "token=0x0123456789abcdef"));
  capture.add(far(far_path_response, false, 0, FarToken{0x0123'4567'89ab'cdef}),
              common(far_path_response, false, 0, "token=0x0123456789abcdef"));
  capture.add(far(far_repair, false, 50, FarRepair{0x3456'7800, 64, 2, 6, 0}),
              common(far_repair, false, 50,
                     "repair.first=0x34567800 repair.count=64 repair.index=2 repair.repairs=6"));
}

void add_others(Capture& capture) {
  using enum Opcode;
  Bytes damaged = far(far_send, true, 8, FarSequence{1}, FarOffset{0});
  damaged.back() ^= std::byte{1};
  capture.add(damaged, "opcode=0xc2 icrc.bad=1");
  // What routers may change is not covered.
  Bytes marked = far(far_send, true, 8, FarSequence{1}, FarOffset{0});
  marked[4] ^= std::byte{0x80};
  capture.add(marked, "opcode=0xc2 icrc.bad=0");
  Bytes cut = far(far_write, true, 0, FarPlace{});
  cut.resize(Bth::kSize + FarBase::kSize + 8 + kIcrcSize);
  capture.add(cut, "opcode=0xc0 malformed=1");
  capture.add(Bytes(cut.begin(), cut.begin() + Bth::kSize + 4), "malformed=1");
  // Standard RC: an acknowledgement, then the same from one who speaks the far transport.
  for (const uint8_t reserved : {0x00, 0x2d}) {
    Bth bth = bth_of(rc_ack, 0);
    bth.reserved6 = reserved;
    Bytes standard(packet_size(rc_ack, 0));
    const size_t header = emit_headers(standard.data(), bth, Aeth{});
    seal(standard.data(), header, std::span<const std::byte>(), IcrcFlow::far(), 0);
    capture.add(standard, reserved == 0 ? "infiniband=1" : "infiniband=1 offered=1");
  }
}

}  // namespace
}  // namespace farverbs::wire

int main(int argc, char** argv) {
  using namespace farverbs::wire;
  if (argc != 2) return 2;
  auto writer = PcapWriter::create(argv[1]);
  if (!writer.ok()) {
    fmt::print(stderr, "{}\n", writer.error().message);
    return 1;
  }
  Capture capture(std::move(*writer));
  add_data(capture);
  add_control(capture);
  add_others(capture);
  return 0;
}
