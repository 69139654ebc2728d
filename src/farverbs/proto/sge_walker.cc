#include "farverbs/proto/sge_walker.h"

#include <algorithm>

namespace farverbs::proto {

using model::MemoryVerdict;

MemoryVerdict SgeWalker::resolve(const model::ScatterGatherElement& sge,
                                 const model::MemoryTable& memory, model::PdId pd,
                                 uint32_t access) {
  if (entry_ != nullptr && entry_->holds(sge.lkey)) return MemoryVerdict::kOk;
  const model::MemoryAccess found =
      memory.resolve(sge.lkey, pd, access, sge.address, sge.length, false, Qpn{});
  entry_ = found.verdict == MemoryVerdict::kOk ? found.entry : nullptr;
  memory_ = found.memory;
  return found.verdict;
}

template <typename Byte>
MemoryVerdict SgeWalker::find(std::span<const model::ScatterGatherElement> sges, uint64_t offset,
                              uint64_t length, const model::MemoryTable& memory, model::PdId pd,
                              uint32_t access, Pieces<Byte>& out) {
  if (length == 0) return MemoryVerdict::kOk;
  if (offset < begin_) reset();
  while (length > 0) {
    if (index_ >= sges.size() || out.full()) return MemoryVerdict::kOutOfBounds;
    const model::ScatterGatherElement& sge = sges[index_];
    const uint64_t end = begin_ + sge.length;
    if (offset >= end) {
      begin_ = end;
      ++index_;
      entry_ = nullptr;
      continue;
    }
    const MemoryVerdict verdict = resolve(sge, memory, pd, access);
    if (verdict != MemoryVerdict::kOk) return verdict;
    const uint64_t n = std::min(length, end - offset);
    out.add(memory_ + (offset - begin_), n);
    offset += n;
    length -= n;
  }
  return MemoryVerdict::kOk;
}

std::span<std::byte> SgeWalker::rest_of_element(std::span<const model::ScatterGatherElement> sges,
                                                uint64_t offset, const model::MemoryTable& memory,
                                                model::PdId pd, uint32_t access) {
  if (offset < begin_) reset();
  for (; index_ < sges.size(); ++index_, entry_ = nullptr) {
    const model::ScatterGatherElement& sge = sges[index_];
    if (offset < begin_ + sge.length) {
      if (resolve(sge, memory, pd, access) != MemoryVerdict::kOk) return {};
      return {memory_ + (offset - begin_), sge.length - (offset - begin_)};
    }
    begin_ += sge.length;
  }
  return {};
}

template MemoryVerdict SgeWalker::find(std::span<const model::ScatterGatherElement>, uint64_t,
                                       uint64_t, const model::MemoryTable&, model::PdId, uint32_t,
                                       SourcePieces&);
template MemoryVerdict SgeWalker::find(std::span<const model::ScatterGatherElement>, uint64_t,
                                       uint64_t, const model::MemoryTable&, model::PdId, uint32_t,
                                       TargetPieces&);

}  // namespace farverbs::proto
