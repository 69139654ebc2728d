// SgeWalker: finds the memory behind a byte range of a scatter/gather list. It remembers the
// element it was in, so that a message's packets, taken in order, cost one key check each and no
// search.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include "farverbs/model/memory.h"
#include "farverbs/model/types.h"

namespace farverbs::proto {

// The memory of one packet's payload, at most one piece per SGE. Storage is not initialized:
// filling 4 KiB with zeros would cost more than the packet.
template <typename Byte>
class Pieces {
 public:
  using Piece = std::span<Byte>;
  static constexpr size_t kCapacity = 256;
  Pieces() {}  // NOLINT(modernize-use-equals-default): leaves the storage alone
  bool full() const { return count_ == kCapacity; }
  void add(Byte* memory, size_t length) {
    new (storage_ + count_++ * sizeof(Piece)) Piece(memory, length);
  }
  std::span<const Piece> view() const {
    return {std::launder(reinterpret_cast<const Piece*>(storage_)), count_};
  }

 private:
  size_t count_ = 0;
  alignas(Piece) std::byte storage_[kCapacity * sizeof(Piece)];
};
using SourcePieces = Pieces<const std::byte>;
using TargetPieces = Pieces<std::byte>;

class SgeWalker {
 public:
  // Forgets where it was; before another list, or a jump backwards.
  void reset() {
    index_ = 0;
    begin_ = 0;
    entry_ = nullptr;
  }
  // The memory of bytes [offset, offset + length) of the list. `access`: rights the elements' keys
  // must have (0: local read). kOutOfBounds also when the list is shorter than that.
  template <typename Byte>
  model::MemoryVerdict find(std::span<const model::ScatterGatherElement> sges, uint64_t offset,
                            uint64_t length, const model::MemoryTable& memory, model::PdId pd,
                            uint32_t access, Pieces<Byte>& out);
  // The memory of the list's bytes from `offset` on that lie in one element; nothing if find()
  // would have something against the first of them. std::byte: they may be written if `access` says
  // so.
  std::span<std::byte> rest_of_element(std::span<const model::ScatterGatherElement> sges,
                                       uint64_t offset, const model::MemoryTable& memory,
                                       model::PdId pd, uint32_t access);

 private:
  model::MemoryVerdict resolve(const model::ScatterGatherElement& sge,
                               const model::MemoryTable& memory, model::PdId pd, uint32_t access);

  model::MemoryEntry* entry_ = nullptr;  // of the element at index_, once resolved
  std::byte* memory_ = nullptr;
  uint64_t begin_ = 0;  // message offset of the element at index_
  uint32_t index_ = 0;
};

}  // namespace farverbs::proto
