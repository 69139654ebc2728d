#include "farverbs/proto/far_messages.h"

#include <algorithm>
#include <cstring>

namespace farverbs::proto {

FarMessage* FarMessages::add(uint64_t number) {
  if (!room(number)) return nullptr;
  if (number - first_ >= room_ahead()) grow(number);
  std::unique_ptr<FarMessage>& message = place(number);
  if (store_->spare.empty()) {
    message = std::make_unique<FarMessage>();
  } else {
    message = std::move(store_->spare.back());
    store_->spare.pop_back();
  }
  bytes_ += sizeof(FarMessage);
  ++count_;
  end_ = std::max(end_, number + 1);
  return message.get();
}

void FarMessages::pop_front() {
  if (store_ != nullptr) {
    const size_t index = first_ & mask();
    if (place(first_) != nullptr) forget(place(first_));
    store_->hulls[index] = {};
    if ((first_ + 1) % kBlock == 0) rebuild_block(index / kBlock);
  }
  ++first_;
  end_ = std::max(end_, first_);
  // A quiet time: what a bad moment of the network needed goes back.
  if (count_ == 0 && room_ahead() > kSmallRing) clear();
}

// Without what the messages that have gone wrote; messages of the ring's next round may be in it.
void FarMessages::rebuild_block(size_t block) {
  Hull& whole = store_->blocks[block] = {};
  const size_t stop = std::min((block + 1) * kBlock, store_->hulls.size());
  for (size_t i = block * kBlock; i < stop; ++i) {
    whole.extend(store_->hulls[i].low, store_->hulls[i].high);
  }
}

void FarMessages::clear() {
  end_ = first_;
  if (store_ == nullptr) return;
  for (std::unique_ptr<FarMessage>& message : store_->ring) {
    if (message != nullptr) forget(message);
  }
  store_.reset();
}

void FarMessages::forget(std::unique_ptr<FarMessage>& message) {
  release(*message);
  bytes_ -= message->placed.memory_bytes() + sizeof(FarMessage);
  *message = FarMessage{};
  store_->spare.push_back(std::move(message));
  --count_;
}

void FarMessages::grow(uint64_t number) {
  if (store_ == nullptr) store_ = std::make_unique<Store>();
  size_t size = std::max(kSmallRing, store_->ring.size());
  while (number - first_ >= size) size *= 2;
  std::vector<std::unique_ptr<FarMessage>> ring(size);
  std::vector<Hull> hulls(size);
  std::vector<Hull> blocks((size + kBlock - 1) / kBlock);
  for (uint64_t n = first_; n < first_ + room_ahead(); ++n) {
    ring[n & (size - 1)] = std::move(place(n));
    const Hull hull = store_->hulls[n & mask()];
    hulls[n & (size - 1)] = hull;
    blocks[(n & (size - 1)) / kBlock].extend(hull.low, hull.high);
  }
  store_->ring = std::move(ring);
  store_->hulls = std::move(hulls);
  store_->blocks = std::move(blocks);
}

bool FarMessages::hold(uint64_t number, FarMessage& message, uint32_t begin,
                       std::span<const std::byte> payload) {
  if (payload.size() > BlockPool::kMostBytes) return false;
  if (!payload.empty()) {
    const size_t size = BlockPool::block_size(payload.size());
    // The next message's last packet waits for its own others: it can be sent again after them.
    if (bytes_ + size > most_bytes_) return false;
    if (store_ == nullptr) grow(number);
    message.held = store_->pool.take(payload.size());
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
    store_->pool.give(message.held, payload);
    bytes_ -= BlockPool::block_size(payload);
  }
  message.held = nullptr;
  message.holding = false;
}

size_t FarMessages::memory_bytes() const {
  if (store_ == nullptr) return bytes_;
  const Store& store = *store_;
  return sizeof store + bytes_ + store.pool.free_bytes() + store.spare.size() * sizeof(FarMessage) +
         (store.spare.capacity() + store.ring.capacity()) * sizeof(store.ring[0]) +
         (store.hulls.capacity() + store.blocks.capacity()) * sizeof(Hull);
}

}  // namespace farverbs::proto
