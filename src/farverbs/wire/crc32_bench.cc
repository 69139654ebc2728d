// CRC kernels and the ICRC of whole packets beside their yardsticks: ISA-L, memcpy then ISA-L,
// plain memcpy. Sources are cache-hot, as staging buffers are.
#include <benchmark/benchmark.h>
#include <isa-l/crc.h>

#include <cstring>
#include <string>
#include <vector>

#include "farverbs/wire/crc32.h"
#include "farverbs/wire/icrc.h"

namespace farverbs::wire {
namespace {

struct Buffers {
  std::vector<std::byte> from;
  std::vector<std::byte> to;
  explicit Buffers(size_t n) : from(n, std::byte{0x5a}), to(n) {}
};

void set_bytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void memcpy_alone(benchmark::State& state) {
  Buffers b(static_cast<size_t>(state.range(0)));
  for (auto _ : state) {
    std::memcpy(b.to.data(), b.from.data(), b.from.size());
    benchmark::ClobberMemory();
  }
  set_bytes(state);
}

void isal_alone(benchmark::State& state) {
  Buffers b(static_cast<size_t>(state.range(0)));
  uint32_t crc = 0;
  for (auto _ : state) {
    crc = crc32_gzip_refl(crc, reinterpret_cast<unsigned char*>(b.from.data()), b.from.size());
    benchmark::DoNotOptimize(crc);
  }
  set_bytes(state);
}

void memcpy_then_isal(benchmark::State& state) {
  Buffers b(static_cast<size_t>(state.range(0)));
  uint32_t crc = 0;
  for (auto _ : state) {
    std::memcpy(b.to.data(), b.from.data(), b.from.size());
    benchmark::ClobberMemory();
    crc = crc32_gzip_refl(crc, reinterpret_cast<unsigned char*>(b.to.data()), b.to.size());
    benchmark::DoNotOptimize(crc);
  }
  set_bytes(state);
}

void update(benchmark::State& state, const Crc32Kernel* kernel) {
  Buffers b(static_cast<size_t>(state.range(0)));
  uint32_t crc = 0;
  for (auto _ : state) {
    crc = kernel->update(crc, b.from.data(), b.from.size());
    benchmark::DoNotOptimize(crc);
  }
  set_bytes(state);
}

void copy(benchmark::State& state, const Crc32Kernel* kernel) {
  Buffers b(static_cast<size_t>(state.range(0)));
  uint32_t crc = 0;
  for (auto _ : state) {
    crc = kernel->copy(crc, b.to.data(), b.from.data(), b.from.size());
    benchmark::DoNotOptimize(crc);
    benchmark::ClobberMemory();
  }
  set_bytes(state);
}

struct Packet {
  IcrcFlow flow =
      IcrcFlow::roce_v2({IpAddress::v4(0x0a4d0002), 4791}, {IpAddress::v4(0x0a4d0003), 4791});
  Bth bth;
  std::vector<std::byte> payload;
  std::vector<std::byte> packet;
  explicit Packet(size_t n, uint16_t ip_id) : payload(n, std::byte{0x33}) {
    bth.opcode = static_cast<uint8_t>(Opcode::rc_send_only);
    bth.pad = pad_for(n);
    packet.resize(packet_size(Opcode::rc_send_only, n));
    seal(packet.data(), emit_headers(packet.data(), bth), payload, flow, ip_id);
  }
};

// Headers, copy, pad and ICRC of one packet.
void packet_send(benchmark::State& state) {
  Packet p(static_cast<size_t>(state.range(0)), 0);
  uint32_t psn = 0;
  for (auto _ : state) {
    p.bth.psn = Psn(++psn);
    benchmark::DoNotOptimize(
        seal(p.packet.data(), emit_headers(p.packet.data(), p.bth), p.payload, p.flow, 0));
    benchmark::ClobberMemory();
  }
  set_bytes(state);
}

void packet_parse(benchmark::State& state) {
  Packet p(64, 0);
  for (auto _ : state) {
    benchmark::ClobberMemory();
    benchmark::DoNotOptimize(parse(p.packet));
  }
}

void packet_parse_verify(benchmark::State& state, uint16_t ip_id) {
  Packet p(static_cast<size_t>(state.range(0)), ip_id);
  for (auto _ : state) {
    benchmark::ClobberMemory();
    benchmark::DoNotOptimize(verify(p.flow, *parse(p.packet)).ok);
  }
  set_bytes(state);
}

void packet_parse_verify_copy(benchmark::State& state) {
  Packet p(static_cast<size_t>(state.range(0)), 0);
  for (auto _ : state) {
    benchmark::ClobberMemory();
    benchmark::DoNotOptimize(verify_and_copy(p.flow, *parse(p.packet), p.payload).ok);
  }
  set_bytes(state);
}

void flow_setup(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        IcrcFlow::roce_v2({IpAddress::v4(0x0a4d0002), 4791}, {IpAddress::v4(0x0a4d0003), 4791}));
  }
}

const int kRegistered = [] {
  const auto sizes = [](benchmark::internal::Benchmark* b) {
    for (int64_t n : {16, 64, 100, 256, 1024, 4096, 65536}) b->Arg(n);
  };
  sizes(benchmark::RegisterBenchmark("memcpy", memcpy_alone));
  sizes(benchmark::RegisterBenchmark("isal", isal_alone));
  sizes(benchmark::RegisterBenchmark("memcpy_then_isal", memcpy_then_isal));
  for (const Crc32Kernel* kernel : crc32_kernels()) {
    sizes(benchmark::RegisterBenchmark((std::string("update_") + kernel->name).c_str(), update,
                                       kernel));
    sizes(
        benchmark::RegisterBenchmark((std::string("copy_") + kernel->name).c_str(), copy, kernel));
  }
  const auto packets = [](benchmark::internal::Benchmark* b) {
    for (int64_t n : {0, 8, 64, 1024, 4096}) b->Arg(n);
  };
  benchmark::RegisterBenchmark("packet_parse", packet_parse);
  packets(benchmark::RegisterBenchmark("packet_send", packet_send));
  packets(benchmark::RegisterBenchmark("packet_parse_verify_id_0", packet_parse_verify, 0));
  packets(
      benchmark::RegisterBenchmark("packet_parse_verify_id_unknown", packet_parse_verify, 0x1234));
  packets(benchmark::RegisterBenchmark("packet_parse_verify_copy", packet_parse_verify_copy));
  benchmark::RegisterBenchmark("flow_setup", flow_setup);
  return 0;
}();

}  // namespace
}  // namespace farverbs::wire
