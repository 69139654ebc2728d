// What the transport costs a packet: writing WRITE packets into bursts (copy and ICRC included) and
// taking them in (check and placement in one pass). Bare copy + ICRC of the same bytes stands
// beside.
#include <benchmark/benchmark.h>

#include <ctime>
#include <memory>
#include <vector>

#include "farverbs/proto/queue_pair.h"
#include "farverbs/wire/icrc.h"

namespace farverbs::proto {
namespace {

// CPU time of this thread: other processes do not count.
double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

constexpr size_t kMemory = 1 << 20;
constexpr uint32_t kBatch = 60;  // packets of a burst

struct End {
  explicit End(uint32_t n)
      : number(n),
        entropy(n),
        table(entropy),
        cq(1 << 16, nullptr, nullptr, nullptr),
        memory(kMemory) {
    key = MemoryKey(table
                        .register_region(1, memory.data(), memory.size(), address(),
                                         model::kLocalWrite | model::kRemoteWrite)
                        .value()
                        ->key.load());
    model::QpInit init;
    init.send_cq = init.receive_cq = &cq;
    init.capabilities = {256, 4, 1, 1, 0};
    init.pd = 1;
    qp = std::make_unique<QueuePair>(init, Qpn(n), table, nullptr, TransportConfig{});
    storage.resize(1 << 17);
  }
  uint64_t address() const { return reinterpret_cast<uint64_t>(memory.data()); }
  Endpoint endpoint() const { return {IpAddress::v4(0x0A000000 | number), kRoceUdpPort}; }
  void connect(const End& peer) {
    using namespace model;
    flow = wire::IcrcFlow::roce_v2(endpoint(), peer.endpoint());
    QpAttributes a;
    a.access_flags = kRemoteWrite;
    a.destination_qpn = Qpn(peer.number);
    const QpLimits limits;
    a.state = QpState::kInit;
    (void)qp->modify({}, a, kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccessFlags, limits);
    a.state = QpState::kRtr;
    (void)qp->modify({}, a,
                     kAttrState | kAttrAddressVector | kAttrPathMtu | kAttrDestinationQpn |
                         kAttrRqPsn | kAttrMaxDestRdAtomic | kAttrMinRnrTimer,
                     limits);
    a.state = QpState::kRts;
    (void)qp->modify(
        {}, a,
        kAttrState | kAttrTimeout | kAttrRetryCount | kAttrRnrRetry | kAttrSqPsn | kAttrMaxRdAtomic,
        limits);
  }
  void poll() {
    burst.reset(storage, 64);
    TransmitContext context;
    context.now = Time::from_ns(1);
    context.burst = &burst;
    context.icrc = &flow;
    context.request_allowance = context.read_allowance = 1 << 30;
    context.max_packets = 1000;
    qp->poll_transmit(context);
  }
  // Hands the burst of `from` over.
  void take(const End& from) {
    PacketContext context;
    context.unchecked = &from.flow;
    const auto bytes = from.burst.bytes();
    const size_t segment = from.burst.segment_size();
    size_t i = 0;
    for (size_t at = 0; at < bytes.size(); at = i * segment) {
      context.expected_ip_id = static_cast<uint16_t>(i);
      const auto packet = wire::parse(bytes.subspan(at, std::min(segment, bytes.size() - at)));
      qp->on_packet(Time::from_ns(2), *packet, context);
      context.expected_ip_id = static_cast<uint16_t>(++i);
      if (packet->info->ends()) continue;
      i += qp->on_run(Time::from_ns(2),
                      {bytes.subspan(std::min(at + segment, bytes.size())), segment, context});
    }
  }

  uint32_t number;
  SeededEntropy entropy;
  model::MemoryTable table;
  model::CompletionQueue cq;
  std::vector<std::byte> memory;
  MemoryKey key;
  std::unique_ptr<QueuePair> qp;
  wire::IcrcFlow flow;
  std::vector<std::byte> storage;
  wire::TxBurst burst;
};

// `bytes` a WRITE; counts only the side that `receive` names.
void stream(benchmark::State& state, uint32_t bytes, bool one_message, bool receive) {
  End a(1), b(2);
  a.connect(b);
  b.connect(a);
  uint64_t packets = 0;
  double total = 0;
  size_t place = 0;
  for (auto _ : state) {
    model::ScatterGatherElement sge{a.address() + place, one_message ? bytes * kBatch : bytes,
                                    a.key};
    model::SendWorkRequest request;
    request.opcode = model::SendOpcode::kWrite;
    request.sges = {&sge, 1};
    request.remote_address = b.address() + place;
    request.remote_key = b.key;
    for (uint32_t i = 0; i < (one_message ? 1 : kBatch); ++i) (void)a.qp->post_send(request);
    place = (place + size_t{bytes} * kBatch) % (kMemory / 2);
    double seconds = 0;
    while (a.qp->wants_transmit()) {
      const auto t0 = cpu_seconds();
      a.poll();
      const auto t1 = cpu_seconds();
      b.take(a);
      const auto t2 = cpu_seconds();
      seconds += receive ? t2 - t1 : t1 - t0;
      packets += a.burst.count();
    }
    b.poll();
    a.take(b);
    state.SetIterationTime(seconds);
    total += seconds;
  }
  state.counters["ns/packet"] = total * 1e9 / static_cast<double>(packets);
}

void BM_TransmitWrite1K(benchmark::State& state) { stream(state, 1024, false, false); }
void BM_TransmitLongWrite1K(benchmark::State& state) { stream(state, 1024, true, false); }
void BM_TransmitWrite64(benchmark::State& state) { stream(state, 64, false, false); }
void BM_ReceiveWrite1K(benchmark::State& state) { stream(state, 1024, false, true); }
void BM_ReceiveLongWrite1K(benchmark::State& state) { stream(state, 1024, true, true); }
void BM_ReceiveWrite64(benchmark::State& state) { stream(state, 64, false, true); }

void BM_BareSeal(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  End a(1), b(2);
  a.connect(b);
  const size_t size = bytes + 32;
  uint64_t packets = 0;
  size_t place = 0;
  for (auto _ : state) {
    for (uint16_t i = 0; i < kBatch; ++i) {
      const std::span<const std::byte> payload(a.memory.data() + place + i * bytes, bytes);
      wire::seal(a.storage.data() + i * size, 28, payload, a.flow, i);
    }
    place = (place + bytes * kBatch) % (kMemory / 2);
    packets += kBatch;
  }
  state.counters["ns/packet"] = benchmark::Counter(
      static_cast<double>(packets), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

BENCHMARK(BM_TransmitWrite1K)->UseManualTime();
BENCHMARK(BM_TransmitLongWrite1K)->UseManualTime();
BENCHMARK(BM_TransmitWrite64)->UseManualTime();
BENCHMARK(BM_ReceiveWrite1K)->UseManualTime();
BENCHMARK(BM_ReceiveLongWrite1K)->UseManualTime();
BENCHMARK(BM_ReceiveWrite64)->UseManualTime();
BENCHMARK(BM_BareSeal)->Arg(1024)->Arg(64);

}  // namespace
}  // namespace farverbs::proto
