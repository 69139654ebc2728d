// Handles: which pointers given to programs are alive, so that the calls outside the data path can
// refuse null, freed and foreign ones with EINVAL instead of following them. The data path does not
// ask: verbs.h's inline functions have followed the pointer before our code runs.
#pragma once

#include <functional>

namespace farverbs::abi {

enum class Kind : unsigned char {
  kDevice,
  kContext,
  kPd,
  kMr,
  kMw,
  kAh,
  kChannel,
  kCq,
  kSrq,
  kQp,
  kTd,
  kDm,
  kXrcd,
};

void add_handle(Kind kind, const void* handle);
// False if it is not alive, or of another kind: then nothing was removed.
bool remove_handle(Kind kind, const void* handle);
bool is_alive(Kind kind, const void* handle);
// The child of a fork owns none of its parent's objects.
void forget_all_handles();

// For who forks: nobody changes the table in between.
void lock_handles();
void unlock_handles();
// Calls f(handle) for each that is alive and of this kind; the table is locked.
void for_each_handle(Kind kind, const std::function<void(void* handle)>& f);

}  // namespace farverbs::abi
