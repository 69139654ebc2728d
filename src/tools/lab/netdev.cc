#include "tools/lab/netdev.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace farverbs::tools::lab {
namespace {

// From if_tun.h of Linux 6.2, which headers may be older than.
constexpr unsigned kUso4 = 0x20, kUso6 = 0x40;
constexpr int kQueueLength = 20'000;

Result<void> write_file(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return Error::from_errno("cannot open " + path);
  const ssize_t n = ::write(fd, text.data(), text.size());
  const int code = errno;
  ::close(fd);
  if (n != static_cast<ssize_t>(text.size()))
    return Error::from_errno("cannot write " + path, code);
  return {};
}

Result<void> become_root_of_user_namespace() {
  const uid_t uid = ::geteuid();
  const gid_t gid = ::getegid();
  if (::unshare(CLONE_NEWUSER) != 0) {
    return Error::from_errno(
        "a lab needs root, or user namespaces, which this machine refuses (see the sysctls "
        "user.max_user_namespaces, kernel.unprivileged_userns_clone and "
        "kernel.apparmor_restrict_unprivileged_userns)");
  }
  FV_TRY(write_file("/proc/self/setgroups", "deny"));
  FV_TRY(write_file("/proc/self/uid_map", "0 " + std::to_string(uid) + " 1"));
  FV_TRY(write_file("/proc/self/gid_map", "0 " + std::to_string(gid) + " 1"));
  return {};
}

class Socket {
 public:
  explicit Socket(int family) : fd_(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  template <typename Request>
  Result<void> control(unsigned long request, Request& argument, const char* what) {
    if (::ioctl(fd_, request, &argument) < 0) {
      return Error::from_errno(std::string("cannot ") + what + " of " + kDeviceName);
    }
    return {};
  }
  Result<void> bring_up(const char* name) {
    ifreq request = named(name);
    FV_TRY(control(SIOCGIFFLAGS, request, "read the flags"));
    request.ifr_flags |= IFF_UP;
    return control(SIOCSIFFLAGS, request, "set the flags");
  }
  static ifreq named(const char* name) {
    ifreq request{};
    std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    return request;
  }

 private:
  int fd_;
};

Result<int> open_tun() {
  const int fd = ::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    return Error::from_errno(
        "cannot open /dev/net/tun (load the tun module; without root the device must be readable "
        "and writable for all: chmod 666 /dev/net/tun)");
  }
  ifreq request = Socket::named(kDeviceName);
  request.ifr_flags = static_cast<short>(IFF_TUN | IFF_NO_PI | IFF_VNET_HDR);
  if (::ioctl(fd, TUNSETIFF, &request) < 0) {
    const Error error = Error::from_errno("cannot make a TUN device");
    ::close(fd);
    return error;
  }
  // Before Linux 6.2 UDP super-packets are split by the kernel, which only costs time.
  constexpr unsigned kTcpOffloads = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
  if (::ioctl(fd, TUNSETOFFLOAD, kTcpOffloads | kUso4 | kUso6) < 0 &&
      ::ioctl(fd, TUNSETOFFLOAD, kTcpOffloads) < 0) {
    const Error error = Error::from_errno("cannot switch on segmentation offload of a TUN device");
    ::close(fd);
    return error;
  }
  return fd;
}

Result<void> add_address6(const std::string& address) {
  struct {
    in6_addr address;
    uint32_t prefix;
    int index;
  } request{};
  ::inet_pton(AF_INET6, address.c_str(), &request.address);
  request.prefix = 64;
  request.index = static_cast<int>(::if_nametoindex(kDeviceName));
  Socket socket(AF_INET6);
  return socket.control(SIOCSIFADDR, request, "set the IPv6 address");
}

// By netlink, because the ioctl for it is refused to the root of a user namespace.
Result<void> set_queue_length(uint32_t packets) {
  struct {
    nlmsghdr header;
    ifinfomsg link;
    rtattr attribute;
    uint32_t packets;
  } request{};
  static_assert(sizeof request == NLMSG_ALIGN(sizeof(nlmsghdr)) + NLMSG_ALIGN(sizeof(ifinfomsg)) +
                                      RTA_LENGTH(sizeof(uint32_t)));
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = RTM_NEWLINK;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
  request.link.ifi_index = static_cast<int>(::if_nametoindex(kDeviceName));
  request.attribute.rta_len = RTA_LENGTH(sizeof(uint32_t));
  request.attribute.rta_type = IFLA_TXQLEN;
  request.packets = packets;
  struct {
    nlmsghdr header;
    nlmsgerr error;
    char echo[256];
  } answer{};
  const int fd = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  const bool answered = fd >= 0 && ::send(fd, &request, sizeof request, 0) > 0 &&
                        ::recv(fd, &answer, sizeof answer, 0) > 0;
  const int code = answered ? -answer.error.error : errno;
  if (fd >= 0) ::close(fd);
  if (code == 0) return {};
  return Error::from_errno(std::string("cannot set the queue length of ") + kDeviceName, code);
}

// So that a TCP in the lab is limited by the path, not by this machine's settings; and so that runs
// do not learn from those before.
Result<void> tune() {
  FV_TRY(write_file("/proc/sys/net/ipv4/tcp_rmem", "4096 131072 536870912"));
  FV_TRY(write_file("/proc/sys/net/ipv4/tcp_wmem", "4096 65536 536870912"));
  return write_file("/proc/sys/net/ipv4/tcp_no_metrics_save", "1");
}

// IPv6 without router solicitations, link-local addresses and their announcements.
Result<void> quiet_ipv6(bool wanted) {
  const std::string settings = std::string("/proc/sys/net/ipv6/conf/") + kDeviceName;
  if (::access(settings.c_str(), F_OK) != 0) {
    if (wanted) return Error{EAFNOSUPPORT, "this kernel has no IPv6: leave out --ipv6"};
    return {};
  }
  if (!wanted) return write_file(settings + "/disable_ipv6", "1");
  FV_TRY(write_file(settings + "/addr_gen_mode", "1"));
  FV_TRY(write_file(settings + "/accept_ra", "0"));
  return write_file(settings + "/router_solicitations", "0");
}

Result<void> configure(const NetOptions& options, NetEnd& end) {
  Socket socket(AF_INET);
  FV_TRY(socket.bring_up("lo"));
  ifreq request = Socket::named(kDeviceName);
  request.ifr_mtu = static_cast<int>(options.mtu);
  FV_TRY(socket.control(SIOCSIFMTU, request, "set the MTU"));
  FV_TRY(set_queue_length(kQueueLength));
  FV_TRY(quiet_ipv6(options.ipv6));
  request = Socket::named(kDeviceName);
  auto* address = reinterpret_cast<sockaddr_in*>(&request.ifr_addr);
  address->sin_family = AF_INET;
  ::inet_pton(AF_INET, end.address4.c_str(), &address->sin_addr);
  FV_TRY(socket.control(SIOCSIFADDR, request, "set the address"));
  ::inet_pton(AF_INET, "255.255.255.0", &address->sin_addr);
  FV_TRY(socket.control(SIOCSIFNETMASK, request, "set the network mask"));
  FV_TRY(socket.bring_up(kDeviceName));
  if (options.ipv6) FV_TRY(add_address6(end.address6));
  return tune();
}

Result<void> make_end(const NetOptions& options, const char* host, NetEnd& end) {
  if (::unshare(CLONE_NEWNET) != 0) return Error::from_errno("cannot make a network namespace");
  end.netns = ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  end.netdev = ::open("/proc/thread-self/net/dev", O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (end.netns < 0 || end.netdev < 0 || ::fstat(end.netns, &status) != 0) {
    return Error::from_errno("cannot open the new network namespace under /proc");
  }
  end.inode = status.st_ino;
  end.address4 = std::string("10.88.0.") + host;
  if (options.ipv6) end.address6 = std::string("fd88::") + host;
  end.address = options.ipv6 ? end.address6 : end.address4;
  FV_ASSIGN(end.tun, open_tun());
  return configure(options, end);
}

}  // namespace

Result<NetPath> make_path(const NetOptions& options) {
  NetPath path;
  const int original = ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  if (original < 0) return Error::from_errno("cannot open /proc/thread-self/ns/net");
  const auto make = [&]() -> Result<void> {
    if (::unshare(CLONE_NEWNET) != 0) {
      if (errno != EPERM) return Error::from_errno("cannot make a network namespace");
      path.user_namespace = true;
      FV_TRY(become_root_of_user_namespace());
    }
    FV_TRY(make_end(options, "1", path.a));
    return make_end(options, "2", path.b);
  };
  const Result<void> made = make();
  // Inside a user namespace of our own there is no way back to the original network.
  if (::setns(original, CLONE_NEWNET) != 0) (void)::unshare(CLONE_NEWNET);
  ::close(original);
  if (!made.ok()) {
    close_end(path.a);
    close_end(path.b);
    return made.error();
  }
  return path;
}

void close_end(NetEnd& end) {
  for (int* fd : {&end.netns, &end.tun, &end.netdev}) {
    if (*fd >= 0) ::close(*fd);
    *fd = -1;
  }
}

Result<void> enter_end(int netns) {
  if (::setns(netns, CLONE_NEWNET) != 0) {
    return Error::from_errno("cannot enter the lab's network namespace");
  }
  // Some programs look at /sys/class/net; those that do not are served without it.
  if (::unshare(CLONE_NEWNS) == 0 && ::mount("", "/", "none", MS_REC | MS_SLAVE, nullptr) == 0) {
    (void)::mount("lab", "/sys", "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr);
  }
  return {};
}

uint64_t device_transmit_drops(int netdev) {
  char text[4096];
  const ssize_t n = ::pread(netdev, text, sizeof text - 1, 0);
  if (n <= 0) return 0;
  text[n] = 0;
  const char* at = std::strstr(text, kDeviceName);
  if (at == nullptr) return 0;
  at += std::strlen(kDeviceName) + 1;
  // Eight columns of what was received, then bytes, packets, errors and drops of what was sent.
  uint64_t value = 0;
  for (int column = 0; column < 12; ++column) {
    char* end = nullptr;
    value = std::strtoull(at, &end, 10);
    at = end;
  }
  return value;
}

int signal_processes_in(const std::array<uint64_t, 2>& inodes, int signal) {
  DIR* proc = ::opendir("/proc");
  if (proc == nullptr) return 0;
  int found = 0;
  while (const dirent* entry = ::readdir(proc)) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size() || pid == ::getpid()) continue;
    struct stat status {};
    const std::string path = "/proc/" + std::string(name) + "/ns/net";
    if (::stat(path.c_str(), &status) != 0) continue;
    if (status.st_ino != inodes[0] && status.st_ino != inodes[1]) continue;
    ++found;
    ::kill(pid, signal);
  }
  ::closedir(proc);
  return found;
}

void end_processes_in(const std::array<uint64_t, 2>& inodes, int patience_ms) {
  if (signal_processes_in(inodes, SIGTERM) == 0) return;
  for (int waited = 0; waited < patience_ms; waited += 20) {
    ::usleep(20'000);
    if (signal_processes_in(inodes, 0) == 0) return;
  }
  // More than once: a process may fork while the list is read.
  for (int round = 0; round < 20 && signal_processes_in(inodes, SIGKILL) > 0; ++round) {
    ::usleep(10'000);
  }
}

}  // namespace farverbs::tools::lab
