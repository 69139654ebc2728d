#include "farverbs/model/memory.h"

#include <string>

namespace farverbs::model {
namespace {

// A key's place in the table comes from its upper 24 bits, because the low 8 bits of a type 2
// window's key are the application's. More bits only tell places further apart, so growth never
// makes two keys collide.
constexpr unsigned kTagBits = 8;
constexpr unsigned kFirstBits = 6;
constexpr unsigned kMostBits = 24;

constexpr uint32_t kRemoteRights = kRemoteWrite | kRemoteRead | kRemoteAtomic;
constexpr uint32_t kAllRights = kLocalWrite | kRemoteRights | kMwBind | kZeroBased;

// The fields of an entry may be rewritten (deregister, then register takes the entry again) while a
// packet that still holds the old pointer reads them. The reader then finds the key changed and
// gives up, so only tearing must be excluded: every access is atomic, and acquire/release order
// puts the change of the key before any change of a field. On x86 these are plain moves.
template <typename T>
T load(const T& field) {
  return std::atomic_ref<T>(const_cast<T&>(field)).load(std::memory_order_acquire);
}
template <typename T>
void store(T& field, T value) {
  std::atomic_ref<T>(field).store(value, std::memory_order_release);
}

Error refused(std::string message) { return {EPERM, std::move(message)}; }

bool wraps(uint64_t address, uint64_t length) { return address + (length - 1) < address; }

bool inside(uint64_t address, uint64_t length, uint64_t outer_address, uint64_t outer_length) {
  return address >= outer_address && length <= outer_length &&
         address - outer_address <= outer_length - length;
}

// "" or why these rights make no sense.
Result<void> check_rights(uint32_t access) {
  if ((access & ~kAllRights) != 0) {
    return invalid("access has unknown bits, got " + std::to_string(access));
  }
  return {};
}

Result<void> check_region_rights(uint32_t access) {
  FV_TRY(check_rights(access));
  if ((access & (kRemoteWrite | kRemoteAtomic)) != 0 && (access & kLocalWrite) == 0) {
    return invalid("access has remote write or remote atomic without local write; add local write");
  }
  return {};
}

}  // namespace

const char* to_string(MemoryVerdict verdict) {
  switch (verdict) {
    case MemoryVerdict::kOk:
      return "ok";
    case MemoryVerdict::kUnknownKey:
      return "unknown key";
    case MemoryVerdict::kWrongPd:
      return "wrong protection domain";
    case MemoryVerdict::kNoAccess:
      return "access not granted";
    case MemoryVerdict::kOutOfBounds:
      return "out of bounds";
  }
  return "unknown verdict";
}

struct MemoryTable::Slots {
  explicit Slots(unsigned bits)
      : mask((1u << bits) - 1), entries(std::make_unique<std::atomic<MemoryEntry*>[]>(mask + 1)) {}

  std::atomic<MemoryEntry*>& at(uint32_t key) { return entries[(key >> kTagBits) & mask]; }

  uint32_t mask;
  std::unique_ptr<std::atomic<MemoryEntry*>[]> entries;
};

MemoryTable::MemoryTable(Entropy& entropy) : entropy_(entropy) {
  all_slots_.push_back(std::make_unique<Slots>(kFirstBits));
  slots_.store(all_slots_.back().get(), std::memory_order_release);
}

MemoryTable::~MemoryTable() = default;

void MemoryTable::grow_locked() {
  Slots& old = *slots_.load(std::memory_order_relaxed);
  unsigned bits = 0;
  while ((1u << bits) <= old.mask) ++bits;
  auto grown = std::make_unique<Slots>(bits + 1);
  for (uint32_t i = 0; i <= old.mask; ++i) {
    MemoryEntry* entry = old.entries[i].load(std::memory_order_relaxed);
    if (entry == nullptr) continue;
    grown->at(entry->handle_key.value()).store(entry, std::memory_order_relaxed);
  }
  slots_.store(grown.get(), std::memory_order_release);
  all_slots_.push_back(std::move(grown));
}

// Zero if the table is full.
MemoryKey MemoryTable::draw_key_locked() {
  // At most half full: a free place is found at the second try on average.
  Slots* slots = slots_.load(std::memory_order_relaxed);
  if (used_ >= (size_t{slots->mask} + 1) / 2) {
    if (slots->mask + 1 >= 1u << kMostBits) return MemoryKey{};
    grow_locked();
    slots = slots_.load(std::memory_order_relaxed);
  }
  for (;;) {
    const auto key = static_cast<uint32_t>(entropy_.next() >> 32);
    // Keys below 2^8 are left out: 0 is no key, and a type 2 window could be tagged to become 0.
    if (key >> kTagBits == 0) continue;
    if (slots->at(key).load(std::memory_order_relaxed) == nullptr) return MemoryKey(key);
  }
}

MemoryEntry* MemoryTable::new_entry_locked() {
  if (free_entries_.empty()) {
    entries_.push_back(std::make_unique<MemoryEntry>());
    return entries_.back().get();
  }
  MemoryEntry* entry = free_entries_.back();
  free_entries_.pop_back();
  return entry;
}

void MemoryTable::place_locked(MemoryEntry& entry, MemoryKey key) {
  store(entry.handle_key, key);
  slots_.load(std::memory_order_relaxed)->at(key.value()).store(&entry, std::memory_order_release);
  ++used_;
}

void MemoryTable::remove_locked(MemoryEntry& entry) {
  entry.key.store(0, std::memory_order_relaxed);
  slots_.load(std::memory_order_relaxed)
      ->at(entry.handle_key.value())
      .store(nullptr, std::memory_order_release);
  --used_;
}

Result<MemoryEntry*> MemoryTable::register_region(PdId pd, void* memory, uint64_t length,
                                                  uint64_t iova, uint32_t access) {
  FV_TRY(check_region_rights(access));
  if (memory == nullptr) return invalid("addr is null");
  if (length == 0) return invalid("length is 0");
  if (wraps(reinterpret_cast<uintptr_t>(memory), length)) {
    return invalid("addr + length passes the end of the address space");
  }
  const uint64_t address = (access & kZeroBased) != 0 ? 0 : iova;
  if (wraps(address, length)) return invalid("iova + length passes 2^64");

  const std::lock_guard guard(mutex_);
  const MemoryKey key = draw_key_locked();
  if (key.value() == 0) return Error{ENOMEM, "memory table is full; deregister regions first"};
  MemoryEntry* entry = new_entry_locked();
  store(entry->kind, MemoryKind::kRegion);
  store(entry->pd, pd);
  store(entry->access, access);
  store(entry->address, address);
  store(entry->length, length);
  store(entry->memory, static_cast<std::byte*>(memory));
  store(entry->region, static_cast<MemoryEntry*>(nullptr));
  store(entry->qpn, Qpn{});
  place_locked(*entry, key);
  entry->key.store(key.value(), std::memory_order_release);
  return entry;
}

Result<void> MemoryTable::change_access(MemoryEntry* entry, uint32_t access) {
  FV_TRY(check_region_rights(access));
  const std::lock_guard guard(mutex_);
  if (entry->kind != MemoryKind::kRegion) return invalid("not a memory region");
  if (((access ^ entry->access) & kZeroBased) != 0) {
    return invalid("access changes whether the region is zero based; register it anew");
  }
  store(entry->access, access);
  return {};
}

Result<void> MemoryTable::deregister(MemoryEntry* entry) {
  const std::lock_guard guard(mutex_);
  if (entry->kind != MemoryKind::kRegion) {
    return invalid("not a memory region; free a window as a window");
  }
  if (const uint32_t windows = entry->bound_windows.load(std::memory_order_relaxed); windows != 0) {
    return Error{EBUSY, "memory region has " + std::to_string(windows) +
                            " bound windows; unbind or free them first"};
  }
  remove_locked(*entry);
  free_entries_.push_back(entry);
  return {};
}

Result<MemoryEntry*> MemoryTable::allocate_window(PdId pd, MemoryKind kind, bool announced) {
  if (kind == MemoryKind::kRegion) return invalid("type must be a window's, type 1 or type 2");
  const std::lock_guard guard(mutex_);
  const MemoryKey key = draw_key_locked();
  if (key.value() == 0) return Error{ENOMEM, "memory table is full; deregister regions first"};
  MemoryEntry* entry = new_entry_locked();
  store(entry->kind, kind);
  entry->announced = announced;
  store(entry->pd, pd);
  store(entry->access, 0u);
  store(entry->length, uint64_t{0});
  store(entry->memory, static_cast<std::byte*>(nullptr));
  store(entry->region, static_cast<MemoryEntry*>(nullptr));
  store(entry->qpn, Qpn{});
  place_locked(*entry, key);  // not valid before it is bound: its key stays 0
  return entry;
}

void MemoryTable::unbind_locked(MemoryEntry& window) {
  window.key.store(0, std::memory_order_relaxed);
  if (window.region == nullptr) return;
  window.region->bound_windows.fetch_sub(1, std::memory_order_relaxed);
  store(window.region, static_cast<MemoryEntry*>(nullptr));
}

Result<void> MemoryTable::free_window(MemoryEntry* window) {
  const std::lock_guard guard(mutex_);
  if (window->kind == MemoryKind::kRegion) {
    return invalid("not a memory window; deregister a region as a region");
  }
  unbind_locked(*window);
  remove_locked(*window);
  free_entries_.push_back(window);
  return {};
}

Result<MemoryKey> MemoryTable::bind_window(MemoryEntry* window, PdId pd, MemoryKey region_key,
                                           uint64_t address, uint64_t length, uint32_t access,
                                           Qpn qpn, uint8_t key_tag) {
  const std::lock_guard guard(mutex_);
  if (window == nullptr || window->kind == MemoryKind::kRegion) {
    return invalid("window is not a memory window");
  }
  const bool type_2 = window->kind == MemoryKind::kWindow2;
  if (window->pd != pd) return refused("window belongs to another protection domain than the QP");
  if (type_2 && window->region != nullptr) {
    return refused("window of type 2 is bound already; invalidate it first");
  }
  if (length == 0) {
    if (type_2) return invalid("length is 0; a type 2 window is unbound by invalidating it");
    unbind_locked(*window);
    if (window->announced) {
      store(window->handle_key, MemoryKey((window->handle_key.value() & ~0xFFu) | key_tag));
    }
    return window->handle_key;
  }
  FV_TRY(check_rights(access));
  if ((access & (kLocalWrite | kMwBind)) != 0) {
    return invalid(
        "access of a window has local write or window bind; it may grant remote rights only");
  }
  if ((access & kZeroBased) != 0 && !type_2) {
    return invalid("access has zero based, which only a type 2 window can be");
  }
  MemoryEntry* region = find(region_key);
  if (region == nullptr || region->kind != MemoryKind::kRegion) {
    return invalid("memory region's key is unknown; bind to a registered region");
  }
  if (region->pd != pd) return refused("memory region belongs to another protection domain");
  if ((region->access & kMwBind) == 0) {
    return refused("memory region was registered without the window bind access flag");
  }
  if ((access & (kRemoteWrite | kRemoteAtomic)) != 0 && (region->access & kLocalWrite) == 0) {
    return refused("access has remote write or atomic, but the memory region has no local write");
  }
  if (!inside(address, length, region->address, region->length)) {
    return invalid("address and length of the window are not inside the memory region");
  }

  MemoryKey key((window->handle_key.value() & ~0xFFu) | key_tag);
  if (type_2) {
    store(window->handle_key, key);
  } else if (window->announced) {
    unbind_locked(*window);
    store(window->handle_key, key);
  } else {
    key = draw_key_locked();
    if (key.value() == 0) return Error{ENOMEM, "memory table is full; deregister regions first"};
    unbind_locked(*window);  // binding again takes the old key away
    remove_locked(*window);
    place_locked(*window, key);
  }
  store(window->access, access);
  store(window->address, (access & kZeroBased) != 0 ? uint64_t{0} : address);
  store(window->length, length);
  store(window->memory, region->memory + (address - region->address));
  store(window->region, region);
  store(window->qpn, qpn);
  region->bound_windows.fetch_add(1, std::memory_order_relaxed);
  window->key.store(key.value(), std::memory_order_release);
  return key;
}

MemoryVerdict MemoryTable::invalidate(MemoryKey key, PdId pd, Qpn qpn) {
  const std::lock_guard guard(mutex_);
  MemoryEntry* entry = find(key);
  if (entry == nullptr) return MemoryVerdict::kUnknownKey;
  if (entry->pd != pd) return MemoryVerdict::kWrongPd;
  switch (entry->kind) {
    case MemoryKind::kWindow1:
      return MemoryVerdict::kNoAccess;
    case MemoryKind::kWindow2:
      if (entry->qpn != qpn) return MemoryVerdict::kNoAccess;
      unbind_locked(*entry);
      return MemoryVerdict::kOk;
    case MemoryKind::kRegion:
      break;
  }
  if ((entry->access & kRemoteRights) == 0 ||
      entry->bound_windows.load(std::memory_order_relaxed) != 0) {
    return MemoryVerdict::kNoAccess;
  }
  entry->key.store(0, std::memory_order_relaxed);
  return MemoryVerdict::kOk;
}

MemoryEntry* MemoryTable::find(MemoryKey key) const {
  Slots* slots = slots_.load(std::memory_order_acquire);
  MemoryEntry* entry = slots->at(key.value()).load(std::memory_order_acquire);
  return entry != nullptr && entry->holds(key) ? entry : nullptr;
}

MemoryAccess MemoryTable::resolve(MemoryKey key, PdId pd, uint32_t access, uint64_t address,
                                  uint64_t length, bool remote, Qpn qpn) const {
  if (length == 0) return {MemoryVerdict::kOk, nullptr, nullptr};
  MemoryEntry* entry = find(key);
  if (entry == nullptr) return {};
  const MemoryKind kind = load(entry->kind);
  const PdId entry_pd = load(entry->pd);
  const Qpn entry_qpn = load(entry->qpn);
  const uint32_t entry_access = load(entry->access);
  const uint64_t entry_address = load(entry->address);
  const uint64_t entry_length = load(entry->length);
  std::byte* const memory = load(entry->memory);
  if (!entry->holds(key)) return {};  // deregistered while it was read

  if (kind != MemoryKind::kRegion && !remote) return {};  // a window has no L_Key
  if (entry_pd != pd) return {MemoryVerdict::kWrongPd, nullptr, nullptr};
  if (kind == MemoryKind::kWindow2 && entry_qpn != qpn) {
    return {MemoryVerdict::kNoAccess, nullptr, nullptr};
  }
  if ((entry_access & access) != access) return {MemoryVerdict::kNoAccess, nullptr, nullptr};
  if (!inside(address, length, entry_address, entry_length)) {
    return {MemoryVerdict::kOutOfBounds, nullptr, nullptr};
  }
  const uint64_t offset = address - entry_address;
  return {MemoryVerdict::kOk, memory + offset, entry, entry_length - offset};
}

size_t MemoryTable::size() const {
  const std::lock_guard guard(mutex_);
  return used_;
}

}  // namespace farverbs::model
