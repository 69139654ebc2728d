#include "farverbs/proto/far_receives.h"

#include <algorithm>

#include "farverbs/proto/completions.h"

namespace farverbs::proto {

FarReceive* FarReceives::reach(uint64_t sequence) {
  while (taken_ <= sequence) {
    if (taken_ - done_ == ring_.size()) grow();
    std::unique_ptr<FarReceive>& place = ring_[taken_ & (ring_.size() - 1)];
    if (place == nullptr) place = std::make_unique<FarReceive>();
    if (!qp_.receives().pop(place->wqe)) return nullptr;
    place->walker.reset();
    place->owner = FarReceive::kNobody;
    ++taken_;
  }
  return ring_[sequence & (ring_.size() - 1)].get();
}

void FarReceives::grow() {
  std::vector<std::unique_ptr<FarReceive>> ring(std::max<size_t>(2 * ring_.size(), 2));
  for (uint64_t s = done_; s < taken_; ++s) {
    ring[s & (ring.size() - 1)] = std::move(ring_[s & (ring_.size() - 1)]);
  }
  ring_ = std::move(ring);
}

void FarReceives::flush() {
  for (; done_ < taken_; ++done_) {
    fail_receive(qp_, front().wqe.wr_id, model::CompletionStatus::kWorkRequestFlushed);
  }
  model::ReceiveWqe scratch;
  flush_receives(qp_, scratch);
}

void FarReceives::reset() {
  done_ = taken_ = 0;
  ring_ = decltype(ring_)();
}

size_t FarReceives::memory_bytes() const {
  size_t bytes = ring_.capacity() * sizeof(ring_[0]);
  const size_t storage =
      std::max(qp_.receives().max_sge(), 1u) * sizeof(model::ScatterGatherElement);
  for (const std::unique_ptr<FarReceive>& receive : ring_) {
    if (receive == nullptr) continue;
    bytes += sizeof(FarReceive) + (receive->wqe.sge_storage == nullptr ? 0 : storage);
  }
  return bytes;
}

}  // namespace farverbs::proto
