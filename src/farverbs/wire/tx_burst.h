// TxBurst: a run of datagrams of one flow, end to end in one buffer: all of one size, the last may
// be shorter. That is what one GSO send takes (UDP_SEGMENT, man udp(7)), and what a receiver's GRO
// gives back. The transport appends packets straight into it, so that the copy out of user memory
// is the only one. The index of a packet in its burst is its IPv4 identification on the wire,
// because a sending kernel numbers the segments of a GSO call from 0; the ICRC covers it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "farverbs/base/check.h"

namespace farverbs::wire {

class TxBurst {
 public:
  // Takes the memory to write to (not owned) and the most datagrams a send may have.
  void reset(std::span<std::byte> storage, size_t max_datagrams) {
    storage_ = storage;
    max_datagrams_ = max_datagrams;
    clear();
  }
  void clear() {
    used_ = segment_size_ = count_ = 0;
    closed_ = false;
  }

  // True if a datagram of `size` bytes (UDP payload) may be appended.
  bool fits(size_t size) const {
    return !closed_ && count_ < max_datagrams_ && used_ + size <= storage_.size() &&
           (count_ == 0 || size <= segment_size_);
  }
  // The place of a new datagram; only when fits(size). The caller fills all of it.
  std::byte* append(size_t size) {
    FV_CHECK(fits(size));
    if (count_ == 0) segment_size_ = size;
    if (size < segment_size_) closed_ = true;
    std::byte* place = storage_.data() + used_;
    used_ += size;
    ++count_;
    return place;
  }
  // Takes the newest datagram back (its source could not be read). Only right after append.
  void retract(size_t size) {
    FV_CHECK(count_ > 0 && used_ >= size);
    used_ -= size;
    --count_;
    closed_ = false;
    if (count_ == 0) segment_size_ = 0;
  }
  // The IPv4 identification that the next appended datagram will have.
  uint16_t next_identification() const { return static_cast<uint16_t>(count_); }

  bool empty() const { return count_ == 0; }
  size_t count() const { return count_; }
  size_t segment_size() const { return segment_size_; }
  std::span<const std::byte> bytes() const { return storage_.first(used_); }

 private:
  std::span<std::byte> storage_;
  size_t max_datagrams_ = 0;
  size_t used_ = 0;
  size_t segment_size_ = 0;
  size_t count_ = 0;
  bool closed_ = false;  // a shorter datagram ended it
};

}  // namespace farverbs::wire
