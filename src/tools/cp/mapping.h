// Mapping: part of a file as memory, shared with the page cache, so that what the transport reads
// or writes there is the file.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "farverbs/base/result.h"

namespace farverbs::tools::copy {

class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), length_(std::exchange(other.length_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    if (this != &other) {
      unmap();
      memory_ = std::exchange(other.memory_, nullptr);
      length_ = std::exchange(other.length_, 0);
    }
    return *this;
  }
  ~Mapping() { unmap(); }

  // `offset` is a multiple of the page size, `length` > 0.
  static Result<Mapping> map(int fd, uint64_t offset, uint64_t length, bool writable) {
    void* memory = ::mmap(nullptr, length, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                          MAP_SHARED, fd, static_cast<off_t>(offset));
    if (memory == MAP_FAILED) return Error::from_errno("mapping a file into memory");
    Mapping mapping;
    mapping.memory_ = static_cast<std::byte*>(memory);
    mapping.length_ = length;
    return mapping;
  }

  std::byte* data() const { return memory_; }
  uint64_t length() const { return length_; }
  std::span<std::byte> bytes() const { return {memory_, length_}; }

  // Best effort, on whole pages that contain the range: `advice` of madvise(2).
  void advise(uint64_t offset, uint64_t length, int advice) const {
    constexpr uint64_t kPage = 4096;
    if (offset >= length_) return;
    const uint64_t begin = offset / kPage * kPage;
    const uint64_t end = length < length_ - offset ? offset + length : length_;
    ::madvise(memory_ + begin, end - begin, advice);
  }

 private:
  void unmap() {
    if (memory_ != nullptr) ::munmap(memory_, length_);
    memory_ = nullptr;
  }
  std::byte* memory_ = nullptr;
  uint64_t length_ = 0;
};

}  // namespace farverbs::tools::copy
