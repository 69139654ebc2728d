// FarRestorer: a far receiver's forward error correction (docs/far-transport.md section 8): keeps
// copies of the newest protected packets and the symbols of a few blocks, and restores what is
// missing of a block as soon as it can. Its memory has a limit, whatever the peer sends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "farverbs/base/ids.h"
#include "farverbs/wire/far_headers.h"

namespace farverbs::proto {

class FarRestorer {
 public:
  static constexpr size_t kPackets = 256;
  static constexpr size_t kBlocks = 4;
  static constexpr size_t kMostSymbols = 32;  // of a block

  // A protected packet that proved whole: BTH to ICRC.
  void keep(PacketNumber number, std::span<const std::byte> packet);
  // A repair packet that proved whole, with this number. False: it makes no sense.
  bool on_repair(PacketNumber number, const wire::FarRepair& header,
                 std::span<const std::byte> symbol);
  // f(number, packet) for each packet that can be restored by now, from BTH to before the ICRC,
  // with padding and four bytes of room for that. The packets are the peer's word: to be parsed
  // like any.
  template <typename F>
  void restore(F&& f) {
    work_ = false;
    for (Block& block : blocks_) {
      if (!block.fresh) continue;
      block.fresh = false;
      const size_t n = solve(block);
      for (size_t i = 0; i < n; ++i) {
        const std::span<const std::byte> packet = restored(restored_[i]);
        if (!packet.empty()) f(restored_[i], packet);
      }
    }
  }
  bool has_work() const { return work_; }
  size_t memory_bytes() const;

 private:
  // length, packet, zeros: as it enters a symbol.
  struct Slot {
    PacketNumber number = 0;
    uint16_t bytes = 0;  // with the length's; 0: empty
  };
  struct Block {
    PacketNumber first = 0;
    uint32_t count = 0;  // 0: none
    uint32_t symbol_bytes = 0;
    uint32_t symbols = 0;
    bool fresh = false;  // something has come since it was looked at
    std::array<uint8_t, kMostSymbols> indexes;
    std::unique_ptr<std::byte[]> bytes;
  };

  std::byte* place(PacketNumber number) { return packets_.get() + slot_of(number) * kStride; }
  static size_t slot_of(PacketNumber number) { return number % kPackets; }
  bool has(PacketNumber number) const {
    const Slot& slot = slots_[slot_of(number)];
    return slot.bytes != 0 && slot.number == number;
  }
  size_t missing(const Block& block) const;
  void note(PacketNumber number);
  Block* block_for(PacketNumber first, uint32_t count, size_t symbol_bytes);
  size_t solve(Block& block);
  std::span<const std::byte> restored(PacketNumber number);

  static constexpr size_t kStride = 2'048;
  std::unique_ptr<std::byte[]> packets_;
  std::array<Slot, kPackets> slots_;
  std::array<Block, kBlocks> blocks_;
  size_t next_block_ = 0;
  bool work_ = false;
  std::array<PacketNumber, kMostSymbols> restored_;
  std::vector<uint8_t> scratch_;
};

}  // namespace farverbs::proto
