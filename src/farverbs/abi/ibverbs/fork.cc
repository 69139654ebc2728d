// A child begins as if it had never opened a device: it may open its own. What its parent had open
// is refused with EINVAL there (the descriptors of channels stay, they are the program's to close).
#include "farverbs/abi/ibverbs/fork.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <unistd.h>

#include <new>

#include "farverbs/abi/ibverbs/devices.h"
#include "farverbs/abi/ibverbs/monitor.h"

namespace farverbs::abi {
namespace {

void before_fork() {
  Registry& known = registry();
  known.mutex.lock();
  for (auto& [name, device] : known.devices) device->mutex.lock();
  lock_handles();
}

void after_fork() {
  unlock_handles();
  Registry& known = registry();
  for (auto& [name, device] : known.devices) device->mutex.unlock();
  known.mutex.unlock();
}

void after_fork_in_child() {
  for_each_handle(Kind::kContext, [](void* handle) {
    Context& context = of(static_cast<ibv_context*>(handle));
    revoke_operations(context);
    for (const int socket : context.soft_nic->sockets()) ::close(socket);
    // Nothing of it may be destroyed here: its threads are not there to be joined. So the context,
    // which holds it, never dies.
  });
  forget_all_handles();
  forget_watcher();
  for (auto& [name, device] : registry().devices) device->soft_nic.reset();
  after_fork();
}

}  // namespace

void prepare_for_forks() {
  static const int once = ::pthread_atfork(before_fork, after_fork, after_fork_in_child);
  static_cast<void>(once);
}

}  // namespace farverbs::abi

extern "C" {

int ibv_fork_init(void) { return 0; }

ibv_fork_status ibv_is_fork_initialized(void) { return IBV_FORK_UNNEEDED; }

// Nothing is pinned, so copy-on-write does no harm to registered memory.
int ibv_dontfork_range(void*, size_t) { return 0; }
int ibv_dofork_range(void*, size_t) { return 0; }

}  // extern "C"
