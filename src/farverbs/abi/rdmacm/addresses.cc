// Addresses: binding, resolving and routes; and the options of an identifier. rdma_bind_addr(3),
// rdma_resolve_addr(3), rdma_resolve_route(3), rdma_listen(3), rdma_set_option(3).
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "farverbs/abi/rdmacm/library.h"
#include "farverbs/io/interfaces.h"
#include "farverbs/io/os_clock.h"
#include "farverbs/io/socket_address.h"

namespace farverbs::rdmacm {
namespace {

constexpr uint16_t kFirstEphemeral = 32'768;
constexpr uint16_t kEphemeralPorts = 28'232;
constexpr size_t kMostBacklog = 4096;

uint16_t ephemeral_port() {
  static io::OsEntropy entropy;  // under the library's lock
  return static_cast<uint16_t>(kFirstEphemeral + entropy.next() % kEphemeralPorts);
}

IpAddress any_of(const IpAddress& like) { return like.is_v4() ? IpAddress() : IpAddress::v6({}); }

std::string name_of(const Id& id, const IpAddress& address, uint16_t port) {
  return io::service_name({address, kRoceUdpPort},
                          wire::ip_service_id(static_cast<uint16_t>(id.ps), port));
}

// Claims a port: its names for the address, or for all addresses of one or both families.
Result<void> claim(Id& id, const IpAddress& address, uint16_t port) {
  std::vector<IpAddress> addresses{address};
  if (address.is_unspecified() && address.is_v6() && !id.v6_only) addresses.emplace_back();
  std::vector<io::ManagementSocket> sockets;
  for (const IpAddress& each : addresses) {
    // Who has the port for all addresses has it for this one.
    if (!each.is_unspecified() && io::is_bound(name_of(id, any_of(each), port))) {
      return Error{EADDRINUSE, "the port is bound for all addresses"};
    }
    auto socket = io::ManagementSocket::bind(name_of(id, each, port));
    if (!socket.ok()) return std::move(socket).error();
    sockets.push_back(std::move(*socket));
  }
  id.sockets = std::move(sockets);
  return {};
}

Result<uint16_t> claim_some_port(Id& id, const IpAddress& address) {
  for (int tries = 0; tries < 1000; ++tries) {
    const uint16_t port = ephemeral_port();
    if (claim(id, address, port).ok()) return port;
  }
  return Error{EADDRNOTAVAIL, "no port is free"};
}

// Where there is a device of a network, who binds to loopback is told of no device yet, as the
// kernel has it: a peer that asks or is asked decides it. libfabric, which binds to localhost to
// learn what there is, would else look at the loopback device alone.
bool decides_device(const Nics& nics, const Nics::Place& place, const IpAddress& address) {
  if (!address.is_loopback()) return true;
  return std::none_of(nics.all().begin(), nics.all().end(), [&](const auto& nic) {
    ibv_gid gid{};
    return nic.get() != place.nic && ibv_query_gid(nic->context, 1, 0, &gid) == 0;
  });
}

Result<void> bind(Library& library, Id& id, const Endpoint& wanted) {
  FV_TRY(library.agent());
  const bool any = wanted.address.is_unspecified();
  Nics::Place place;
  if (any) {
    library.nics.open_all();
    for (const auto& nic : library.nics.all()) (void)Nics::prepare(*nic);
  } else {
    FV_ASSIGN(place, library.nics.find(wanted.address));
    if (!Nics::prepare(*place.nic)) return Error::from_errno("cannot make a GSI QP");
  }
  uint16_t port = wanted.port;
  if (port == 0) {
    FV_ASSIGN(port, claim_some_port(id, wanted.address));
  } else if (Result<void> claimed = claim(id, wanted.address, port); !claimed.ok()) {
    // Another may have it, as long as only one of them listens.
    if (claimed.error().code != EADDRINUSE || !id.reuse_address) return claimed;
  }
  set_local(id, {wanted.address, port});
  id.bound_to_any = any;
  if (!any) {
    set_place(id, place);
    if (!decides_device(library.nics, place, wanted.address)) {
      id.verbs = nullptr;
      id.pd = nullptr;
    }
  }
  id.state = IdState::kBound;
  if (id.sockets.empty()) return {};
  Result<void> watched = library.watch(id);
  if (!watched.ok()) {
    id.sockets.clear();
    id.state = IdState::kIdle;
  }
  return watched;
}

// Finds the local end of the way to id.remote; an errno value, negative, if there is none.
int resolve(Library& library, Id& id) {
  IpAddress local = id.local.address;
  if (id.state == IdState::kIdle || id.bound_to_any) {
    const auto source = io::source_address_for(id.remote.address);
    if (!source.ok()) return -source.error().code;
    local = *source;
  }
  if (!same_family(local, id.remote.address)) return -EINVAL;
  const auto place = library.nics.find(local);
  if (!place.ok()) return -place.error().code;
  const uint16_t port = id.local.port != 0 ? id.local.port : ephemeral_port();
  set_local(id, {local, port});
  set_place(id, *place);
  id.path.local = local;
  id.path.remote = id.remote.address;
  return 0;
}

}  // namespace

sockaddr_storage to_sockaddr(const Endpoint& endpoint) {
  const io::SocketAddress address(endpoint);
  sockaddr_storage storage{};
  std::memcpy(&storage, &address.generic, address.size);
  return storage;
}

std::optional<Endpoint> to_endpoint(const sockaddr* address) {
  if (address == nullptr || (address->sa_family != AF_INET && address->sa_family != AF_INET6)) {
    return std::nullopt;
  }
  io::SocketAddress copy;
  copy.size = static_cast<socklen_t>(sockaddr_size(address));
  std::memcpy(&copy.generic, address, copy.size);
  Endpoint endpoint = copy.to_endpoint();
  if (endpoint.address.is_v6() && !endpoint.address.is_unspecified()) {
    endpoint.address = IpAddress::from_gid(endpoint.address.bytes());
  }
  return endpoint;
}

size_t sockaddr_size(const sockaddr* address) {
  return address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

void set_local(Id& id, const Endpoint& local) {
  id.local = local;
  id.route.addr.src_storage = to_sockaddr(local);
}
void set_remote(Id& id, const Endpoint& remote) {
  id.remote = remote;
  id.route.addr.dst_storage = to_sockaddr(remote);
}
void set_place(Id& id, const Nics::Place& place) {
  id.nic = place.nic;
  id.gid_index = place.gid_index;
  id.verbs = place.nic->context;
  id.port_num = 1;
  id.pd = id.pd != nullptr ? id.pd : place.nic->pd;
  rdma_ib_addr& gids = id.route.addr.addr.ibaddr;
  const Gid local = id.local.address.to_gid();
  const Gid remote = id.remote.address.to_gid();
  std::memcpy(gids.sgid.raw, local.data(), local.size());
  std::memcpy(gids.dgid.raw, remote.data(), remote.size());
  gids.pkey = 0xFFFF;
}

void fill_path_record(Id& id) {
  constexpr uint8_t kExactly = 2;
  ibv_sa_path_rec& record = id.path_record;
  record = {};
  record.sgid = id.route.addr.addr.ibaddr.sgid;
  record.dgid = id.route.addr.addr.ibaddr.dgid;
  record.hop_limit = 64;
  record.traffic_class = id.path.traffic_class;
  record.reversible = 1;
  record.numb_path = 1;
  record.pkey = 0xFFFF;
  record.mtu_selector = kExactly;
  record.mtu = static_cast<uint8_t>(Nics::active_mtu(*id.nic));
  record.rate_selector = kExactly;
  record.rate = IBV_RATE_10_GBPS;
  record.packet_life_time_selector = kExactly;
  record.packet_life_time = 18;
  id.route.path_rec = &record;
  id.route.num_paths = 1;
}

}  // namespace farverbs::rdmacm

using namespace farverbs;
using namespace farverbs::rdmacm;

extern "C" {

int rdma_bind_addr(rdma_cm_id* id, sockaddr* addr) {
  const auto wanted = to_endpoint(addr);
  if (addr == nullptr) return fail(EINVAL);
  if (!wanted) return fail(EAFNOSUPPORT);
  Library& library = Library::get();
  const std::lock_guard lock(library.mutex);
  if (!library.alive(id) || of(id)->state != IdState::kIdle) return fail(EINVAL);
  const auto bound = bind(library, *of(id), *wanted);
  return bound.ok() ? 0 : fail(bound.error());
}

int rdma_listen(rdma_cm_id* id, int backlog) {
  Library& library = Library::get();
  const std::lock_guard lock(library.mutex);
  if (!library.alive(id)) return fail(EINVAL);
  Id& listener = *of(id);
  if (listener.state == IdState::kIdle) {
    if (const auto bound = bind(library, listener, {}); !bound.ok()) return fail(bound.error());
  }
  if (listener.state != IdState::kBound) return fail(EINVAL);
  if (listener.sockets.empty()) {
    // It had been bound beside another.
    if (const auto claimed = claim(listener, listener.local.address, listener.local.port);
        !claimed.ok()) {
      return fail(claimed.error());
    }
    if (const auto watched = library.watch(listener); !watched.ok()) return fail(watched.error());
  }
  const size_t wanted = backlog > 0 ? static_cast<size_t>(backlog) : kMostBacklog;
  library.listen(listener, std::min(wanted, kMostBacklog));
  listener.state = IdState::kListening;
  return 0;
}

int rdma_resolve_addr(rdma_cm_id* id, sockaddr* src_addr, sockaddr* dst_addr, int) {
  auto remote = to_endpoint(dst_addr);
  if (dst_addr == nullptr) return fail(EINVAL);
  if (!remote) return fail(EAFNOSUPPORT);
  Library& library = Library::get();
  {
    const std::lock_guard lock(library.mutex);
    if (!library.alive(id)) return fail(EINVAL);
    Id& active = *of(id);
    if (active.state != IdState::kIdle && active.state != IdState::kBound) return fail(EINVAL);
    if (src_addr != nullptr && active.state == IdState::kIdle) {
      const auto source = to_endpoint(src_addr);
      if (!source) return fail(EAFNOSUPPORT);
      if (!source->address.is_unspecified() || source->port != 0) {
        if (source->port != 0) {
          const auto bound = bind(library, active, *source);
          if (!bound.ok()) return fail(bound.error());
        } else {
          const auto place = library.nics.find(source->address);
          if (!place.ok()) return fail(place.error());
          set_local(active, *source);
          active.state = IdState::kBound;
        }
      }
    }
    // To no address in particular is to this host.
    if (remote->address.is_unspecified()) {
      remote->address =
          remote->address.is_v4() ? IpAddress::v4(0x7f00'0001) : *IpAddress::parse("::1");
    }
    set_remote(active, *remote);
    const int status = resolve(library, active);
    if (status == 0) active.state = IdState::kAddressResolved;
    library.push(active, status == 0 ? RDMA_CM_EVENT_ADDR_RESOLVED : RDMA_CM_EVENT_ADDR_ERROR,
                 status);
  }
  return complete(of(id));
}

int rdma_resolve_route(rdma_cm_id* id, int) {
  Library& library = Library::get();
  {
    const std::lock_guard lock(library.mutex);
    if (!library.alive(id) || of(id)->state != IdState::kAddressResolved) return fail(EINVAL);
    Id& active = *of(id);
    if (active.has_tos) active.path.traffic_class = active.tos;
    fill_path_record(active);
    active.state = IdState::kRouteResolved;
    library.push(active, RDMA_CM_EVENT_ROUTE_RESOLVED);
  }
  return complete(of(id));
}

__be16 rdma_get_src_port(rdma_cm_id* id) {
  Library& library = Library::get();
  const std::lock_guard lock(library.mutex);
  return library.alive(id) ? htons(of(id)->local.port) : 0;
}

__be16 rdma_get_dst_port(rdma_cm_id* id) {
  Library& library = Library::get();
  const std::lock_guard lock(library.mutex);
  return library.alive(id) ? htons(of(id)->remote.port) : 0;
}

int rdma_set_option(rdma_cm_id* id, int level, int optname, void* optval, size_t optlen) {
  Library& library = Library::get();
  const std::lock_guard lock(library.mutex);
  if (!library.alive(id) || optval == nullptr) return fail(EINVAL);
  Id& target = *of(id);
  if (level == RDMA_OPTION_IB && optname == RDMA_OPTION_IB_PATH) {
    // Between IP addresses the route is the network's; what a caller found out elsewhere says no
    // more.
    if (optlen < sizeof(ibv_path_data)) return fail(EINVAL);
    if (target.state == IdState::kAddressResolved) {
      fill_path_record(target);
      target.state = IdState::kRouteResolved;
      library.push(target, RDMA_CM_EVENT_ROUTE_RESOLVED);
    }
    return 0;
  }
  if (level != RDMA_OPTION_ID) return fail(ENOSYS);
  const auto byte = [&] { return *static_cast<const uint8_t*>(optval); };
  const auto number = [&] {
    int value = 0;
    std::memcpy(&value, optval, sizeof value);
    return value != 0;
  };
  switch (optname) {
    case RDMA_OPTION_ID_TOS:
      if (optlen != sizeof(uint8_t)) return fail(EINVAL);
      target.has_tos = true;
      target.tos = byte();
      return 0;
    case RDMA_OPTION_ID_REUSEADDR:
      if (optlen != sizeof(int) || target.state != IdState::kIdle) return fail(EINVAL);
      target.reuse_address = number();
      return 0;
    case RDMA_OPTION_ID_AFONLY:
      if (optlen != sizeof(int) || target.state != IdState::kIdle) return fail(EINVAL);
      target.v6_only = number();
      return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      if (optlen != sizeof(uint8_t) || byte() > 31) return fail(EINVAL);
      target.has_ack_timeout = true;
      target.ack_timeout = byte();
      return 0;
    default:
      return fail(ENOSYS);
  }
}

}  // extern "C"
