// Arena: the bytes of packets in flight. Packets are read straight into a ring of memory and leave
// it roughly in the order they came; one that stays longer holds back those behind it. When nothing
// is in flight the ring starts over, so that short paths stay in cache. Nothing is allocated per
// packet.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tools/lab/packet.h"

namespace farverbs::tools::lab {

// A packet as read, followed by its bytes in the same memory.
struct Super {
  Packet packet;
  uint32_t references = 0;  // wire packets that are still to leave
  uint32_t size = 0;        // of this record in the ring
  std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
};

class Arena {
 public:
  // At least `bytes` of room and no less than four of the largest packets; the memory is touched
  // only as it is used. Ends the process if the kernel gives no address space.
  explicit Arena(size_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Room for a packet of up to kMaxRead bytes at data(), or null when the ring is full. The record
  // is forgotten unless keep() follows.
  Super* reserve();
  // Keeps the last reserved record with `bytes` of data until it has no references.
  void keep(Super* super, uint32_t bytes, uint32_t references);
  void release(Super* super);

  bool empty() const { return used_ == 0; }
  size_t capacity() const { return capacity_; }

 private:
  Super* at(size_t offset) { return reinterpret_cast<Super*>(memory_ + offset); }

  std::byte* memory_ = nullptr;
  size_t capacity_ = 0;
  size_t head_ = 0;  // where the next record goes
  size_t tail_ = 0;  // the oldest record
  size_t wrap_ = 0;  // where the records before the ring's start end, when head_ is behind tail_
  size_t used_ = 0;  // records
};

}  // namespace farverbs::tools::lab
