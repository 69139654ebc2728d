// BlockPool: heap blocks for packets that must wait, of a few sizes, used again and again. It gives
// its free blocks back to the heap when told that a quiet time has come (trim).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace farverbs::proto {

class BlockPool {
 public:
  static constexpr size_t kMostBytes = 65'536;

  BlockPool() = default;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool() { trim(); }  // blocks in use must have come back

  // What a block for `bytes` takes: 64, 96, 128, 192, 256 ... 65,536. 1 <= bytes <= kMostBytes.
  static size_t block_size(size_t bytes) { return size_of(class_of(bytes)); }

  std::byte* take(size_t bytes) {
    const size_t index = class_of(bytes);
    Free*& list = free_[index];
    if (list == nullptr) return new std::byte[size_of(index)];
    Free* const block = list;
    list = block->next;
    free_bytes_ -= size_of(index);
    return reinterpret_cast<std::byte*>(block);
  }
  void give(std::byte* block, size_t bytes) {
    const size_t index = class_of(bytes);
    free_[index] = new (block) Free{free_[index]};
    free_bytes_ += size_of(index);
  }
  void trim() {
    for (Free*& list : free_) {
      while (list != nullptr) {
        Free* const next = list->next;
        delete[] reinterpret_cast<std::byte*>(list);
        list = next;
      }
    }
    free_bytes_ = 0;
  }
  size_t free_bytes() const { return free_bytes_; }

 private:
  struct Free {
    Free* next;
  };
  static constexpr size_t kClasses = 21;
  static constexpr size_t size_of(size_t index) {
    return (index % 2 == 0 ? size_t{64} : size_t{96}) << (index / 2);
  }
  static size_t class_of(size_t bytes) {
    if (bytes <= 64) return 0;
    const size_t below = size_t{1}
                         << (std::bit_width(bytes - 1) - 1);  // below < bytes <= 2 * below
    const size_t index = 2 * (static_cast<size_t>(std::bit_width(below)) - 7);
    return bytes <= below + below / 2 ? index + 1 : index + 2;
  }

  std::array<Free*, kClasses> free_{};
  size_t free_bytes_ = 0;
};

}  // namespace farverbs::proto
