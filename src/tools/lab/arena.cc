#include "tools/lab/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "farverbs/base/check.h"

namespace farverbs::tools::lab {
namespace {

constexpr size_t kAlign = 64;
constexpr size_t kMaxRecord = (sizeof(Super) + kMaxRead + kAlign - 1) / kAlign * kAlign;

}  // namespace

Arena::Arena(size_t bytes) : capacity_(std::max(bytes, 4 * kMaxRecord) / kAlign * kAlign) {
  void* memory = ::mmap(nullptr, capacity_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  FV_CHECK(memory != MAP_FAILED);
  memory_ = static_cast<std::byte*>(memory);
}

Arena::~Arena() { ::munmap(memory_, capacity_); }

Super* Arena::reserve() {
  if (used_ == 0) head_ = tail_ = 0;
  const bool wrapped = used_ > 0 && head_ <= tail_;
  if (!wrapped && head_ + kMaxRecord > capacity_) {
    if (tail_ < kMaxRecord) return nullptr;
    wrap_ = head_;
    head_ = 0;
  } else if (wrapped && head_ + kMaxRecord > tail_) {
    return nullptr;
  }
  return new (memory_ + head_) Super;
}

void Arena::keep(Super* super, uint32_t bytes, uint32_t references) {
  super->references = references;
  super->size = static_cast<uint32_t>((sizeof(Super) + bytes + kAlign - 1) / kAlign * kAlign);
  head_ += super->size;
  ++used_;
}

void Arena::release(Super* super) {
  if (--super->references > 0) return;
  while (used_ > 0 && at(tail_)->references == 0) {
    tail_ += at(tail_)->size;
    --used_;
    if (tail_ == wrap_ && used_ > 0 && head_ <= tail_) tail_ = 0;
  }
}

}  // namespace farverbs::tools::lab
