// FarProtector: a far sender's forward error correction (docs/far-transport.md section 8): gathers
// packets that follow one another into blocks and makes as many symbols of redundancy for each as
// the measured loss asks for, none if there is none. It has memory for symbols only while it does.
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

// What a repair packet takes more than the packets that it protects: its header, the length in the
// symbol, and padding.
inline constexpr uint32_t kFarRepairOverhead = 32;
// Of a symbol: longer packets are not protected.
inline constexpr size_t kMostFarSymbolBytes = 2'048;

// Symbols that `packets` packets need so that all but one block in ten thousand can be restored
// when packets and symbols are lost at random with this chance.
uint32_t repairs_for(size_t packets, double loss);

class FarProtector {
 public:
  static constexpr size_t kMostBlock = 64;
  static constexpr size_t kMostRepairs = 32;

  // Numbered packets that were acknowledged, and lost ones, restored ones among them.
  void count(uint64_t arrived, uint64_t lost);
  double loss() const;
  // There is loss to protect from.
  bool active() const { return loss() >= kLeastLoss; }

  // A packet that left: BTH to ICRC. Numbers that do not follow one another end the block.
  void add(PacketNumber number, std::span<const std::byte> packet);
  // The block ends here: its repairs may be sent.
  void close();
  bool open() const { return count_ > 0; }
  // Repairs that wait to be sent, oldest block first. When too many blocks wait, the oldest ones'
  // are given up.
  bool pending() const { return waiting_ > 0; }
  struct Repair {
    wire::FarRepair header;
    std::span<const std::byte> symbol;
  };
  Repair front() const;
  void pop();

  // Gives the symbols' memory back, if none is in use.
  void release() {
    if (open() || pending()) return;
    for (auto& bank : banks_) bank.reset();
  }
  size_t memory_bytes() const { return kBanks * symbols_bytes() + sizeof *this; }

 private:
  static constexpr size_t kBanks = 4;
  size_t oldest() const { return (bank_ + kBanks - waiting_) % kBanks; }
  static constexpr double kLeastLoss = 0.0005;
  // Counts are halved when there are so many, so that they follow the path.
  static constexpr uint64_t kRemembered = 4'096;
  static constexpr uint64_t kBelievedAtOnce = 256;

  void begin(PacketNumber number);
  size_t symbols_bytes() const {
    return banks_[0] != nullptr ? kMostRepairs * kMostFarSymbolBytes : 0;
  }
  std::byte* symbol(size_t bank, size_t index) const {
    return banks_[bank].get() + index * kMostFarSymbolBytes;
  }

  uint64_t arrived_ = 0;
  uint64_t lost_ = 0;
  // The block.
  PacketNumber first_ = 0;
  size_t count_ = 0;
  size_t planned_ = 0;  // symbols that are made
  size_t longest_ = 0;  // with its length
  size_t bank_ = 0;     // where they are
  // Blocks that ended, in the banks before bank_.
  struct Ended {
    wire::FarRepair header;  // index: of the next symbol to be sent
    size_t bytes = 0;
  };
  std::array<Ended, kBanks> ended_;
  size_t waiting_ = 0;
  std::unique_ptr<std::byte[]> banks_[kBanks];
};

}  // namespace farverbs::proto
