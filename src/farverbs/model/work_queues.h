// The rings of work requests. Application threads post at one end under a short lock; the packet
// loop takes from the other end without one. Slots have a fixed stride fixed by the capabilities of
// the QP: a header, then its SGEs or its inline data. Indices only grow (64 bits) so that a
// requester can name a request for as long as it lives.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

#include "farverbs/base/result.h"
#include "farverbs/base/spinlock.h"
#include "farverbs/model/completion_queue.h"
#include "farverbs/model/types.h"

namespace farverbs::model {

struct SendWqe {
  // As posted.
  uint64_t wr_id;
  uint64_t remote_address;
  uint64_t compare_add;
  uint64_t swap;
  MemoryKey remote_key;
  uint32_t immediate;  // or the key to invalidate
  uint32_t flags;      // SendFlags
  uint32_t length;     // bytes of the message (atomics: 8)
  SendOpcode opcode;
  uint8_t sge_count;  // 0 when inlined
  bool inlined;
  // The requester's own: where the request stands on the wire.
  bool started;
  PacketNumber first_packet;  // valid once started
  uint32_t packet_count;      // PSNs that it takes
  uint32_t progress;          // the requester's use (for instance bytes of a READ that arrived)
  // UD only.
  AddressVector address_vector;
  Qpn remote_qpn;
  uint32_t remote_qkey;
  // Bind window only.
  struct MemoryEntry* window;
  MemoryKey bind_region_lkey;
  uint32_t bind_access;
  uint64_t bind_length;  // bind address is in remote_address

  std::span<const ScatterGatherElement> sges() const {
    return {reinterpret_cast<const ScatterGatherElement*>(this + 1), sge_count};
  }
  const std::byte* inline_data() const { return reinterpret_cast<const std::byte*>(this + 1); }
};

class SendQueue {
 public:
  explicit SendQueue(const QpCapabilities& capabilities);

  // Checks and copies the request. Thread safe. ENOMEM: queue full; EINVAL: too many SGEs, inline
  // data too long, length over 2^31, an opcode that `type` does not have, a fence or flag that
  // makes no sense; the message names the field. The state of the QP is the caller's to check.
  Result<void> post(QpType type, const SendWorkRequest& request);

  // The loop's end. Requests head() .. tail()-1 exist; at(i) for them.
  uint64_t head() const { return head_.load(std::memory_order_relaxed); }
  uint64_t tail() const { return tail_.load(std::memory_order_acquire); }
  SendWqe& at(uint64_t index) {
    return *std::launder(
        reinterpret_cast<SendWqe*>(slots_.get() + size_t{stride_} * (index & slot_mask_)));
  }
  // Frees the oldest. Until then it counts against the capacity, as a request does on a NIC until
  // its completion is known.
  void pop_front() { head_.store(head() + 1, std::memory_order_release); }
  void clear();  // RESET
  uint32_t capacity() const { return capacity_; }
  size_t memory_bytes() const;  // 0 before the first post

 private:
  mutable Spinlock lock_;
  std::atomic<uint64_t> head_{0};
  std::atomic<uint64_t> tail_{0};
  uint32_t capacity_ = 0;  // as asked for; slots are the next power of two
  uint32_t slot_mask_ = 0;
  uint32_t stride_ = 0;
  uint32_t max_sge_ = 0;
  uint32_t max_inline_ = 0;
  std::unique_ptr<std::byte[]> slots_;  // allocated at the first post
};

// A receive taken off its queue: where the next message's bytes go.
struct ReceiveWqe {
  uint64_t wr_id = 0;
  uint32_t length = 0;  // bytes of all SGEs
  uint32_t sge_count = 0;
  std::unique_ptr<ScatterGatherElement[]> sge_storage;  // max_recv_sge of them, owned by the QP
  std::span<const ScatterGatherElement> sges() const { return {sge_storage.get(), sge_count}; }
};

// Of one QP, or shared (SRQ): then `pop` is called by several loops and locks as well.
class ReceiveQueue {
 public:
  ReceiveQueue(uint32_t max_wr, uint32_t max_sge, bool shared);

  // ENOMEM: queue full; EINVAL: too many SGEs. Thread safe. A sum of lengths over 2^32-1 counts as
  // that, since no message is longer than 2^31.
  Result<void> post(const ReceiveWorkRequest& request);
  // Takes the oldest receive into `receive`, whose storage holds max_sge elements or is allocated
  // here the first time; false if empty.
  bool pop(ReceiveWqe& receive);
  uint32_t count() const;
  uint32_t max_sge() const { return max_sge_; }
  uint32_t capacity() const { return capacity_; }
  void clear();
  size_t memory_bytes() const;  // 0 before the first post

  // SRQ limit (ibv_modify_srq(3)): SRQ_LIMIT_REACHED once when a pop leaves fewer than `limit`.
  void arm_limit(uint32_t limit, AsyncEventSink* events, void* context);
  uint32_t limit() const { return limit_.load(std::memory_order_relaxed); }
  std::atomic<uint32_t> users{0};  // QPs that use it, if shared

 private:
  mutable Spinlock post_lock_;
  Spinlock pop_lock_;
  std::atomic<uint64_t> head_{0};
  std::atomic<uint64_t> tail_{0};
  uint32_t capacity_ = 0;
  uint32_t slot_mask_ = 0;
  uint32_t stride_ = 0;
  uint32_t max_sge_ = 0;
  bool shared_ = false;
  std::unique_ptr<std::byte[]> slots_;
  std::atomic<uint32_t> limit_{0};
  AsyncEventSink* limit_events_ = nullptr;
  void* limit_context_ = nullptr;
};

}  // namespace farverbs::model
