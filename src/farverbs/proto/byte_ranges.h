// ByteRanges: which bytes of a message have arrived when packets come in any order: those from 0 on
// without a gap, and a sorted list of later pieces. In order it is one number; a piece more than
// the limit is refused, so that a peer that sends every second byte costs bounded memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace farverbs::proto {

class ByteRanges {
 public:
  struct Piece {
    uint32_t begin;
    uint32_t end;
  };
  static constexpr size_t kMostPieces = 16'384;

  // Marks [begin, end). False, and nothing changed, if there would be more than `most` pieces.
  bool add(uint32_t begin, uint32_t end, size_t most = kMostPieces) {
    if (begin >= end) return true;
    if (begin <= prefix_) {
      if (end > prefix_) {
        prefix_ = end;
        if (count() != 0) absorb();
      }
      return true;
    }
    if (count() != 0 && pieces_.back().end == begin) {  // goes on where the last packet ended
      pieces_.back().end = end;
      return true;
    }
    return insert(begin, end, most);
  }

  bool contains(uint32_t begin, uint32_t end) const {
    if (begin >= end || end <= prefix_) return true;
    const auto piece = first_ending_after(std::max(begin, prefix_));
    return begin >= prefix_ && piece != pieces_.end() && piece->begin <= begin && end <= piece->end;
  }
  // None of [begin, end) has arrived.
  bool lacks(uint32_t begin, uint32_t end) const {
    if (begin >= end) return true;
    if (begin < prefix_) return false;
    if (begin >= this->end()) return true;
    const auto piece = first_ending_after(begin);
    return piece == pieces_.end() || piece->begin >= end;
  }
  // Bytes from 0 on without a gap.
  uint32_t prefix() const { return prefix_; }
  // Behind the last byte that has arrived.
  uint32_t end() const { return count() == 0 ? prefix_ : pieces_.back().end; }
  size_t count() const { return pieces_.size() - first_; }  // of pieces behind the prefix
  bool empty() const { return end() == 0; }

  // f(begin, end) for each longest part of [begin, end) that has not arrived, in order.
  template <typename F>
  void for_each_missing(uint32_t begin, uint32_t end, F&& f) const {
    begin = std::max(begin, prefix_);
    for (auto piece = first_ending_after(begin); begin < end; ++piece) {
      const bool none = piece == pieces_.end();
      const uint32_t stop = none ? end : std::min(end, piece->begin);
      if (begin < stop) f(begin, stop);
      if (none) return;
      begin = std::max(begin, piece->end);
    }
  }

  void clear() {
    prefix_ = 0;
    first_ = 0;
    pieces_ = std::vector<Piece>();
  }
  size_t memory_bytes() const { return pieces_.capacity() * sizeof(Piece); }  // of heap

 private:
  using Iterator = std::vector<Piece>::const_iterator;
  Iterator first_ending_after(uint32_t offset) const {
    return std::partition_point(pieces_.begin() + first_, pieces_.end(),
                                [=](const Piece& piece) { return piece.end <= offset; });
  }

  // The prefix has grown: pieces that touch it belong to it. They stay in the vector's front for a
  // while, since holes are filled from the lowest on and moving the rest each time would be square.
  void absorb() {
    while (first_ < pieces_.size() && pieces_[first_].begin <= prefix_) {
      prefix_ = std::max(prefix_, pieces_[first_].end);
      ++first_;
    }
    if (first_ == pieces_.size()) {
      pieces_.clear();
      first_ = 0;
    } else {
      compact();
    }
  }
  void compact() {
    if (first_ < 64 || first_ < pieces_.size() / 2) return;
    pieces_.erase(pieces_.begin(), pieces_.begin() + first_);
    first_ = 0;
  }
  bool insert(uint32_t begin, uint32_t end, size_t most) {
    // Pieces from `low` to before `high` touch [begin, end).
    auto low = std::partition_point(pieces_.begin() + first_, pieces_.end(),
                                    [=](const Piece& piece) { return piece.end < begin; });
    auto high = std::partition_point(low, pieces_.end(),
                                     [=](const Piece& piece) { return piece.begin <= end; });
    if (low != high) {
      low->begin = std::min(low->begin, begin);
      low->end = std::max((high - 1)->end, end);
      pieces_.erase(low + 1, high);
      return true;
    }
    if (count() >= most) return false;
    pieces_.insert(low, Piece{begin, end});
    return true;
  }

  uint32_t prefix_ = 0;
  uint32_t first_ = 0;  // pieces_ before it have become part of the prefix
  std::vector<Piece> pieces_;
};

}  // namespace farverbs::proto
