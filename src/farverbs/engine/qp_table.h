// QpTable: from the low 16 bits of a QPN to its QP in one probe. Numbers are random, as D4 of
// ARCHITECTURE.md asks; a number is drawn until its place is free, and growing to more bits never
// makes two numbers meet. Owned by one loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "farverbs/base/check.h"
#include "farverbs/base/ids.h"
#include "farverbs/base/prng.h"

namespace farverbs::engine {

template <typename T>
class QpTable {
 public:
  static constexpr uint32_t kMaxBits = 16;
  // Leaves QPN 0 and 1 of slot 0 alone (management) and the multicast number.
  static constexpr size_t kMaxQps = 65'000;

  QpTable(uint8_t slot, Entropy& entropy) : slot_(slot), entropy_(entropy), entries_(1u << bits_) {}

  T* find(Qpn qpn) const {
    const Entry& e = entries_[qpn.value() & ((1u << bits_) - 1)];
    return e.qpn == qpn.value() ? e.value : nullptr;
  }
  bool full() const { return size_ >= kMaxQps; }
  size_t size() const { return size_; }

  // A free number; only when not full(). It is taken by insert().
  Qpn draw() {
    while (size_ * 2 >= entries_.size() && bits_ < kMaxBits) grow();
    for (;;) {
      const auto low = static_cast<uint32_t>(entropy_.next() & 0xFFFF);
      const Qpn qpn((static_cast<uint32_t>(slot_) << 16) | low);
      if (qpn.value() < 2 || qpn == kMulticastQpn) continue;
      if (entries_[low & ((1u << bits_) - 1)].value == nullptr) return qpn;
    }
  }
  void insert(Qpn qpn, T* value) {
    Entry& e = entries_[qpn.value() & ((1u << bits_) - 1)];
    FV_CHECK(e.value == nullptr);
    e = {qpn.value(), value};
    ++size_;
  }
  void erase(Qpn qpn) {
    Entry& e = entries_[qpn.value() & ((1u << bits_) - 1)];
    FV_CHECK(e.qpn == qpn.value() && e.value != nullptr);
    e = {};
    --size_;
  }
  template <typename F>
  void for_each(F&& f) const {
    for (const Entry& e : entries_) {
      if (e.value != nullptr) f(*e.value);
    }
  }

 private:
  struct Entry {
    uint32_t qpn = 0;
    T* value = nullptr;
  };
  void grow() {
    std::vector<Entry> old(1u << ++bits_);
    old.swap(entries_);
    for (const Entry& e : old) {
      if (e.value != nullptr) entries_[e.qpn & ((1u << bits_) - 1)] = e;
    }
  }
  uint8_t slot_;
  Entropy& entropy_;
  uint32_t bits_ = 4;
  size_t size_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace farverbs::engine
