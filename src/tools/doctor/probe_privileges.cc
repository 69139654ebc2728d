#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>

#include <fmt/format.h>

#include "tools/doctor/finding.h"
#include "tools/doctor/system_file.h"

#ifndef AF_XDP
#define AF_XDP 44
#endif

namespace farverbs::tools::doctor {
namespace {

Finding probe_xdp() {
  const Descriptor fd(::socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (fd.ok()) return {"af_xdp", Status::kOk, "sockets can be opened", ""};
  const int code = errno;
  const char* advice = code == EPERM
                           ? "run as root or with CAP_NET_RAW for kernel bypass; UDP sockets are "
                             "used otherwise"
                           : "a kernel with CONFIG_XDP_SOCKETS has kernel bypass; UDP sockets are "
                             "used otherwise";
  return {"af_xdp", Status::kWarn, std::string("not available: ") + strerror(code), advice};
}

// 0, or the errno of making a network namespace in this process.
int enter_network(bool with_user) {
  if (::unshare(with_user ? CLONE_NEWUSER | CLONE_NEWNET : CLONE_NEWNET) != 0) return errno;
  return 0;
}

int open_tun() {
  const Descriptor fd(::open("/dev/net/tun", O_RDWR | O_CLOEXEC));
  if (!fd.ok()) return errno;
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
  std::strncpy(request.ifr_name, "probe%d", IFNAMSIZ - 1);
  if (::ioctl(fd.get(), TUNSETIFF, &request) != 0) return errno;
  const unsigned offloads = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | 0x20 | 0x40;  // USO4, USO6
  return ::ioctl(fd.get(), TUNSETOFFLOAD, offloads) == 0 ? 0 : EOPNOTSUPP;
}

Finding network_finding(int as_root, int as_user) {
  if (as_root == 0) {
    return {"namespaces", Status::kOk, "network namespaces can be made", ""};
  }
  if (as_user == 0) {
    return {"namespaces", Status::kOk,
            "network namespaces can be made inside a user namespace (unprivileged)", ""};
  }
  return {"namespaces", Status::kWarn,
          fmt::format("no network namespace: {}; inside a user namespace: {}", strerror(as_root),
                      strerror(as_user)),
          "`farverbs lab` and `demo` need root, or kernel.unprivileged_userns_clone=1 and no "
          "restriction by AppArmor (kernel.apparmor_restrict_unprivileged_userns=0)"};
}

Finding tun_finding(int code) {
  if (code == 0) return {"tun", Status::kOk, "TUN devices with segmentation offload", ""};
  if (code == EOPNOTSUPP) {
    return {"tun", Status::kWarn, "TUN devices do not take UDP segmentation offload",
            "use Linux 6.2 or later: the emulator of `farverbs lab` is slower without"};
  }
  return {"tun", Status::kWarn, std::string("no TUN device: ") + strerror(code),
          code == ENOENT ? "`farverbs lab` and `demo` need it: modprobe tun, and in a container "
                           "pass /dev/net/tun in"
                         : "`farverbs lab` and `demo` need it: run as root"};
}

}  // namespace

std::vector<Finding> probe_privileges() {
  const int as_root = in_child([] { return enter_network(false); });
  const int as_user = in_child([] { return enter_network(true); });
  const int tun = in_child([&] {
    const int entered = enter_network(as_root != 0);
    return entered != 0 ? entered : open_tun();
  });
  return {network_finding(as_root, as_user), tun_finding(tun), probe_xdp()};
}

}  // namespace farverbs::tools::doctor
