// How a file is cut up for its journey. The unit of transfer, of verification and of resuming is a
// piece: at most kPieceBytes, inside one aligned block of that size, data only (a hole is in no
// piece). The unit of mapping is a window: an aligned kWindowBytes of the file. Both ends derive
// the same pieces from the size and the extents that the sender announces.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "farverbs/base/result.h"

namespace farverbs::tools::copy {

// 1 MiB: large enough that its bookkeeping is lost in the noise, small enough that it is still in
// the cache when the receiver verifies it.
inline constexpr uint64_t kPieceBytes = UINT64_C(1) << 20;
inline constexpr uint64_t kWindowBytes = UINT64_C(256) << 20;
inline constexpr uint64_t kMaxFileBytes = UINT64_C(1) << 52;
// A file with more holes than this keeps the largest; the others travel as zeros.
inline constexpr size_t kMaxExtents = 1024;

struct Extent {
  uint64_t offset = 0;
  uint64_t length = 0;
  bool operator==(const Extent&) const = default;
};

struct Piece {
  uint64_t offset = 0;
  uint32_t length = 0;  // 1 .. kPieceBytes
  bool operator==(const Piece&) const = default;
};

class PiecePlan {
 public:
  PiecePlan() = default;
  // `extents`: where data is, ascending, not touching each other's blocks twice, inside `size`.
  // EINVAL names what is wrong: these come from a peer.
  static Result<PiecePlan> create(uint64_t size, const std::vector<Extent>& extents);

  uint64_t size() const { return size_; }
  uint64_t count() const { return count_; }
  uint64_t data_bytes() const { return data_bytes_; }
  Piece at(uint64_t index) const;  // index < count()

  // The pieces [first, second) of the window that holds piece `index`.
  std::pair<uint64_t, uint64_t> window_pieces(uint64_t index) const;
  // The window's place in the file: its offset and length.
  Extent window_of(uint64_t index) const;

 private:
  struct Run {
    Extent extent;
    uint64_t first_piece;
  };
  // The first piece that starts at `offset` or later; `offset` is a multiple of kPieceBytes.
  uint64_t first_from(uint64_t offset) const;

  uint64_t size_ = 0;
  uint64_t count_ = 0;
  uint64_t data_bytes_ = 0;
  std::vector<Run> runs_;
};

// Reduces `extents` to at most `limit` by treating the smallest holes as data.
std::vector<Extent> limit_extents(std::vector<Extent> extents, size_t limit);

}  // namespace farverbs::tools::copy
