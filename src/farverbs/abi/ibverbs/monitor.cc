#include "farverbs/abi/ibverbs/monitor.h"

#include <linux/rtnetlink.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include <thread>

#include "farverbs/abi/ibverbs/devices.h"
#include "farverbs/base/quiet_signals.h"
#include "farverbs/io/file_descriptor.h"

namespace farverbs::abi {
namespace {

struct Change {
  const Device* device = nullptr;
  bool gids = false;
  bool up = false;
  bool down = false;
};

// The device is locked for as long as this takes; the events are pushed afterwards.
Change look_at(Device& device, const io::Interface& interface) {
  const std::lock_guard lock(device.mutex);
  Change change;
  change.device = &device;
  if (device.soft_nic.expired()) return change;
  change.gids = refresh_gids(device, interface);
  change.up = interface.up && !device.up;
  change.down = !interface.up && device.up;
  device.up = interface.up;
  return change;
}

void tell(const Change& change) {
  lock_handles();
  for_each_handle(Kind::kContext, [&change](void* handle) {
    Context& context = of(static_cast<ibv_context*>(handle));
    if (context.owner != change.device) return;
    if (change.down) context.async.push_port_event(IBV_EVENT_PORT_ERR);
    if (change.gids) context.async.push_port_event(IBV_EVENT_GID_CHANGE);
    if (change.up) context.async.push_port_event(IBV_EVENT_PORT_ACTIVE);
  });
  unlock_handles();
}

void look_at_all() {
  const auto interfaces = io::list_interfaces();
  if (!interfaces.ok()) return;
  std::vector<Device*> devices;
  {
    const std::lock_guard lock(registry().mutex);
    for (const auto& [name, device] : registry().devices) devices.push_back(device);
  }
  for (Device* device : devices) {
    io::Interface now;  // one that has gone is down and has no address
    for (const io::Interface& interface : *interfaces) {
      if (interface.name == device->interface_name) now = interface;
    }
    if (const Change change = look_at(*device, now); change.gids || change.up || change.down) {
      tell(change);
    }
  }
}

void watch(io::FileDescriptor netlink) {
  ::pthread_setname_np(::pthread_self(), "farverbs-net");
  for (;;) {
    pollfd readable{netlink.get(), POLLIN, 0};
    if (::poll(&readable, 1, -1) < 0) continue;
    // What changed is read from the interfaces themselves, so the messages only have to be taken.
    char messages[8192];
    ssize_t n = 0;
    do {
      n = ::recv(netlink.get(), messages, sizeof messages, MSG_DONTWAIT);
    } while (n > 0);
    look_at_all();
  }
}

std::mutex* mutex = new std::mutex;
bool watching = false;

}  // namespace

void watch_interfaces() {
  const std::lock_guard lock(*mutex);
  if (watching) return;
  watching = true;
  io::FileDescriptor netlink(
      ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  sockaddr_nl groups{};
  groups.nl_family = AF_NETLINK;
  groups.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (!netlink.valid() ||
      ::bind(netlink.get(), reinterpret_cast<sockaddr*>(&groups), sizeof groups) != 0) {
    return;
  }
  const QuietSignals quiet;
  std::thread(watch, std::move(netlink)).detach();
}

void forget_watcher() {
  mutex = new std::mutex;
  watching = false;
}

}  // namespace farverbs::abi
