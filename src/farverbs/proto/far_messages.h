// FarMessages: the messages of a peer that have begun to arrive and have not been carried out, by
// number, in a ring that grows with how far ahead they come. Their memory has a limit, which the
// next message to be carried out may pass, so that a full store never stops progress.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "farverbs/model/types.h"
#include "farverbs/proto/block_pool.h"
#include "farverbs/proto/byte_ranges.h"
#include "farverbs/wire/opcode.h"
#include "farverbs/wire/syndrome.h"

namespace farverbs::proto {

struct FarReceive;

struct FarMessage {
  ByteRanges placed;     // bytes that are where they belong; not what is held
  uint64_t address = 0;  // of byte 0 as the peer names it
  uintptr_t memory = 0;  // WRITE: where byte 0 lies, once a packet was placed
  // WRITE: the key's entry, and to where in the message it reaches.
  model::MemoryEntry* entry = nullptr;
  uint32_t checked_end = 0;
  MemoryKey key;
  wire::OpKind kind = wire::OpKind::unknown;
  bool begun = false;  // address and key, or the sequence, are known
  bool ended = false;  // so are length and what the last packet says
  bool holding = false;
  bool takes_receive = false;
  bool has_immediate = false;
  bool invalidates = false;
  bool solicited = false;
  // It can't be carried out: what to tell when its turn comes.
  bool failed = false;
  wire::NakCode code{};
  model::AsyncEventType event{};
  model::CompletionStatus receive_status{};
  uint32_t length = 0;
  uint32_t sequence = 0;   // of its receive
  uint32_t immediate = 0;  // or the key to invalidate
  FarReceive* receive = nullptr;
  std::byte* held = nullptr;  // WRITE: the last packet's payload [held_begin, length)
  uint32_t held_begin = 0;
  uint32_t wanted = 0;  // READ: bytes; its length is 0, since nothing of it comes
  uint64_t compare = 0;
  uint64_t swap_or_add = 0;

  // All that has to come before it can be carried out has come.
  bool complete() const {
    if (failed) return true;
    return ended && placed.prefix() >= (holding ? held_begin : length);
  }
};

class FarMessages {
 public:
  explicit FarMessages(size_t most_bytes) : most_bytes_(most_bytes) {}
  ~FarMessages() { clear(); }

  uint64_t first() const { return first_; }  // the next to be carried out
  // Behind the greatest number that has begun to arrive, if that is beyond first().
  uint64_t end() const { return end_; }
  bool last(uint64_t number) const { return number + 1 >= end_; }
  // Something of a message has come, and not all.
  bool any() const { return count_ > 0; }

  // nullptr: nothing of it has arrived. number >= first().
  FarMessage* find(uint64_t number) {
    return number - first_ < room_ahead() ? place(number).get() : nullptr;
  }
  FarMessage* front() { return store_ == nullptr ? nullptr : place(first_).get(); }
  // nullptr: no room.
  FarMessage* add(uint64_t number);
  // The front was carried out, or (without a record) need not be remembered any more.
  void pop_front();
  void clear();  // forgets all; first() stays
  // A quiet time: gives back what is not in use.
  void trim() {
    if (count_ == 0) clear();
  }
  void restart(uint64_t number) {
    clear();
    first_ = end_ = number;
  }

  // Room for something more of message `number`; for first() always.
  bool room(uint64_t number) const { return number == first_ || bytes_ < most_bytes_; }
  // Copies the message's last payload. False: no room.
  bool hold(uint64_t number, FarMessage& message, uint32_t begin,
            std::span<const std::byte> payload);
  void release(FarMessage& message);
  // placed's heap memory was `before`.
  void account(const FarMessage& message, size_t before) {
    bytes_ += message.placed.memory_bytes() - before;
  }

  // Bytes [low, high) of memory have been written for message `number`.
  void note_written(uint64_t number, uintptr_t low, uintptr_t high) {
    if (number == first_) return;  // nothing before it can come any more
    store_->hulls[number & mask()].extend(low, high);
    store_->blocks[(number & mask()) / kBlock].extend(low, high);
  }
  // f(message) for each message behind `number` that may have written into [low, high).
  template <typename F>
  void for_each_later_writer(uint64_t number, uintptr_t low, uintptr_t high, F&& f) {
    for (uint64_t n = number + 1; n < end_;) {
      if (n % kBlock == 0 && !store_->blocks[(n & mask()) / kBlock].meets(low, high)) {
        n += kBlock;
        continue;
      }
      if (store_->hulls[n & mask()].meets(low, high)) f(*place(n));
      ++n;
    }
  }

  size_t bytes() const { return bytes_; }  // what counts against the limit
  size_t memory_bytes() const;

 private:
  // A walk over thousands of messages for each late packet would be too slow: spans of memory that
  // hold all writes of a message, and of this many messages, exclude nearly all of them.
  static constexpr size_t kBlock = 64;
  static constexpr size_t kSmallRing = 16;
  struct Hull {
    uintptr_t low = UINTPTR_MAX;
    uintptr_t high = 0;
    bool meets(uintptr_t l, uintptr_t h) const { return l < high && low < h; }
    void extend(uintptr_t l, uintptr_t h) {
      low = std::min(low, l);
      high = std::max(high, h);
    }
  };
  // Only a peer whose messages have several packets, or come out of order, makes this needed.
  struct Store {
    std::vector<std::unique_ptr<FarMessage>> ring;  // a power of two
    std::vector<std::unique_ptr<FarMessage>> spare;
    std::vector<Hull> hulls;   // as ring
    std::vector<Hull> blocks;  // of kBlock hulls
    BlockPool pool;
  };
  uint64_t room_ahead() const { return store_ == nullptr ? 0 : store_->ring.size(); }
  uint64_t mask() const { return store_->ring.size() - 1; }
  std::unique_ptr<FarMessage>& place(uint64_t number) { return store_->ring[number & mask()]; }
  void grow(uint64_t number);
  void rebuild_block(size_t block);
  void forget(std::unique_ptr<FarMessage>& message);

  size_t most_bytes_;
  size_t bytes_ = 0;
  uint64_t first_ = 0;
  uint64_t end_ = 0;
  size_t count_ = 0;
  std::unique_ptr<Store> store_;  // once a message needs a record
};

}  // namespace farverbs::proto
