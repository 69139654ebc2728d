// Devices: which network interfaces are RDMA devices, and the soft NICs that this process has
// opened there. A device is named fv_<interface>; its GID table is the interface's addresses, IPv4
// first.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "farverbs/abi/ibverbs/objects.h"
#include "farverbs/io/interfaces.h"

namespace farverbs::abi {

// Entries of a device's GID table, used or not.
inline constexpr int kGidTableLength = 32;

struct Registry {
  std::mutex mutex;
  std::map<std::string, Device*> devices;  // by interface
};
Registry& registry();

// The interfaces that can be devices: those with an IP address.
Result<std::vector<io::Interface>> usable_interfaces();
// The interface as it is now; ENODEV if it has gone.
Result<io::Interface> interface_of(const Device& device);
// Its addresses in the order of the GID table.
std::vector<IpAddress> gid_order(const io::Interface& interface);

// Brings the GID table up to date with the interface; true if it changed. The device is locked.
bool refresh_gids(Device& device, const io::Interface& interface);
// The table's entries as they are now; those that are not present have no address.
Result<std::vector<GidEntry>> gids_of(Device& device);
// Sees to it that the soft NIC answers at the GID of this index, so that an address vector may name
// it. EINVAL: there is none.
Result<void> use_gid(Context& context, uint8_t index);
// The same for all that there are: for QPs whose peers may have any of them.
void use_all_gids(Context& context);

// The device of an interface, made when it is first seen.
Device& device_for(const io::Interface& interface);
// The soft NIC of a device, opened if this process has none there.
Result<std::shared_ptr<verbs::Device>> soft_nic_of(Device& device);

// Network byte order; never zero.
uint64_t guid_of(const std::string& interface_name);

// Of the context's operations that the inline functions of verbs.h call.
void set_operations(Context& context);
// What they become in the child of a fork: refusals.
void revoke_operations(Context& context);

}  // namespace farverbs::abi
