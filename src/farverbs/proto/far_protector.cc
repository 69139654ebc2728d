#include "farverbs/proto/far_protector.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "farverbs/base/byte_order.h"
#include "farverbs/base/check.h"
#include "farverbs/wire/erasure.h"
#include "farverbs/wire/headers.h"

namespace farverbs::proto {
namespace {

constexpr size_t kLengthBytes = 2;
constexpr double kMayFail = 1e-4;
// Losses come in clusters more often than at random.
constexpr double kMargin = 1.25;
constexpr double kMostLoss = 0.3;

}  // namespace

uint32_t repairs_for(size_t packets, double loss) {
  const double p = std::min(loss * kMargin, kMostLoss);
  if (p <= 0 || packets == 0) return 0;
  for (uint32_t repairs = 1; repairs < FarProtector::kMostRepairs; ++repairs) {
    // Chance that more are lost than there are symbols.
    const auto all = static_cast<double>(packets + repairs);
    double exactly = 1;
    for (size_t i = 0; i < packets + repairs; ++i) exactly *= 1 - p;
    double at_most = exactly;
    for (uint32_t k = 1; k <= repairs; ++k) {
      exactly *= (all - k + 1) / k * p / (1 - p);
      at_most += exactly;
    }
    if (1 - at_most <= kMayFail) return repairs;
  }
  return FarProtector::kMostRepairs;
}

void FarProtector::count(uint64_t arrived, uint64_t lost) {
  arrived_ += arrived;
  lost_ += lost;
  if (arrived_ + lost_ < kRemembered) return;
  arrived_ /= 2;
  lost_ /= 2;
}

double FarProtector::loss() const {
  return static_cast<double>(lost_) /
         static_cast<double>(std::max(arrived_ + lost_, kBelievedAtOnce));
}

void FarProtector::begin(PacketNumber number) {
  if (banks_[0] == nullptr) {
    for (auto& bank : banks_) {
      bank = std::make_unique<std::byte[]>(kMostRepairs * kMostFarSymbolBytes);
    }
  }
  first_ = number;
  longest_ = 0;
  planned_ = repairs_for(kMostBlock, loss());
  std::memset(symbol(bank_, 0), 0, planned_ * kMostFarSymbolBytes);
}

void FarProtector::add(PacketNumber number, std::span<const std::byte> packet) {
  const size_t size =
      packet.size() - wire::kIcrcSize - wire::parse_header<wire::Bth>(packet.data()).pad;
  FV_CHECK(size + kLengthBytes <= kMostFarSymbolBytes);
  if (count_ > 0 && number != first_ + count_) close();
  if (count_ == 0) begin(number);
  std::array<std::byte, kMostFarSymbolBytes> piece;
  store_be(piece.data(), static_cast<uint16_t>(size));
  std::memcpy(piece.data() + kLengthBytes, packet.data(), size);
  std::array<std::byte*, kMostRepairs> symbols;
  for (size_t i = 0; i < planned_; ++i) symbols[i] = symbol(bank_, i);
  wire::erasure_add(count_, std::span(piece).first(size + kLengthBytes),
                    std::span(symbols).first(planned_));
  longest_ = std::max(longest_, size + kLengthBytes);
  if (++count_ == kMostBlock) close();
}

void FarProtector::close() {
  if (count_ == 0) return;
  Ended& ended = ended_[bank_];
  ended.header = {};
  ended.header.first_low = static_cast<uint32_t>(first_);
  ended.header.count = static_cast<uint8_t>(count_);
  ended.header.repairs =
      static_cast<uint8_t>(std::min<size_t>(repairs_for(count_, loss()), planned_));
  ended.bytes = longest_;
  count_ = 0;
  if (ended.header.repairs == 0) return;
  bank_ = (bank_ + 1) % kBanks;
  waiting_ = std::min(waiting_ + 1, kBanks - 1);
}

FarProtector::Repair FarProtector::front() const {
  FV_CHECK(pending());
  const Ended& ended = ended_[oldest()];
  return {ended.header, {symbol(oldest(), ended.header.index), ended.bytes}};
}

void FarProtector::pop() {
  Ended& ended = ended_[oldest()];
  if (++ended.header.index == ended.header.repairs) --waiting_;
}

}  // namespace farverbs::proto
