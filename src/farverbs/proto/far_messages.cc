#include "farverbs/proto/far_messages.h"

#include <algorithm>
#include <cstring>

namespace farverbs::proto {

FarMessage* FarMessages::add(uint64_t number) {
  if (!room(number)) return nullptr;
  if (number - first_ >= ring_.size()) grow(number);
  std::unique_ptr<FarMessage>& place = ring_[number & mask()];
  if (spare_.empty()) {
    place = std::make_unique<FarMessage>();
  } else {
    place = std::move(spare_.back());
    spare_.pop_back();
  }
  bytes_ += sizeof(FarMessage);
  ++count_;
  end_ = std::max(end_, number + 1);
  return place.get();
}

void FarMessages::pop_front() {
  if (!ring_.empty()) {
    const size_t index = first_ & mask();
    if (ring_[index] != nullptr) forget(ring_[index]);
    hulls_[index] = {};
    if ((first_ + 1) % kBlock == 0) rebuild_block(index / kBlock);
  }
  ++first_;
  end_ = std::max(end_, first_);
  // A quiet time: what a bad moment of the network needed goes back.
  if (count_ == 0 && ring_.size() > kSmallRing) clear();
}

// Without what the messages that have gone wrote; messages of the ring's next round may be in it.
void FarMessages::rebuild_block(size_t block) {
  blocks_[block] = {};
  const size_t stop = std::min((block + 1) * kBlock, hulls_.size());
  for (size_t i = block * kBlock; i < stop; ++i) {
    blocks_[block].extend(hulls_[i].low, hulls_[i].high);
  }
}

void FarMessages::clear() {
  for (std::unique_ptr<FarMessage>& message : ring_) {
    if (message != nullptr) forget(message);
  }
  ring_ = decltype(ring_)();
  spare_ = decltype(spare_)();
  hulls_ = decltype(hulls_)();
  blocks_ = decltype(blocks_)();
  pool_.trim();
  end_ = first_;
}

void FarMessages::forget(std::unique_ptr<FarMessage>& message) {
  release(*message);
  bytes_ -= message->placed.memory_bytes() + sizeof(FarMessage);
  *message = FarMessage{};
  spare_.push_back(std::move(message));
  --count_;
}

void FarMessages::grow(uint64_t number) {
  size_t size = std::max(kSmallRing, ring_.size());
  while (number - first_ >= size) size *= 2;
  std::vector<std::unique_ptr<FarMessage>> ring(size);
  std::vector<Hull> hulls(size);
  std::vector<Hull> blocks((size + kBlock - 1) / kBlock);
  for (uint64_t n = first_; n < first_ + ring_.size(); ++n) {
    ring[n & (size - 1)] = std::move(ring_[n & mask()]);
    const Hull hull = hulls_[n & mask()];
    hulls[n & (size - 1)] = hull;
    blocks[(n & (size - 1)) / kBlock].extend(hull.low, hull.high);
  }
  ring_ = std::move(ring);
  hulls_ = std::move(hulls);
  blocks_ = std::move(blocks);
}

bool FarMessages::hold(uint64_t number, FarMessage& message, uint32_t begin,
                       std::span<const std::byte> payload) {
  if (payload.size() > BlockPool::kMostBytes) return false;
  if (!payload.empty()) {
    const size_t size = BlockPool::block_size(payload.size());
    // The next message's last packet waits for its own others: it can be sent again after them.
    if (bytes_ + size > most_bytes_) return false;
    message.held = pool_.take(payload.size());
    std::memcpy(message.held, payload.data(), payload.size());
    bytes_ += size;
  } else if (!room(number)) {
    return false;
  }
  message.holding = true;
  message.held_begin = begin;
  message.length = begin + static_cast<uint32_t>(payload.size());
  return true;
}

void FarMessages::release(FarMessage& message) {
  if (message.held != nullptr) {
    const size_t payload = message.length - message.held_begin;
    pool_.give(message.held, payload);
    bytes_ -= BlockPool::block_size(payload);
  }
  message.held = nullptr;
  message.holding = false;
}

size_t FarMessages::memory_bytes() const {
  return bytes_ + pool_.free_bytes() + spare_.capacity() * sizeof(spare_[0]) +
         spare_.size() * sizeof(FarMessage) + ring_.capacity() * sizeof(ring_[0]) +
         (hulls_.capacity() + blocks_.capacity()) * sizeof(Hull);
}

}  // namespace farverbs::proto
