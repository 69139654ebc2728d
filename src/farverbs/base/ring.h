// Ring: a queue in one circular block that grows by doubling. Unlike std::deque, which takes more
// than half a kilobyte before the first element, it takes nothing while it was never used, and
// gives back all when told that a quiet time has come (release).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace farverbs {

// T is default constructible and movable; at most 2^31 of them. kFirst, a power of two: room that
// the first element takes.
template <typename T, uint32_t kFirst = 4>
class Ring {
  static_assert(std::has_single_bit(kFirst));

 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  size_t memory_bytes() const { return capacity_ * sizeof(T); }  // of heap

  T& operator[](size_t i) { return slots_[(head_ + i) & (capacity_ - 1)]; }
  const T& operator[](size_t i) const { return slots_[(head_ + i) & (capacity_ - 1)]; }
  T& front() { return slots_[head_]; }
  const T& front() const { return slots_[head_]; }
  T& back() { return (*this)[size_ - 1]; }
  const T& back() const { return (*this)[size_ - 1]; }

  void push_back(T value) {
    if (size_ == capacity_) grow();
    (*this)[size_++] = std::move(value);
  }
  void pop_front() {
    forget(slots_[head_]);
    head_ = (head_ + 1) & (capacity_ - 1);
    --size_;
  }
  // In front of element `i`, or at the end.
  void insert(size_t i, T value) {
    push_back(std::move(value));
    for (size_t at = size_ - 1; at > i; --at) std::swap((*this)[at], (*this)[at - 1]);
  }
  void erase(size_t i) {
    for (size_t at = i + 1; at < size_; ++at) (*this)[at - 1] = std::move((*this)[at]);
    forget((*this)[--size_]);
  }
  template <typename Predicate>
  void erase_if(Predicate&& predicate) {
    size_t kept = 0;
    for (size_t i = 0; i < size_; ++i) {
      if (predicate(std::as_const((*this)[i]))) continue;
      if (kept != i) (*this)[kept] = std::move((*this)[i]);
      ++kept;
    }
    while (size_ > kept) forget((*this)[--size_]);
  }
  // The first element for which `predicate` does not hold, where all that hold come first.
  template <typename Predicate>
  size_t partition_point(Predicate&& predicate) const {
    size_t low = 0;
    for (size_t high = size_; low < high;) {
      const size_t middle = (low + high) / 2;
      if (predicate((*this)[middle])) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
  // The memory stays.
  void clear() {
    for (; size_ > 0; --size_) forget(back());
    head_ = 0;
  }
  // ... and here it goes.
  void release() { *this = Ring(); }

  Ring() = default;
  Ring(Ring&& other) noexcept { *this = std::move(other); }
  Ring& operator=(Ring&& other) noexcept {
    slots_ = std::move(other.slots_);
    head_ = std::exchange(other.head_, 0);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, 0);
    return *this;
  }

  template <typename R, typename E>
  class Iterator {
   public:
    Iterator(R* ring, size_t i) : ring_(ring), i_(i) {}
    E& operator*() const { return (*ring_)[i_]; }
    Iterator& operator++() {
      ++i_;
      return *this;
    }
    bool operator==(const Iterator&) const = default;

   private:
    R* ring_;
    size_t i_;
  };
  auto begin() { return Iterator<Ring, T>(this, 0); }
  auto end() { return Iterator<Ring, T>(this, size_); }
  auto begin() const { return Iterator<const Ring, const T>(this, 0); }
  auto end() const { return Iterator<const Ring, const T>(this, size_); }

 private:
  // What an element owns goes with it.
  static void forget(T& element) {
    if constexpr (!std::is_trivially_destructible_v<T>) element = T();
  }
  void grow() {
    const uint32_t capacity = std::max(kFirst, 2 * capacity_);
    auto slots = std::make_unique<T[]>(capacity);
    for (size_t i = 0; i < size_; ++i) slots[i] = std::move((*this)[i]);
    slots_ = std::move(slots);
    head_ = 0;
    capacity_ = capacity;
  }

  std::unique_ptr<T[]> slots_;
  uint32_t head_ = 0;
  uint32_t size_ = 0;
  uint32_t capacity_ = 0;
};

}  // namespace farverbs
