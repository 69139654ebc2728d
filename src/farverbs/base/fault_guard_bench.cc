#include "farverbs/base/fault_guard.h"

#include <benchmark/benchmark.h>

namespace {

// The cost of the guard itself: it stands around every copy of a packet.
void BM_Guarded(benchmark::State& state) {
  farverbs::install_fault_guard();
  unsigned char byte = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(farverbs::guarded([&] { benchmark::DoNotOptimize(++byte); }));
  }
}
BENCHMARK(BM_Guarded);

}  // namespace
