#include <benchmark/benchmark.h>

#include <vector>

#include "farverbs/model/completion_queue.h"
#include "farverbs/model/memory.h"
#include "farverbs/model/work_queues.h"

namespace {

using namespace farverbs;
using namespace farverbs::model;

void BM_CompletionPushPoll(benchmark::State& state) {
  CompletionQueue queue(256, nullptr, nullptr, nullptr);
  WorkCompletion completion;
  WorkCompletion out[16];
  for (auto _ : state) {
    for (int i = 0; i < 16; ++i) queue.push(completion, false);
    benchmark::DoNotOptimize(queue.poll(out));
  }
  state.SetItemsProcessed(state.iterations() * 16);
}
BENCHMARK(BM_CompletionPushPoll);

void BM_PostSendOneElement(benchmark::State& state) {
  QpCapabilities capabilities;
  capabilities.max_send_wr = 128;
  SendQueue queue(capabilities);
  ScatterGatherElement sge[1] = {{1, 64, MemoryKey(1)}};
  SendWorkRequest request;
  request.sges = sge;
  for (auto _ : state) {
    benchmark::DoNotOptimize(queue.post(QpType::kRc, request).ok());
    queue.pop_front();
  }
}
BENCHMARK(BM_PostSendOneElement);

void BM_PostSendInline64(benchmark::State& state) {
  QpCapabilities capabilities;
  capabilities.max_send_wr = 128;
  capabilities.max_inline_data = 64;
  SendQueue queue(capabilities);
  std::byte memory[64] = {};
  ScatterGatherElement sge[1] = {{reinterpret_cast<uintptr_t>(memory), 64, MemoryKey(1)}};
  SendWorkRequest request;
  request.sges = sge;
  request.flags = kInline;
  for (auto _ : state) {
    benchmark::DoNotOptimize(queue.post(QpType::kRc, request).ok());
    queue.pop_front();
  }
}
BENCHMARK(BM_PostSendInline64);

void BM_PostAndPopReceive(benchmark::State& state) {
  ReceiveQueue queue(128, 1, false);
  ScatterGatherElement sge[1] = {{1, 64, MemoryKey(1)}};
  ReceiveWqe taken;
  for (auto _ : state) {
    benchmark::DoNotOptimize(queue.post({1, sge}).ok());
    benchmark::DoNotOptimize(queue.pop(taken));
  }
}
BENCHMARK(BM_PostAndPopReceive);

// One of many regions, so that the table is not all in the nearest cache.
void BM_Resolve(benchmark::State& state) {
  SeededEntropy entropy(1);
  MemoryTable table(entropy);
  std::byte memory[4096];
  std::vector<MemoryKey> keys;
  for (int i = 0; i < state.range(0); ++i) {
    MemoryEntry* entry = table.register_region(1, memory, sizeof memory, 0, kLocalWrite).value();
    keys.emplace_back(entry->handle_key);
  }
  size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(table.resolve(keys[i], 1, 0, 8, 64, false, Qpn{}));
    if (++i == keys.size()) i = 0;
  }
}
BENCHMARK(BM_Resolve)->Arg(1)->Arg(1000);

}  // namespace
