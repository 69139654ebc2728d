#include "farverbs/abi/rdmacm/nics.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>

#include "farverbs/base/byte_order.h"
#include "farverbs/io/os_clock.h"

namespace farverbs::rdmacm {
namespace {

// libibverbs has no name for it; the kernel's number of the general services QP is 1.
constexpr auto kGsi = static_cast<ibv_qp_type>(1);
constexpr uint32_t kDepth = 1024;
constexpr unsigned kPollAfter = 256;
constexpr size_t kMostHandles = 4096;
constexpr int kMostGids = 256;

IpAddress address_of(const ibv_gid& gid) {
  Gid bytes;
  std::memcpy(bytes.data(), gid.raw, bytes.size());
  return IpAddress::from_gid(bytes);
}

}  // namespace

void Nics::open_all() {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr) return;
  for (int i = 0; i < count; ++i) {
    const std::string name = ibv_get_device_name(list[i]);
    if (std::any_of(nics_.begin(), nics_.end(), [&](auto& nic) { return nic->name == name; })) {
      continue;
    }
    auto nic = std::make_unique<Nic>();
    nic->name = name;
    // One that cannot be opened (its port is another user's) takes nothing from the others.
    nic->context = ibv_open_device(list[i]);
    if (nic->context == nullptr) continue;
    const auto guid = ibv_get_device_guid(list[i]);
    nic->guid = load_be<uint64_t>(reinterpret_cast<const std::byte*>(&guid));
    nics_.push_back(std::move(nic));
  }
  ibv_free_device_list(list);
}

std::optional<Nics::Place> Nics::look(const IpAddress& local) const {
  for (const auto& nic : nics_) {
    ibv_gid_entry entries[kMostGids];
    const ssize_t count = ibv_query_gid_table(nic->context, entries, kMostGids, 0);
    for (ssize_t i = 0; i < count; ++i) {
      const ibv_gid_entry& entry = entries[i];
      if (entry.gid_type == IBV_GID_TYPE_ROCE_V2 && address_of(entry.gid) == local) {
        return Place{nic.get(), static_cast<uint8_t>(entry.gid_index)};
      }
    }
  }
  return std::nullopt;
}

Result<Nics::Place> Nics::find(const IpAddress& local) {
  if (const auto known = known_.find(local); known != known_.end()) return known->second;
  std::optional<Place> place = look(local);
  if (!place) {
    open_all();
    place = look(local);
  }
  if (!place) {
    return Error{ENODEV, "no RDMA device has the address " + local.to_string()};
  }
  known_[local] = *place;
  return *place;
}

ibv_mtu Nics::active_mtu(Nic& nic) {
  // To ask takes a hundred microseconds, and it hardly ever changes.
  constexpr Duration kAskAfter = Duration::seconds(1);
  const Time now = io::os_now();
  if (nic.mtu_asked.is_never() || now - nic.mtu_asked >= kAskAfter) {
    ibv_port_attr port{};
    if (ibv_query_port(nic.context, 1, &port) == 0) nic.mtu = port.active_mtu;
    nic.mtu_asked = now;
  }
  return nic.mtu;
}

bool Nics::prepare(Nic& nic) {
  if (nic.gsi != nullptr) return true;
  if (nic.pd == nullptr) nic.pd = ibv_alloc_pd(nic.context);
  if (nic.cq == nullptr) nic.cq = ibv_create_cq(nic.context, kDepth, nullptr, nullptr, 0);
  if (nic.pd == nullptr || nic.cq == nullptr) return false;
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = nic.cq;
  init.qp_type = kGsi;
  init.sq_sig_all = 1;
  init.cap = {kDepth, 1, 1, 1, wire::kMadSize};
  ibv_qp* qp = ibv_create_qp(nic.pd, &init);
  if (qp == nullptr) return false;
  ibv_qp_attr attr{};
  attr.port_num = 1;
  attr.qkey = wire::kGsiQkey;
  attr.qp_state = IBV_QPS_INIT;
  int failed =
      ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  attr.qp_state = IBV_QPS_RTR;
  if (failed == 0) failed = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
  attr.qp_state = IBV_QPS_RTS;
  if (failed == 0) failed = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
  if (failed != 0) {
    ibv_destroy_qp(qp);
    return false;
  }
  nic.gsi = qp;
  return true;
}

void Nics::poll(Nic& nic) {
  ibv_wc completions[32];
  while (nic.unpolled > 0) {
    const int count = ibv_poll_cq(nic.cq, 32, completions);
    if (count <= 0) break;
    nic.unpolled -= std::min(nic.unpolled, static_cast<unsigned>(count));
  }
}

void Nics::finish() {
  constexpr Duration kPatience = Duration::milliseconds(250);
  constexpr int kMoreTurns = 2;
  const Time end = io::os_now() + kPatience;
  for (const auto& nic : nics_) {
    if (nic->gsi == nullptr) continue;
    // A turn of the device sends and receives; another thread may be in the midst of one.
    while (nic->unpolled > 0 && io::os_now() < end) {
      poll(*nic);
      std::this_thread::yield();
    }
    for (int i = 0; i < kMoreTurns; ++i) {
      ibv_wc completion;
      ibv_poll_cq(nic->cq, 1, &completion);
      // Asking a QP waits until a turn that another thread is in is over.
      ibv_qp_attr attr;
      ibv_qp_init_attr init;
      ibv_query_qp(nic->gsi, &attr, IBV_QP_STATE, &init);
    }
  }
}

void Nics::send(const proto::CmOutgoing& message) {
  const auto place = find(message.path.local);
  if (!place.ok() || !prepare(*place->nic)) return;
  Nic& nic = *place->nic;
  const proto::CmPath& path = message.path;
  const uint8_t hops = path.hop_limit != 0 ? path.hop_limit : 64;
  if (nic.handles.size() >= kMostHandles) {
    for (const auto& [key, handle] : nic.handles) ibv_destroy_ah(handle);
    nic.handles.clear();
  }
  ibv_ah*& handle = nic.handles[{path.remote, path.traffic_class, hops, place->gid_index}];
  if (handle == nullptr) {
    ibv_ah_attr attr{};
    const Gid gid = path.remote.to_gid();
    std::memcpy(attr.grh.dgid.raw, gid.data(), gid.size());
    attr.grh.sgid_index = place->gid_index;
    attr.grh.hop_limit = hops;
    attr.grh.traffic_class = path.traffic_class;
    attr.is_global = 1;
    attr.port_num = 1;
    handle = ibv_create_ah(nic.pd, &attr);
    if (handle == nullptr) return;
  }
  // Few completions are to be fetched at a time: a thread that polls in vain is taken for one that
  // drives the device.
  if (nic.unpolled >= kPollAfter) poll(nic);
  ibv_sge sge{};
  sge.addr = reinterpret_cast<uintptr_t>(message.mad.data());
  sge.length = wire::kMadSize;
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
  wr.wr.ud.ah = handle;
  wr.wr.ud.remote_qpn = kManagementQpn.value();
  wr.wr.ud.remote_qkey = wire::kGsiQkey;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(nic.gsi, &wr, &bad) == 0) ++nic.unpolled;
}

}  // namespace farverbs::rdmacm
