#include "tools/cp/plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace farverbs::tools::copy {

Result<PiecePlan> PiecePlan::create(uint64_t size, const std::vector<Extent>& extents) {
  if (size > kMaxFileBytes) return invalid(fmt::format("a file of {} bytes is too large", size));
  if (extents.size() > kMaxExtents) {
    return invalid(fmt::format("{} extents are more than {}", extents.size(), kMaxExtents));
  }
  PiecePlan plan;
  plan.size_ = size;
  uint64_t end = 0;
  for (const Extent& extent : extents) {
    if (extent.length == 0 || extent.offset > size || extent.length > size - extent.offset) {
      return invalid(fmt::format("extent {}+{} lies outside of a file of {} bytes", extent.offset,
                                 extent.length, size));
    }
    if (!plan.runs_.empty() && extent.offset <= end) {
      return invalid(fmt::format("extent {}+{} does not follow the one that ends at {}",
                                 extent.offset, extent.length, end));
    }
    end = extent.offset + extent.length;
    plan.runs_.push_back({extent, plan.count_});
    plan.count_ += (end - 1) / kPieceBytes - extent.offset / kPieceBytes + 1;
    plan.data_bytes_ += extent.length;
  }
  return plan;
}

Piece PiecePlan::at(uint64_t index) const {
  const auto after =
      std::upper_bound(runs_.begin(), runs_.end(), index,
                       [](uint64_t i, const Run& run) { return i < run.first_piece; });
  const Run& run = *(after - 1);
  const uint64_t block = run.extent.offset / kPieceBytes + (index - run.first_piece);
  const uint64_t begin = std::max(block * kPieceBytes, run.extent.offset);
  const uint64_t end = std::min((block + 1) * kPieceBytes, run.extent.offset + run.extent.length);
  return {begin, static_cast<uint32_t>(end - begin)};
}

uint64_t PiecePlan::first_from(uint64_t offset) const {
  const auto run = std::partition_point(runs_.begin(), runs_.end(), [&](const Run& r) {
    return r.extent.offset + r.extent.length <= offset;
  });
  if (run == runs_.end()) return count_;
  if (run->extent.offset >= offset) return run->first_piece;
  return run->first_piece + offset / kPieceBytes - run->extent.offset / kPieceBytes;
}

Extent PiecePlan::window_of(uint64_t index) const {
  const uint64_t offset = at(index).offset / kWindowBytes * kWindowBytes;
  return {offset, std::min(kWindowBytes, size_ - offset)};
}

std::pair<uint64_t, uint64_t> PiecePlan::window_pieces(uint64_t index) const {
  const Extent window = window_of(index);
  return {first_from(window.offset), first_from(window.offset + kWindowBytes)};
}

std::vector<Extent> limit_extents(std::vector<Extent> extents, size_t limit) {
  if (extents.size() <= limit) return extents;
  const auto hole_before = [&](size_t i) {
    return extents[i].offset - extents[i - 1].offset - extents[i - 1].length;
  };
  std::vector<uint64_t> holes;
  for (size_t i = 1; i < extents.size(); ++i) holes.push_back(hole_before(i));
  // The limit - 1 largest holes survive: those above the threshold and, of its equals, the first.
  std::nth_element(holes.begin(), holes.begin() + static_cast<ptrdiff_t>(limit - 1), holes.end(),
                   std::greater<>());
  const uint64_t threshold = holes[limit - 1];
  size_t kept_above = 0;
  for (const uint64_t hole : holes) kept_above += hole > threshold ? 1 : 0;
  size_t equals_left = limit - 1 - kept_above;
  std::vector<Extent> merged = {extents[0]};
  for (size_t i = 1; i < extents.size(); ++i) {
    const uint64_t hole = hole_before(i);
    bool keep = hole > threshold;
    if (hole == threshold && equals_left > 0) {
      keep = true;
      --equals_left;
    }
    if (keep) {
      merged.push_back(extents[i]);
    } else {
      merged.back().length = extents[i].offset + extents[i].length - merged.back().offset;
    }
  }
  return merged;
}

}  // namespace farverbs::tools::copy
