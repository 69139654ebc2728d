// Network namespaces and the TUN devices in them: everything the lab asks of the kernel before
// packets flow. Namespaces and devices have no names outside this process; they end with the last
// process or descriptor that holds them, so a crash leaves nothing behind.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "farverbs/base/result.h"

namespace farverbs::tools::lab {

inline constexpr const char* kDeviceName = "wan0";

// One end of the path. The descriptors are owned; all are close-on-exec.
struct NetEnd {
  int netns = -1;   // the namespace
  int tun = -1;     // its only device but loopback: non-blocking, with a vnet header
  int netdev = -1;  // its /proc/net/dev, readable from any namespace
  uint64_t inode = 0;
  std::string address;   // what the other side talks to
  std::string address4;  // always there
  std::string address6;  // empty without IPv6
};

struct NetPath {
  NetEnd a;
  NetEnd b;
  bool user_namespace = false;  // made because this process is not privileged
};

struct NetOptions {
  uint32_t mtu = 1500;
  bool ipv6 = false;  // give IPv6 addresses too, and prefer them
};

// Makes both ends. Without the privilege it moves this process into a new user namespace first
// (in which it is root), so the process must have one thread. Afterwards the process is in neither
// end's namespace. Errors say what to allow on this machine.
Result<NetPath> make_path(const NetOptions& options);
void close_end(NetEnd& end);

// Moves the calling process, about to execute a program, into a namespace, and shows it a /sys of
// that namespace where allowed. `netns` is a descriptor.
Result<void> enter_end(int netns);

// Packets the kernel could not hand to whoever reads the device; 0 if `netdev` cannot be read.
uint64_t device_transmit_drops(int netdev);

// Sends `signal` to every process in one of the namespaces, given by inode, except the caller;
// returns how many there were.
int signal_processes_in(const std::array<uint64_t, 2>& inodes, int signal);
// Asks the processes in the namespaces to end and kills them after `patience_ms`.
void end_processes_in(const std::array<uint64_t, 2>& inodes, int patience_ms);

}  // namespace farverbs::tools::lab
