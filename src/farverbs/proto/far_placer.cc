#include "farverbs/proto/far_placer.h"

#include <algorithm>
#include <cstring>

#include "farverbs/base/fault_guard.h"

namespace farverbs::proto {

using model::MemoryVerdict;

FarPlaced FarPlacer::place(uint64_t number, FarMessage& message, uint32_t offset,
                           std::span<const std::byte> payload) {
  const auto end = offset + static_cast<uint32_t>(payload.size());
  const bool goes_on = offset <= message.placed.prefix() || offset == message.placed.end();
  copies_.clear();
  MemoryVerdict verdict = MemoryVerdict::kOk;
  message.placed.for_each_missing(offset, end, [&](uint32_t b, uint32_t e) {
    const std::byte* from = payload.data() + (b - offset);
    if (message.kind == wire::OpKind::write) {
      copies_.push_back({reinterpret_cast<std::byte*>(message.memory + b), from, e - b});
      return;
    }
    if (verdict != MemoryVerdict::kOk) return;
    TargetPieces pieces;
    FarReceive& receive = *message.receive;
    verdict = receive.walker.find(receive.wqe.sges(), b, e - b, qp_.memory, qp_.pd,
                                  model::kLocalWrite, pieces);
    for (const std::span<std::byte> piece : pieces.view()) {
      copies_.push_back({piece.data(), from, piece.size()});
      from += piece.size();
    }
  });
  if (verdict != MemoryVerdict::kOk) return FarPlaced::kProtection;
  // A packet that goes on where others ended needs no memory.
  if (!goes_on && !messages_.room(number)) return FarPlaced::kNoRoom;
  const size_t before = message.placed.memory_bytes();
  if (!message.placed.add(offset, end)) return FarPlaced::kNoRoom;
  messages_.account(message, before);
  if (number != messages_.first()) {
    for (const Copy& copy : copies_) {
      const auto to = reinterpret_cast<uintptr_t>(copy.to);
      messages_.note_written(number, to, to + copy.size);
    }
  }
  if (!messages_.last(number)) spare_later_writes(number);
  const bool there = guarded([&] {
    for (const Copy& copy : copies_) std::memcpy(copy.to, copy.from, copy.size);
  });
  if (copies_.capacity() > 1024) copies_ = decltype(copies_)();
  return there                                 ? FarPlaced::kDone
         : message.kind == wire::OpKind::write ? FarPlaced::kFault
                                               : FarPlaced::kProtection;
}

// Takes out of copies_ what messages behind `number` have written.
void FarPlacer::spare_later_writes(uint64_t number) {
  uintptr_t low = UINTPTR_MAX;
  uintptr_t high = 0;
  for (const Copy& copy : copies_) {
    const auto to = reinterpret_cast<uintptr_t>(copy.to);
    low = std::min(low, to);
    high = std::max(high, to + copy.size);
  }
  messages_.for_each_later_writer(number, low, high,
                                  [&](const FarMessage& later) { spare(later); });
}

void FarPlacer::spare(const FarMessage& later) {
  if (later.kind == wire::OpKind::write) {
    spare_run(later, later.memory, 0, later.placed.end());
    return;
  }
  if (later.receive == nullptr) return;
  uint32_t begin = 0;
  for (const model::ScatterGatherElement& sge : later.receive->wqe.sges()) {
    const model::MemoryAccess found = qp_.memory.resolve(sge.lkey, qp_.pd, model::kLocalWrite,
                                                         sge.address, sge.length, false, Qpn{});
    if (found.memory != nullptr) {
      spare_run(later, reinterpret_cast<uintptr_t>(found.memory) - begin, begin,
                begin + sge.length);
    }
    begin += sge.length;
  }
}

// Bytes [begin, end) of `later` lie in memory from `memory` + begin on.
void FarPlacer::spare_run(const FarMessage& later, uintptr_t memory, uint32_t begin, uint32_t end) {
  const size_t copies = copies_.size();  // what is left of one in several parts goes behind them
  for (size_t i = 0; i < copies; ++i) {
    const Copy copy = copies_[i];
    const auto to = reinterpret_cast<uintptr_t>(copy.to);
    const uintptr_t low = std::max(to, memory + begin);
    const uintptr_t high = std::min(to + copy.size, memory + end);
    if (low >= high) continue;
    const auto keep = [&](uintptr_t l, uintptr_t h) {
      if (l < h) copies_.push_back({copy.to + (l - to), copy.from + (l - to), h - l});
    };
    copies_[i].size = 0;
    keep(to, low);
    later.placed.for_each_missing(static_cast<uint32_t>(low - memory),
                                  static_cast<uint32_t>(high - memory),
                                  [&](uint32_t b, uint32_t e) { keep(memory + b, memory + e); });
    keep(high, to + copy.size);
  }
}

}  // namespace farverbs::proto
