#include "farverbs/abi/ibverbs/devices.h"

#include <net/if.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>

#include "farverbs/abi/ibverbs/errors.h"
#include "farverbs/abi/ibverbs/fork.h"
#include "farverbs/abi/ibverbs/monitor.h"
#include "farverbs/abi/ibverbs/versions.h"
#include "farverbs/base/byte_order.h"
#include "farverbs/io/file_descriptor.h"

namespace farverbs::abi {
namespace {

template <size_t kSize>
void copy_text(char (&to)[kSize], const std::string& text) {
  const size_t length = std::min(text.size(), kSize - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

verbs::Transport wanted_transport() {
  const char* wish = std::getenv("FARVERBS_TRANSPORT");
  return wish != nullptr && std::strcmp(wish, "standard") == 0 ? verbs::Transport::kStandard
                                                               : verbs::Transport::kAuto;
}

// Only the interface that the wrapper was told to show, if it was told one.
bool is_shown(const io::Interface& interface) {
  const char* only = std::getenv("FARVERBS_INTERFACE");
  return only == nullptr || *only == '\0' || interface.name == only;
}

}  // namespace

Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

Result<std::vector<io::Interface>> usable_interfaces() {
  FV_ASSIGN(std::vector<io::Interface> interfaces, io::list_interfaces());
  std::erase_if(interfaces, [](const io::Interface& interface) {
    return !is_shown(interface) || gid_order(interface).empty();
  });
  // Programs take the first device unless told otherwise, and peers are seldom on this host.
  std::stable_partition(interfaces.begin(), interfaces.end(),
                        [](const io::Interface& interface) { return !interface.loopback; });
  return interfaces;
}

Result<io::Interface> interface_of(const Device& device) {
  FV_ASSIGN(std::vector<io::Interface> interfaces, io::list_interfaces());
  for (io::Interface& interface : interfaces) {
    if (interface.name == device.interface_name) return std::move(interface);
  }
  return Error{ENODEV, "interface " + device.interface_name + " has gone"};
}

std::vector<IpAddress> gid_order(const io::Interface& interface) {
  std::vector<IpAddress> order = interface.addresses;
  // An address of the link alone means nothing without naming the link, and a GID cannot.
  std::erase_if(order, [](const IpAddress& address) {
    return address.is_v6() && address.bytes()[0] == std::byte{0xFE} &&
           (address.bytes()[1] & std::byte{0xC0}) == std::byte{0x80};
  });
  std::stable_partition(order.begin(), order.end(),
                        [](const IpAddress& address) { return address.is_v4(); });
  if (order.size() > static_cast<size_t>(kGidTableLength)) order.resize(kGidTableLength);
  return order;
}

bool refresh_gids(Device& device, const io::Interface& interface) {
  std::vector<GidEntry>& gids = device.gids;
  const std::vector<GidEntry> before = gids;
  const std::vector<IpAddress> addresses = gid_order(interface);
  if (device.soft_nic.expired()) gids.clear();
  for (GidEntry& entry : gids) {
    entry.present = std::find(addresses.begin(), addresses.end(), entry.address) != addresses.end();
  }
  for (const IpAddress& address : addresses) {
    const bool known = std::any_of(gids.begin(), gids.end(), [&](const GidEntry& entry) {
      return entry.present && entry.address == address;
    });
    if (known) continue;
    // The place of one that has gone, unless the soft NIC is still bound to it.
    const auto free = std::find_if(gids.begin(), gids.end(), [](const GidEntry& entry) {
      return !entry.present && !entry.opened;
    });
    if (free != gids.end()) {
      *free = {address, true, false};
    } else if (gids.size() < static_cast<size_t>(kGidTableLength)) {
      gids.push_back({address, true, false});
    }
  }
  return !std::equal(gids.begin(), gids.end(), before.begin(), before.end(),
                     [](const GidEntry& a, const GidEntry& b) {
                       return a.present == b.present && a.address == b.address;
                     });
}

Result<std::vector<GidEntry>> gids_of(Device& device) {
  const auto interface = interface_of(device);
  const std::lock_guard lock(device.mutex);
  // An interface that has gone has no addresses.
  refresh_gids(device, interface.ok() ? *interface : io::Interface{});
  return device.gids;
}

Result<void> use_gid(Context& context, uint8_t index) {
  Device& device = *context.owner;
  const auto opened = [&] {
    const std::lock_guard lock(device.mutex);
    return index < device.gids.size() && device.gids[index].opened;
  };
  if (opened()) return {};
  FV_ASSIGN(const std::vector<GidEntry> gids, gids_of(device));
  if (index >= gids.size() || !gids[index].present) {
    return invalid("GID index " + std::to_string(index) + " of " + device.name + " is no address");
  }
  const std::lock_guard lock(device.mutex);
  FV_TRY(context.soft_nic->use_gid(index, gids[index].address));
  device.gids[index].opened = true;
  return {};
}

void use_all_gids(Context& context) {
  const auto gids = gids_of(*context.owner);
  if (!gids.ok()) return;
  for (size_t index = 1; index < gids->size(); ++index) {
    // What cannot be used is refused when somebody asks for it.
    if ((*gids)[index].present) (void)use_gid(context, static_cast<uint8_t>(index));
  }
}

uint64_t guid_of(const std::string& interface_name) {
  ifreq request{};
  interface_name.copy(request.ifr_name, sizeof request.ifr_name - 1);
  const io::FileDescriptor fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  unsigned char guid[8] = {};
  if (fd.valid() && ::ioctl(fd.get(), SIOCGIFHWADDR, &request) == 0) {
    unsigned char mac[6];
    std::memcpy(mac, request.ifr_hwaddr.sa_data, sizeof mac);
    const unsigned char eui64[8] = {
        static_cast<unsigned char>(mac[0] ^ 2), mac[1], mac[2], 0xFF, 0xFE, mac[3], mac[4], mac[5]};
    const bool has_mac = std::any_of(mac, mac + 6, [](unsigned char byte) { return byte != 0; });
    if (has_mac) std::memcpy(guid, eui64, sizeof guid);
  }
  uint64_t value = 0;
  std::memcpy(&value, guid, sizeof value);
  // The loopback has no hardware address, and the world takes a GUID of zero for a broken device.
  if (value == 0) value = std::hash<std::string>{}("farverbs " + interface_name) | 2;
  return value;
}

Device& device_for(const io::Interface& interface) {
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  Device*& device = known.devices[interface.name];
  if (device == nullptr) {
    const std::string name = "fv_" + interface.name;
    device = new Device;
    device->node_type = IBV_NODE_CA;
    device->transport_type = IBV_TRANSPORT_IB;
    copy_text(device->name, name);
    copy_text(device->dev_name, name);
    copy_text(device->dev_path, "/sys/class/infiniband_verbs/" + name);
    copy_text(device->ibdev_path, "/sys/class/infiniband/" + name);
    device->interface_name = interface.name;
    add_handle(Kind::kDevice, static_cast<ibv_device*>(device));
  }
  device->index = static_cast<int>(interface.index);
  return *device;
}

Result<std::shared_ptr<verbs::Device>> soft_nic_of(Device& device) {
  prepare_for_forks();
  watch_interfaces();
  const std::lock_guard lock(device.mutex);
  if (auto open = device.soft_nic.lock()) return open;
  FV_ASSIGN(const io::Interface interface, interface_of(device));
  const std::vector<IpAddress> addresses = gid_order(interface);
  if (addresses.empty()) {
    return Error{ENODEV, "interface " + device.interface_name + " has no IP address"};
  }
  verbs::DeviceOptions options;
  options.address = addresses.front();
  options.more_gids = kGidTableLength - 1;
  options.transport = wanted_transport();
  FV_ASSIGN(verbs::Device opened, verbs::Device::open(options));
  auto soft_nic = std::make_shared<verbs::Device>(std::move(opened));
  device.gids.clear();
  refresh_gids(device, interface);
  device.gids.front().opened = true;
  device.soft_nic = soft_nic;
  device.up = interface.up;
  return soft_nic;
}

Context::~Context() {
  if (context.cmd_fd >= 0) ::close(context.cmd_fd);
}

}  // namespace farverbs::abi

using namespace farverbs;
using namespace farverbs::abi;

#undef ibv_get_device_list

extern "C" {

ibv_device** ibv_get_device_list(int* num_devices) {
  if (num_devices != nullptr) *num_devices = 0;
  auto interfaces = usable_interfaces();
  if (!interfaces.ok()) return refuse_null("ibv_get_device_list", interfaces.error());
  auto** list = static_cast<ibv_device**>(std::calloc(interfaces->size() + 1, sizeof(ibv_device*)));
  if (list == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  size_t count = 0;
  for (const io::Interface& interface : *interfaces) list[count++] = &device_for(interface);
  if (num_devices != nullptr) *num_devices = static_cast<int>(count);
  return list;
}

// The devices outlive the list, so that programs which keep a pointer too long come to no harm.
void ibv_free_device_list(ibv_device** list) { std::free(list); }

const char* ibv_get_device_name(ibv_device* device) {
  return is_alive(Kind::kDevice, device) ? device->name : nullptr;
}

int ibv_get_device_index(ibv_device* device) {
  return is_alive(Kind::kDevice, device) ? of(device).index : -1;
}

__be64 ibv_get_device_guid(ibv_device* device) {
  return is_alive(Kind::kDevice, device) ? guid_of(of(device).interface_name) : 0;
}

ibv_context* ibv_open_device(ibv_device* device) {
  if (!is_alive(Kind::kDevice, device)) {
    return refuse_null("ibv_open_device", invalid("device is none of ibv_get_device_list"));
  }
  auto soft_nic = soft_nic_of(of(device));
  if (!soft_nic.ok()) return refuse_null("ibv_open_device", soft_nic.error());
  auto context = std::make_shared<Context>();
  context->owner = &of(device);
  context->soft_nic = std::move(*soft_nic);
  ibv_context& shown = context->context;
  // Programs poll it, or hand it to another process; nothing ever comes from it.
  shown.cmd_fd = ::eventfd(0, EFD_CLOEXEC);
  shown.async_fd = context->async.open();
  if (shown.cmd_fd < 0 || shown.async_fd < 0) {
    return refuse_null("ibv_open_device", Error::from_errno("cannot make a descriptor"));
  }
  shown.device = device;
  shown.num_comp_vectors = 1;
  pthread_mutex_init(&shown.mutex, nullptr);
  shown.abi_compat = __VERBS_ABI_IS_EXTENDED;
  context->sz = sizeof(verbs_context);
  set_operations(*context);
  context->self = context;
  add_handle(Kind::kContext, &shown);
  return &shown;
}

int ibv_close_device(ibv_context* context) {
  if (!remove_handle(Kind::kContext, context)) {
    return refuse("ibv_close_device", invalid("context is not that of an open device"));
  }
  // Objects that are still alive keep it.
  const ContextRef last = std::move(of(context).self);
  return 0;
}

ibv_context* ibv_import_device(int) {
  return refuse_null("ibv_import_device",
                     Error{EOPNOTSUPP, "a soft NIC lives in its process; open the device there"});
}

const char* ibv_get_sysfs_path(void) { return "/sys"; }

}  // extern "C"

FV_DEFAULT_VERSION(ibv_close_device);
FV_DEFAULT_VERSION(ibv_free_device_list);
FV_DEFAULT_VERSION(ibv_get_device_guid);
FV_DEFAULT_VERSION(ibv_get_device_list);
FV_DEFAULT_VERSION(ibv_get_device_name);
FV_DEFAULT_VERSION(ibv_open_device);
