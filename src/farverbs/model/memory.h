// Memory regions and windows, and the table that finds them by key. Keys are random 32-bit numbers
// (guessing sequential keys is a known attack on RDMA); a region's L_Key and R_Key are one number.
// Lookups are lock-free and one probe: a new key is drawn until its place in the power-of-two table
// is free. Entries live as long as the table, so that a packet handler may keep a pointer to one
// and ask with `holds(key)` whether it is still the same region. Nothing is pinned or copied.
// Rules: IBTA vol. 1 chapter 10.6; man ibv_reg_mr, ibv_alloc_mw, ibv_bind_mw.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "farverbs/base/ids.h"
#include "farverbs/base/prng.h"
#include "farverbs/base/result.h"
#include "farverbs/model/types.h"

namespace farverbs::model {

using PdId = uint32_t;

enum class MemoryKind : uint8_t { kRegion, kWindow1, kWindow2 };

// A region or a window. Fields but key are written only while key is 0 (not visible to packets),
// and by MemoryTable only: packet handlers get what they need from resolve().
struct MemoryEntry {
  std::atomic<uint32_t> key{0};
  // What the application was told: the key, also while it is not valid (a window that is not bound,
  // something invalidated). Its upper 24 bits keep the entry's place in the table.
  MemoryKey handle_key;
  MemoryKind kind = MemoryKind::kRegion;
  PdId pd = 0;
  uint32_t access = 0;          // Access
  uint64_t address = 0;         // first valid address as peers and SGEs name it (iova, or 0 based)
  uint64_t length = 0;          // bytes
  std::byte* memory = nullptr;  // where `address` lies in this process
  MemoryEntry* region = nullptr;  // a window's region
  Qpn qpn;                        // a type 2 window belongs to this QP
  bool announced = false;         // a window whose keys the application tells in advance
  std::atomic<uint32_t> bound_windows{0};

  bool holds(MemoryKey k) const {
    return key.load(std::memory_order_acquire) == k.value() && k.value() != 0;
  }
};

enum class MemoryVerdict : uint8_t { kOk, kUnknownKey, kWrongPd, kNoAccess, kOutOfBounds };
const char* to_string(MemoryVerdict verdict);

struct MemoryAccess {
  MemoryVerdict verdict = MemoryVerdict::kUnknownKey;
  std::byte* memory = nullptr;   // valid if kOk
  MemoryEntry* entry = nullptr;  // valid if kOk
  uint64_t room = 0;             // bytes from `memory` to the entry's end; valid if kOk
};

class MemoryTable {
 public:
  explicit MemoryTable(Entropy& entropy);
  ~MemoryTable();
  MemoryTable(const MemoryTable&) = delete;
  MemoryTable& operator=(const MemoryTable&) = delete;

  // Registers `length` bytes at `memory` under addresses from `iova` on (kZeroBased: from 0).
  // EINVAL: remote write or atomic without local write, length 0 (with its name), address overflow.
  Result<MemoryEntry*> register_region(PdId pd, void* memory, uint64_t length, uint64_t iova,
                                       uint32_t access);
  // EBUSY while windows are bound. After this no new access begins; the caller must wait for the
  // packet loops to pass (engine) before the memory may go.
  Result<void> deregister(MemoryEntry* entry);
  // Other rights for a region that keeps its keys. Packets on their way may meet either.
  Result<void> change_access(MemoryEntry* entry, uint32_t access);

  // announced: a type 1 window gets its new keys as a type 2 window does, so that the application
  // knows them when it posts (ibv_bind_mw(3) returns them).
  Result<MemoryEntry*> allocate_window(PdId pd, MemoryKind kind, bool announced = false);
  Result<void> free_window(MemoryEntry* window);
  // Binds; gives the window a new key. Type 1: random, and binding again moves it. Type 2: its
  // handle_key with the low 8 bits replaced by the consumer's key_tag (so ibv_inc_rkey(3) tells the
  // application its key in advance); it must not be bound, and belongs to `qpn` then. length 0
  // unbinds a type 1 window. Errors: EINVAL, EPERM with the reason.
  Result<MemoryKey> bind_window(MemoryEntry* window, PdId pd, MemoryKey region_key,
                                uint64_t address, uint64_t length, uint32_t access, Qpn qpn,
                                uint8_t key_tag);
  // Local invalidate and SEND with invalidate: only a bound type 2 window of this QP, or a region
  // of this pd that gave remote rights and has no windows. kOk, or why not. The entry stays
  // allocated.
  MemoryVerdict invalidate(MemoryKey key, PdId pd, Qpn qpn);

  // nullptr if there is none. Lock-free.
  MemoryEntry* find(MemoryKey key) const;

  // Checks and translates. `access` are rights that the entry must all have (0: local read).
  // `remote` says that a peer names the key: then windows count too, and kOk needs `qpn` to match
  // for a type 2 window. length 0 is kOk without any check.
  MemoryAccess resolve(MemoryKey key, PdId pd, uint32_t access, uint64_t address, uint64_t length,
                       bool remote, Qpn qpn) const;

  size_t size() const;

 private:
  struct Slots;
  MemoryEntry* new_entry_locked();
  MemoryKey draw_key_locked();
  void place_locked(MemoryEntry& entry, MemoryKey key);
  void remove_locked(MemoryEntry& entry);
  void unbind_locked(MemoryEntry& window);
  void grow_locked();

  Entropy& entropy_;
  mutable std::mutex mutex_;
  std::atomic<Slots*> slots_{nullptr};
  std::vector<std::unique_ptr<Slots>> all_slots_;  // old ones are kept: readers may be inside
  std::vector<std::unique_ptr<MemoryEntry>> entries_;
  std::vector<MemoryEntry*> free_entries_;
  size_t used_ = 0;
};

}  // namespace farverbs::model
