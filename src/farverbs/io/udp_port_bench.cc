// What UdpPort costs above the bare system calls. One thread sends to itself over the loopback
// interface, where a send delivers at once, so the scheduler stays out of the figures.
#include <benchmark/benchmark.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <array>
#include <vector>

#include "farverbs/io/shared_port.h"
#include "farverbs/io/udp_port.h"

namespace farverbs::io {
namespace {

// Arguments: bytes of a datagram, datagrams of a burst.
void sizes(benchmark::internal::Benchmark* b) {
  b->Args({64, 1})->Args({1040, 1})->Args({80, 62})->Args({1040, 62});
}

void set_bytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0) * state.range(1));
}

void Bare(benchmark::State& state) {
  const SocketAddress any(Endpoint{IpAddress::v4(INADDR_LOOPBACK), 0});
  const FileDescriptor to(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const FileDescriptor from(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  ::bind(to.get(), &any.generic, any.size);
  SocketAddress address = SocketAddress::empty();
  getsockname(to.get(), &address.generic, &address.size);
  const int on = 1;
  const int segment = static_cast<int>(state.range(0));
  if (state.range(1) > 1) {
    setsockopt(to.get(), IPPROTO_UDP, UDP_GRO, &on, sizeof on);
    setsockopt(from.get(), IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment);
  }
  const std::vector<std::byte> out(static_cast<size_t>(state.range(0) * state.range(1)));
  std::vector<std::byte> in(64 << 10);
  for (auto _ : state) {
    ::sendto(from.get(), out.data(), out.size(), 0, &address.generic, address.size);
    SocketAddress source = SocketAddress::empty();
    const ssize_t n = ::recvfrom(to.get(), in.data(), in.size(), 0, &source.generic, &source.size);
    benchmark::DoNotOptimize(n);
  }
  set_bytes(state);
}
BENCHMARK(Bare)->Apply(sizes);

void send_and_receive(benchmark::State& state, Port& from, Port& to) {
  std::vector<std::byte> memory(static_cast<size_t>(state.range(0) * state.range(1)));
  wire::TxBurst burst;
  burst.reset(memory, static_cast<size_t>(state.range(1)));
  while (burst.fits(static_cast<size_t>(state.range(0)))) {
    burst.append(static_cast<size_t>(state.range(0)));
  }
  TxFlow flow;
  flow.destination = to.local();
  std::array<RxBurst, 16> bursts;
  for (auto _ : state) {
    from.send(flow, burst);
    benchmark::DoNotOptimize(to.receive(bursts));
  }
  set_bytes(state);
}

void ThroughUdpPort(benchmark::State& state) {
  UdpOptions options;
  options.local = {IpAddress::v4(INADDR_LOOPBACK), 0};
  const auto from = UdpPort::open(options).value();
  const auto to = UdpPort::open(options).value();
  send_and_receive(state, *from, *to);
}
BENCHMARK(ThroughUdpPort)->Apply(sizes);

void ThroughSharedPort(benchmark::State& state) {
  UdpOptions options;
  options.local = {IpAddress::v4(INADDR_LOOPBACK), 0};
  SeededEntropy entropy(1);
  const auto from = SharedPort::open(options, entropy).value();
  const auto to = SharedPort::open(options, entropy).value();
  send_and_receive(state, *from, *to);
}
BENCHMARK(ThroughSharedPort)->Apply(sizes);

void EmptyReceive(benchmark::State& state) {
  UdpOptions options;
  options.local = {IpAddress::v4(INADDR_LOOPBACK), 0};
  SeededEntropy entropy(1);
  const auto udp = UdpPort::open(options).value();
  const auto shared = SharedPort::open(options, entropy).value();
  Port& port = state.range(0) != 0 ? static_cast<Port&>(*shared) : *udp;
  std::array<RxBurst, 16> bursts;
  for (auto _ : state) benchmark::DoNotOptimize(port.receive(bursts));
}
BENCHMARK(EmptyReceive)->ArgName("shared")->Arg(0)->Arg(1);

}  // namespace
}  // namespace farverbs::io
