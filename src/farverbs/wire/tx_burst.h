// TxBurst: a run of datagrams of one flow, end to end in one buffer: all of one size, the last may
// be shorter. That is what one GSO send takes (UDP_SEGMENT, man udp(7)), and what a receiver's GRO
// gives back. The transport appends packets straight into it, so that the copy out of user memory
// is the only one. The index of a packet in its burst is its IPv4 identification on the wire,
// because a sending kernel numbers the segments of a GSO call from 0; the ICRC covers it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
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
  // Room for `size` bytes in front of the burst's only datagram, which so grows by them: for a
  // packet that may share a datagram with the one behind it. False from can_join: none.
  bool can_join(size_t size) const { return count_ == 1 && used_ + size <= storage_.size(); }
  std::byte* join_front(size_t size) {
    FV_CHECK(can_join(size));
    std::memmove(storage_.data() + size, storage_.data(), used_);
    used_ = segment_size_ = used_ + size;
    return storage_.data();
  }
  // How many datagrams of `size` bytes may be appended and leave the burst open.
  size_t room(size_t size) const {
    if (closed_ || (count_ != 0 && size != segment_size_)) return 0;
    return std::min(max_datagrams_ - count_, (storage_.size() - used_) / size);
  }
  // The place of `n` datagrams of `size` bytes, end to end; n is at least 1 and at most room(size).
  std::byte* append_run(size_t size, size_t n) {
    FV_CHECK(n != 0 && n <= room(size));
    segment_size_ = size;
    std::byte* place = storage_.data() + used_;
    used_ += n * size;
    count_ += n;
    return place;
  }
  // Takes the newest `n` datagrams back, of `size` bytes each (their source could not be read).
  // Only right after append or append_run.
  void retract(size_t size, size_t n = 1) {
    FV_CHECK(count_ >= n && used_ >= size * n);
    used_ -= size * n;
    count_ -= n;
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
