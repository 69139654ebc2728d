#include "farverbs/proto/far_restorer.h"

#include <algorithm>
#include <cstring>

#include "farverbs/base/byte_order.h"
#include "farverbs/wire/erasure.h"
#include "farverbs/wire/roce.h"

namespace farverbs::proto {
namespace {

constexpr size_t kLengthBytes = 2;
constexpr size_t kLeastPacket = wire::Bth::kSize + wire::FarBase::kSize;

}  // namespace

size_t FarRestorer::memory_bytes() const {
  size_t bytes =
      sizeof *this + (packets_ != nullptr ? kPackets * kStride : 0) + scratch_.capacity();
  for (const Block& block : blocks_) {
    if (block.bytes != nullptr) bytes += kMostSymbols * kStride;
  }
  return bytes;
}

void FarRestorer::note(PacketNumber number) {
  for (Block& block : blocks_) {
    if (number - block.first < block.count) block.fresh = work_ = true;
  }
}

void FarRestorer::keep(PacketNumber number, std::span<const std::byte> packet) {
  const uint8_t pad = wire::parse_header<wire::Bth>(packet.data()).pad;
  const size_t size = packet.size() - wire::kIcrcSize - pad;
  if (size + kLengthBytes > kStride) return;
  if (packets_ == nullptr) packets_ = std::make_unique<std::byte[]>(kPackets * kStride);
  Slot& slot = slots_[slot_of(number)];
  if (slot.bytes != 0 && slot.number >= number) return;
  slot = {number, static_cast<uint16_t>(size + kLengthBytes)};
  std::byte* const at = place(number);
  store_be(at, static_cast<uint16_t>(size));
  std::memcpy(at + kLengthBytes, packet.data(), size);
  std::memset(at + slot.bytes, 0, kStride - slot.bytes);
  note(number);
}

size_t FarRestorer::missing(const Block& block) const {
  size_t n = 0;
  for (uint32_t i = 0; i < block.count; ++i) n += !has(block.first + i);
  return n;
}

FarRestorer::Block* FarRestorer::block_for(PacketNumber first, uint32_t count,
                                           size_t symbol_bytes) {
  for (Block& block : blocks_) {
    if (block.first != first || block.count == 0) continue;
    return block.count == count && block.symbol_bytes == symbol_bytes ? &block : nullptr;
  }
  Block& block = blocks_[next_block_++ % kBlocks];
  if (block.bytes == nullptr) block.bytes = std::make_unique<std::byte[]>(kMostSymbols * kStride);
  block.first = first;
  block.count = count;
  block.symbol_bytes = static_cast<uint32_t>(symbol_bytes);
  block.symbols = 0;
  return &block;
}

bool FarRestorer::on_repair(PacketNumber number, const wire::FarRepair& header,
                            std::span<const std::byte> symbol) {
  const PacketNumber first =
      number + static_cast<uint64_t>(static_cast<int64_t>(
                   static_cast<int32_t>(header.first_low - static_cast<uint32_t>(number))));
  const bool sound = header.count > 0 && header.count <= wire::kMostErasureData &&
                     header.index < header.repairs && header.repairs <= kMostSymbols &&
                     symbol.size() >= kLengthBytes + kLeastPacket && symbol.size() <= kStride &&
                     first + header.count <= number && number - first < 4 * kPackets;
  if (!sound) return false;
  Block probe;
  probe.first = first;
  probe.count = header.count;
  if (missing(probe) == 0) return true;
  if (packets_ == nullptr) packets_ = std::make_unique<std::byte[]>(kPackets * kStride);
  Block* const block = block_for(first, header.count, symbol.size());
  if (block == nullptr) return false;
  const auto indexes = std::span(block->indexes).first(block->symbols);
  if (block->symbols == kMostSymbols ||
      std::find(indexes.begin(), indexes.end(), header.index) != indexes.end()) {
    return true;
  }
  std::memcpy(block->bytes.get() + block->symbols * kStride, symbol.data(), symbol.size());
  block->indexes[block->symbols++] = header.index;
  block->fresh = work_ = true;
  return true;
}

// How many packets were restored; their numbers are in restored_.
size_t FarRestorer::solve(Block& block) {
  const size_t n = missing(block);
  if (n > block.symbols) return 0;
  const uint32_t count = std::exchange(block.count, 0);  // one way or the other
  std::array<wire::ErasurePiece, wire::kMostErasureData> known;
  std::array<wire::ErasurePiece, kMostSymbols> lost;
  std::array<wire::ErasurePiece, kMostSymbols> symbols;
  size_t known_count = 0;
  size_t lost_count = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const PacketNumber number = block.first + i;
    const Slot& slot = slots_[slot_of(number)];
    if (has(number)) {
      if (slot.bytes > block.symbol_bytes) return 0;
      known[known_count++] = {i, place(number)};
    } else {
      // Its place is a newer one's by now: the block is too old.
      if (slot.bytes != 0 && slot.number > number) return 0;
      restored_[lost_count] = number;
      lost[lost_count++] = {i, place(number)};
    }
  }
  for (size_t i = 0; i < n; ++i) symbols[i] = {block.indexes[i], block.bytes.get() + i * kStride};
  if (!wire::erasure_restore(block.symbol_bytes, std::span(known).first(known_count),
                             std::span(symbols).first(n), std::span(lost).first(n), scratch_)) {
    return 0;
  }
  for (size_t i = 0; i < n; ++i) {
    std::byte* const at = place(restored_[i]);
    const size_t size = load_be<uint16_t>(at);
    std::memset(at + block.symbol_bytes, 0, kStride - block.symbol_bytes);
    const bool sound = size >= kLeastPacket && size + kLengthBytes <= block.symbol_bytes;
    slots_[slot_of(restored_[i])] = {restored_[i],
                                     static_cast<uint16_t>(sound ? size + kLengthBytes : 0)};
  }
  return n;
}

std::span<const std::byte> FarRestorer::restored(PacketNumber number) {
  if (!has(number)) return {};
  const size_t size = slots_[slot_of(number)].bytes - kLengthBytes;
  const size_t whole = size + wire::pad_for(size) + wire::kIcrcSize;
  if (whole + kLengthBytes > kStride) return {};
  return {place(number) + kLengthBytes, whole};
}

}  // namespace farverbs::proto
