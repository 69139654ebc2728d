// What devices and ports say of themselves: ibv_query_device(3), ibv_query_device_ex(3),
// ibv_query_port(3), ibv_query_gid(3), ibv_query_gid_ex(3), ibv_query_pkey(3). Honest: what is not
// offered is zero.
#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "farverbs/abi/ibverbs/attributes.h"
#include "farverbs/abi/ibverbs/devices.h"
#include "farverbs/abi/ibverbs/domains.h"
#include "farverbs/abi/ibverbs/errors.h"
#include "farverbs/abi/ibverbs/versions.h"

namespace farverbs::abi {
namespace {

constexpr __be16 kDefaultPkey = 0xFFFF;  // the same in either byte order

// Width and speed codes whose product comes nearest below the link's speed (IBTA vol. 1 PortInfo).
void set_link_speed(const std::string& interface, ibv_port_attr& port) {
  long mbps = 0;
  std::ifstream("/sys/class/net/" + interface + "/speed") >> mbps;
  struct Rate {
    long mbps;
    uint8_t width;
    uint8_t speed;
  };
  // 1x and 4x links of 2.5, 10 and 25 Gb/s lanes.
  static constexpr Rate kRates[] = {
      {100'000, 2, 32}, {40'000, 2, 4}, {25'000, 1, 32}, {10'000, 1, 4}, {2'500, 1, 1}};
  // Interfaces without a speed (loopback, veth): about what the stack moves there.
  if (mbps <= 0) mbps = 25'000;
  const Rate* rate = std::find_if(std::begin(kRates), std::end(kRates) - 1,
                                  [&](const Rate& r) { return r.mbps <= mbps; });
  port.active_width = rate->width;
  port.active_speed = rate->speed;
}

ibv_mtu mtu_code(uint32_t interface_mtu) {
  constexpr uint32_t kHeaders = 80;  // as verbs::Device reckons
  ibv_mtu best = IBV_MTU_256;
  for (const ibv_mtu mtu : {IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096}) {
    if ((128u << mtu) + kHeaders <= interface_mtu) best = mtu;
  }
  return best;
}

Result<void> check_port(const ibv_context* context, uint32_t port) {
  if (!is_alive(Kind::kContext, context)) return invalid("context is not that of an open device");
  if (port != 1) return invalid("the device has one port, number 1; got " + std::to_string(port));
  return {};
}

ibv_gid to_public(const Gid& gid) {
  ibv_gid shown;
  std::memcpy(shown.raw, gid.data(), sizeof shown.raw);
  return shown;
}

}  // namespace

int query_device(ibv_context* context, ibv_device_attr& attr) {
  if (!is_alive(Kind::kContext, context)) {
    return refuse("ibv_query_device", invalid("context is not that of an open device"));
  }
  const Context& owner = of(context);
  const verbs::DeviceAttributes& can = owner.soft_nic->attributes();
  attr = {};
  std::strncpy(attr.fw_ver, "farverbs", sizeof attr.fw_ver - 1);
  attr.node_guid = attr.sys_image_guid = guid_of(owner.owner->interface_name);
  attr.max_mr_size = can.max_mr_size;
  attr.page_size_cap = 0xFFFF'F000;
  attr.vendor_id = 0xFF'FFFF;  // no vendor: other software devices say so too
  attr.max_qp = static_cast<int>(can.max_qp);
  attr.max_qp_wr = static_cast<int>(can.max_qp_wr);
  attr.device_cap_flags =
      IBV_DEVICE_BAD_QKEY_CNTR | IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT |
      IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_N_NOTIFY_CQ |
      IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  attr.max_sge = attr.max_sge_rd = attr.max_srq_sge = static_cast<int>(can.max_sge);
  attr.max_cq = static_cast<int>(can.max_cq);
  attr.max_cqe = static_cast<int>(can.max_cqe);
  attr.max_mr = attr.max_mw = static_cast<int>(can.max_mr);
  attr.max_pd = 1 << 20;
  attr.max_qp_rd_atom = attr.max_qp_init_rd_atom = can.max_rd_atomic;
  attr.max_res_rd_atom = can.max_rd_atomic * attr.max_qp;
  attr.atomic_cap = IBV_ATOMIC_HCA;
  attr.max_ah = 1 << 20;
  attr.max_srq = static_cast<int>(can.max_srq);
  attr.max_srq_wr = static_cast<int>(can.max_srq_wr);
  attr.max_mcast_grp = 1 << 10;
  attr.max_mcast_qp_attach = attr.max_total_mcast_qp_attach = attr.max_qp;
  attr.max_pkeys = 1;
  attr.local_ca_ack_delay = 15;  // 134 ms: a process that is not scheduled answers late
  attr.phys_port_cnt = 1;
  return 0;
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attr, size_t attr_size) {
  if (attr == nullptr || attr_size < sizeof attr->orig_attr) return EINVAL;
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  ibv_device_attr_ex all{};
  if (const int code = query_device(context, all.orig_attr); code != 0) return code;
  // Completions can be stamped by a clock of nanoseconds: a kilohertz number of a million.
  all.completion_timestamp_mask = UINT64_MAX;
  all.hca_core_clock = 1'000'000;
  all.device_cap_flags_ex = all.orig_attr.device_cap_flags;
  all.max_dm_size = kDeviceMemoryBytes;
  // Nothing is pinned, so every region is registered on demand.
  constexpr uint32_t kDatagrams = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV;
  constexpr uint32_t kUnreliable = kDatagrams | IBV_ODP_SUPPORT_WRITE;
  all.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  all.odp_caps.per_transport_caps.rc_odp_caps =
      kUnreliable | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV;
  all.odp_caps.per_transport_caps.uc_odp_caps = kUnreliable;
  all.odp_caps.per_transport_caps.ud_odp_caps = kDatagrams;
  all.phys_port_cnt_ex = 1;
  std::memset(static_cast<void*>(attr), 0, attr_size);
  std::memcpy(static_cast<void*>(attr), &all, std::min(attr_size, sizeof all));
  return 0;
}

int query_port(ibv_context* context, uint8_t number, ibv_port_attr* attr, size_t size) {
  if (attr == nullptr) return EINVAL;
  if (auto checked = check_port(context, number); !checked.ok()) {
    return refuse("ibv_query_port", checked.error());
  }
  const Context& owner = of(context);
  ibv_port_attr port{};
  const auto interface = interface_of(*owner.owner);
  const bool up = interface.ok() && interface->up;
  port.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  port.max_mtu = IBV_MTU_4096;
  port.active_mtu = mtu_code(interface.ok() ? interface->mtu : 1500);
  port.gid_tbl_len = kGidTableLength;
  port.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
  port.max_msg_sz = owner.soft_nic->attributes().max_message_bytes;
  port.pkey_tbl_len = 1;
  port.max_vl_num = 1;
  port.phys_state = up ? 5 : 3;  // LinkUp, Disabled
  port.link_layer = IBV_LINK_LAYER_ETHERNET;
  set_link_speed(owner.owner->interface_name, port);
  std::memset(static_cast<void*>(attr), 0, size);
  std::memcpy(static_cast<void*>(attr), &port, std::min(size, sizeof port));
  return 0;
}

Result<std::vector<ibv_gid_entry>> gid_table(const Context& context) {
  FV_ASSIGN(const std::vector<GidEntry> gids, gids_of(*context.owner));
  std::vector<ibv_gid_entry> table;
  for (size_t index = 0; index < gids.size(); ++index) {
    if (!gids[index].present) continue;
    ibv_gid_entry entry{};
    entry.gid = to_public(gids[index].address.to_gid());
    entry.gid_index = static_cast<uint32_t>(index);
    entry.port_num = 1;
    entry.gid_type = IBV_GID_TYPE_ROCE_V2;
    entry.ndev_ifindex = static_cast<uint32_t>(context.owner->index);
    table.push_back(entry);
  }
  return table;
}

Result<std::optional<ibv_gid_entry>> gid_at(const Context& context, uint32_t index) {
  FV_ASSIGN(const std::vector<ibv_gid_entry> table, gid_table(context));
  for (const ibv_gid_entry& entry : table) {
    if (entry.gid_index == index) return std::optional(entry);
  }
  return std::optional<ibv_gid_entry>();
}

}  // namespace farverbs::abi

using namespace farverbs;
using namespace farverbs::abi;

#undef ibv_query_port

extern "C" {

int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  if (attr == nullptr) return EINVAL;
  return query_device(context, *attr);
}

// Programs built before port_cap_flags2 existed: their struct ends with `flags`.
int ibv_query_port(ibv_context* context, uint8_t port, struct _compat_ibv_port_attr* attr) {
  constexpr size_t kThroughFlags = offsetof(ibv_port_attr, flags) + sizeof(uint8_t);
  return query_port(context, port, reinterpret_cast<ibv_port_attr*>(attr), kThroughFlags);
}

int ibv_query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
  // This call's manual page promises -1 alone.
  const auto fail = [](const Error& error) {
    errno = refuse("ibv_query_gid", error);
    return -1;
  };
  if (gid == nullptr) return fail(invalid("gid is null"));
  if (auto checked = check_port(context, port); !checked.ok()) return fail(checked.error());
  if (index < 0 || index >= kGidTableLength) {
    return fail(invalid("index must be 0 to " + std::to_string(kGidTableLength - 1) + ", got " +
                        std::to_string(index)));
  }
  const auto entry = gid_at(of(context), static_cast<uint32_t>(index));
  if (!entry.ok()) return fail(entry.error());
  // An entry without an address reads as zeros.
  *gid = entry->has_value() ? (*entry)->gid : ibv_gid{};
  return 0;
}

int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
                      uint32_t flags, size_t entry_size) {
  if (entry == nullptr || flags != 0) return EINVAL;
  if (auto checked = check_port(context, port); !checked.ok()) {
    return refuse("ibv_query_gid_ex", checked.error());
  }
  if (index >= static_cast<uint32_t>(kGidTableLength)) return EINVAL;
  const auto found = gid_at(of(context), index);
  if (!found.ok()) return refuse("ibv_query_gid_ex", found.error());
  if (!found->has_value()) return ENODATA;
  std::memset(static_cast<void*>(entry), 0, entry_size);
  std::memcpy(static_cast<void*>(entry), &**found, std::min(entry_size, sizeof *entry));
  return 0;
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t max_entries,
                             uint32_t flags, size_t entry_size) {
  if (entries == nullptr || flags != 0 || entry_size == 0) return -EINVAL;
  if (!is_alive(Kind::kContext, context)) return -EINVAL;
  const auto table = gid_table(of(context));
  if (!table.ok()) return -refuse("ibv_query_gid_table", table.error());
  if (table->size() > max_entries) return -EINVAL;
  auto* place = reinterpret_cast<std::byte*>(entries);
  for (const ibv_gid_entry& entry : *table) {
    std::memset(place, 0, entry_size);
    std::memcpy(place, &entry, std::min(entry_size, sizeof entry));
    place += entry_size;
  }
  return static_cast<ssize_t>(table->size());
}

// Of libibverbs' private interface, but ibv_devinfo and pyverbs call it. Sysfs knows two types:
// what is not RoCE version 2 is 0.
int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned int index, int* type) {
  const auto fail = [](int code) {
    errno = code;
    return -1;
  };
  if (type == nullptr || !check_port(context, port).ok()) return fail(EINVAL);
  if (index >= static_cast<unsigned>(kGidTableLength)) return fail(EINVAL);
  const auto found = gid_at(of(context), index);
  if (!found.ok()) return fail(found.error().code);
  *type = found->has_value() ? 1 : 0;
  return 0;
}

int ibv_query_pkey(ibv_context* context, uint8_t port, int index, __be16* pkey) {
  if (pkey == nullptr || index != 0 || !check_port(context, port).ok()) {
    errno = EINVAL;
    return -1;
  }
  *pkey = kDefaultPkey;
  return 0;
}

int ibv_get_pkey_index(ibv_context* context, uint8_t port, __be16 pkey) {
  if (pkey != kDefaultPkey || !check_port(context, port).ok()) {
    errno = EINVAL;
    return -1;
  }
  return 0;
}

}  // extern "C"

FV_DEFAULT_VERSION(ibv_query_device);
FV_DEFAULT_VERSION(ibv_query_gid);
FV_DEFAULT_VERSION(ibv_query_pkey);
FV_DEFAULT_VERSION(ibv_query_port);
