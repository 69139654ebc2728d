// Watches the network interfaces for programs that wait for asynchronous events: a link that goes
// up or down is IBV_EVENT_PORT_ACTIVE or IBV_EVENT_PORT_ERR, another address IBV_EVENT_GID_CHANGE.
#pragma once

namespace farverbs::abi {

// Starts the thread that watches, once in a process. Without netlink nothing is told.
void watch_interfaces();
// In the child of a fork the thread is not there: the next call above starts another.
void forget_watcher();

}  // namespace farverbs::abi
