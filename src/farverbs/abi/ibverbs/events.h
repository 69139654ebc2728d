// Events that were taken keep their object from being destroyed until they are acknowledged (man
// ibv_ack_cq_events(3), ibv_get_async_event(3)).
#pragma once

#include <pthread.h>

#include <cstdint>

namespace farverbs::abi {

// Returns when `acknowledged`, which the mutex guards, has reached `taken`.
void wait_for_acknowledgements(pthread_mutex_t& mutex, pthread_cond_t& changed,
                               const uint32_t& acknowledged, uint32_t taken);
void acknowledge(pthread_mutex_t& mutex, pthread_cond_t& changed, uint32_t& acknowledged,
                 uint32_t count);

}  // namespace farverbs::abi
