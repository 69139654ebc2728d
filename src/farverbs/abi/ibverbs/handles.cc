#include "farverbs/abi/ibverbs/handles.h"

#include <mutex>
#include <unordered_map>

namespace farverbs::abi {
namespace {

struct Table {
  std::mutex mutex;
  std::unordered_map<const void*, Kind> alive;
};

// Never destroyed: programs call us from their own destructors.
Table* table() {
  static auto* instance = new Table;
  return instance;
}

}  // namespace

void add_handle(Kind kind, const void* handle) {
  Table& t = *table();
  const std::lock_guard lock(t.mutex);
  t.alive[handle] = kind;
}

bool remove_handle(Kind kind, const void* handle) {
  Table& t = *table();
  const std::lock_guard lock(t.mutex);
  const auto found = t.alive.find(handle);
  if (found == t.alive.end() || found->second != kind) return false;
  t.alive.erase(found);
  return true;
}

bool is_alive(Kind kind, const void* handle) {
  if (handle == nullptr) return false;
  Table& t = *table();
  const std::lock_guard lock(t.mutex);
  const auto found = t.alive.find(handle);
  return found != t.alive.end() && found->second == kind;
}

void forget_all_handles() {
  // Devices are facts of the machine rather than anybody's objects.
  std::erase_if(table()->alive, [](const auto& entry) { return entry.second != Kind::kDevice; });
}

void lock_handles() { table()->mutex.lock(); }
void unlock_handles() { table()->mutex.unlock(); }

void for_each_handle(Kind kind, const std::function<void(void* handle)>& f) {
  for (const auto& [handle, its_kind] : table()->alive) {
    if (its_kind == kind) f(const_cast<void*>(handle));
  }
}

}  // namespace farverbs::abi
