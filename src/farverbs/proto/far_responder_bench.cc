// What the far transport's receiving half costs a packet, beside the bare check and copy of the
// same bytes: a long WRITE, WRITEs of one packet, and both while the message before them is
// missing.
#include <benchmark/benchmark.h>

#include <ctime>
#include <memory>
#include <vector>

#include "farverbs/proto/far_responder.h"
#include "farverbs/wire/icrc.h"

namespace farverbs::proto {
namespace {

// CPU time of this thread: other processes do not count.
double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

constexpr size_t kMemory = 1 << 19;
constexpr uint32_t kBatch = 63;  // packets

struct Receiver {
  Receiver() : entropy(1), table(entropy), cq(64, nullptr, nullptr, nullptr), memory(kMemory) {
    key = MemoryKey(table
                        .register_region(1, memory.data(), memory.size(), 0,
                                         model::kLocalWrite | model::kRemoteWrite)
                        .value()
                        ->key.load());
    model::QpInit init;
    init.send_cq = init.receive_cq = &cq;
    init.capabilities = {4, 4, 1, 1, 0};
    init.pd = 1;
    qp = std::make_unique<model::Qp>(init, Qpn(1), table, nullptr);
    qp->attributes.access_flags = model::kRemoteWrite;
    far = std::make_unique<FarResponder>(*qp, config);
    far->start();
  }
  void write(uint32_t message, bool last, uint32_t offset, uint64_t address, uint32_t size) {
    wire::Bth bth;
    bth.opcode = static_cast<uint8_t>(wire::Opcode::far_write);
    bth.psn = Psn(number);
    wire::FarBase base;
    base.number_high = static_cast<uint16_t>(number++ >> 24);
    base.message = message;
    base.last = last;
    const size_t at = packets.size();
    packets.resize(at + wire::packet_size(wire::Opcode::far_write, size));
    const size_t header =
        wire::emit_headers(packets.data() + at, bth, base, wire::FarPlace{address, key, offset});
    wire::seal(packets.data() + at, header, std::span(source).first(size), flow, 0);
    sizes.push_back(packets.size() - at);
  }
  // The same as a burst of which runs are taken.
  double take_runs() {
    PacketContext context;
    context.unchecked = &flow;
    const double start = cpu_seconds();
    const std::span<const std::byte> all(packets);
    const size_t size = sizes[0];
    PacketNumber next = number - sizes.size();
    for (size_t at = 0; at < all.size();) {
      const auto packet = wire::parse(all.subspan(at, size));
      benchmark::DoNotOptimize(far->on_request({}, *packet, context));
      at += size;
      const size_t taken = far->on_run({all.subspan(at), size, context}, ++next).packets;
      at += taken * size;
      next += taken;
    }
    const double seconds = cpu_seconds() - start;
    packets.clear();
    sizes.clear();
    return seconds;
  }
  // Hands the packets over; seconds.
  double take() {
    PacketContext context;
    context.unchecked = &flow;
    const double start = cpu_seconds();
    size_t at = 0;
    for (const size_t size : sizes) {
      const auto packet = wire::parse(std::span(packets).subspan(at, size));
      benchmark::DoNotOptimize(far->on_request({}, *packet, context));
      at += size;
    }
    const double seconds = cpu_seconds() - start;
    packets.clear();
    sizes.clear();
    return seconds;
  }

  wire::IcrcFlow flow = wire::IcrcFlow::far();
  TransportConfig config;
  SeededEntropy entropy;
  model::MemoryTable table;
  model::CompletionQueue cq;
  std::vector<std::byte> memory;
  std::vector<std::byte> source = std::vector<std::byte>(4096);
  MemoryKey key;
  std::unique_ptr<model::Qp> qp;
  std::unique_ptr<FarResponder> far;
  std::vector<std::byte> packets;
  std::vector<size_t> sizes;
  PacketNumber number = 1;
};

// `packets` to a message; `ahead`: message 0 never comes.
void write(benchmark::State& state, uint32_t size, uint32_t packets, bool ahead,
           bool runs = false) {
  Receiver r;
  uint32_t message = ahead ? 1 : 0;
  uint64_t place = 0;
  double total = 0;
  uint64_t count = 0;
  for (auto _ : state) {
    if (ahead && message > 4000) {
      r.far->reset();
      message = 1;
    }
    for (uint32_t i = 0; i < kBatch; ++i) {
      const uint32_t index = i % packets;
      if (index == 0) place = (place + size_t{size} * packets) % (kMemory / 2);
      r.write(message, index + 1 == packets, index * size, place + size_t{index} * size, size);
      if (index + 1 == packets) ++message;
    }
    const double seconds = runs ? r.take_runs() : r.take();
    state.SetIterationTime(seconds);
    total += seconds;
    count += kBatch;
  }
  if (!ahead && r.far->executed() != message) state.SkipWithError("not carried out");
  state.counters["ns/packet"] = total * 1e9 / static_cast<double>(count);
}

void bare(benchmark::State& state) {
  const auto size = static_cast<uint32_t>(state.range(0));
  Receiver r;
  uint64_t place = 0;
  double total = 0;
  uint64_t count = 0;
  for (auto _ : state) {
    for (uint32_t i = 0; i < kBatch; ++i) r.write(0, true, 0, 0, size);
    const double start = cpu_seconds();
    size_t at = 0;
    for (const size_t bytes : r.sizes) {
      const auto packet = wire::parse(std::span(r.packets).subspan(at, bytes));
      benchmark::DoNotOptimize(
          wire::verify_and_copy(r.flow, *packet, std::span(r.memory).subspan(place, size)));
      place = (place + size) % (kMemory / 2);
      at += bytes;
    }
    const double seconds = cpu_seconds() - start;
    r.packets.clear();
    r.sizes.clear();
    state.SetIterationTime(seconds);
    total += seconds;
    count += kBatch;
  }
  state.counters["ns/packet"] = total * 1e9 / static_cast<double>(count);
}

void BM_FarLongWrite(benchmark::State& state) { write(state, 1432, kBatch, false); }
void BM_FarLongWriteRun(benchmark::State& state) { write(state, 1432, kBatch, false, true); }
void BM_FarLongWrite64(benchmark::State& state) { write(state, 64, kBatch, false); }
void BM_FarLongWriteAhead(benchmark::State& state) { write(state, 1432, kBatch, true); }
void BM_FarWriteOfThree(benchmark::State& state) { write(state, 1364, 3, false); }
void BM_FarWriteOfThreeAhead(benchmark::State& state) { write(state, 1364, 3, true); }
void BM_FarWrite1432(benchmark::State& state) { write(state, 1432, 1, false); }
void BM_FarWrite64(benchmark::State& state) { write(state, 64, 1, false); }
void BM_FarWrite64Ahead(benchmark::State& state) { write(state, 64, 1, true); }

BENCHMARK(bare)->Name("BM_FarBareCheckAndCopy")->Arg(1432)->Arg(1364)->Arg(64)->UseManualTime();
BENCHMARK(BM_FarLongWrite)->UseManualTime();
BENCHMARK(BM_FarLongWriteRun)->UseManualTime();
BENCHMARK(BM_FarLongWrite64)->UseManualTime();
BENCHMARK(BM_FarLongWriteAhead)->UseManualTime();
BENCHMARK(BM_FarWrite1432)->UseManualTime();
BENCHMARK(BM_FarWriteOfThree)->UseManualTime();
BENCHMARK(BM_FarWriteOfThreeAhead)->UseManualTime();
BENCHMARK(BM_FarWrite64)->UseManualTime();
BENCHMARK(BM_FarWrite64Ahead)->UseManualTime();

}  // namespace
}  // namespace farverbs::proto
