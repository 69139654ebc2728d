#include "farverbs/abi/rdmacm/rsocket_datagrams.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>

#include "farverbs/abi/rdmacm/library.h"
#include "farverbs/base/byte_order.h"
#include "farverbs/io/interfaces.h"
#include "farverbs/io/socket_address.h"
#include "farverbs/wire/rsocket_messages.h"

namespace farverbs::rdmacm {

using wire::RsocketDatagram;
using wire::RsocketOp;
using wire::RsocketUdp;

namespace {

constexpr size_t kGrh = 40;
constexpr size_t kLongest = 2048;  // message with its header: what other implementations take
constexpr size_t kStride = kGrh + kLongest;
constexpr uint32_t kReceives = 128;
constexpr uint32_t kSends = 64;
constexpr size_t kMostKept = 384;
constexpr size_t kMostPeers = 4096;
constexpr uint64_t kReceive = uint64_t{1} << 63;

size_t header_size(const IpAddress& local) {
  return local.is_v4() ? RsocketDatagram::kIpv4Size : RsocketDatagram::kIpv6Size;
}

// Network order, as in a socket address.
void put_address(std::byte* to, const IpAddress& address) {
  if (address.is_v4()) {
    store_be(to, address.v4_value());
  } else {
    std::memcpy(to, address.bytes().data(), 16);
  }
}

void put_header(std::byte* to, const Endpoint& local) {
  RsocketDatagram header;
  const bool v4 = local.address.is_v4();
  header.version = v4 ? 4 : 6;
  header.length = static_cast<uint8_t>(header_size(local.address));
  header.port = local.port;
  emit_header(header, to);
  if (!v4) std::memset(to + RsocketDatagram::kSize, 0, 4);  // flow information
  put_address(to + RsocketDatagram::kSize + (v4 ? 0 : 4), local.address);
}

// Whose it is, and the data behind the header; nothing for what has no right header.
std::optional<Endpoint> take_header(std::span<const std::byte>& message) {
  if (message.size() < RsocketDatagram::kIpv4Size) return std::nullopt;
  const auto header = wire::parse_header<RsocketDatagram>(message.data());
  const std::byte* address = message.data() + RsocketDatagram::kSize;
  Endpoint from{{}, header.port};
  if (header.version == 4 && header.length == RsocketDatagram::kIpv4Size) {
    from.address = IpAddress::v4(load_be<uint32_t>(address));
  } else if (header.version == 6 && header.length == RsocketDatagram::kIpv6Size &&
             message.size() >= RsocketDatagram::kIpv6Size) {
    std::array<std::byte, 16> bytes;
    std::memcpy(bytes.data(), address + 4, bytes.size());
    from.address = IpAddress::v6(bytes);
  } else {
    return std::nullopt;
  }
  message = message.subspan(header.length);
  return from;
}

}  // namespace

std::shared_ptr<Datagrams> Datagrams::create(int family) {
  io::FileDescriptor udp(::socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!udp.valid()) return nullptr;
  rdma_event_channel* channel = rdma_create_event_channel();
  if (channel == nullptr) return nullptr;
  return std::shared_ptr<Datagrams>(new Datagrams(std::move(udp), channel));
}

Datagrams::~Datagrams() {
  for (const auto& [remote, peer] : peers_) {
    if (peer.handle != nullptr) ibv_destroy_ah(peer.handle);
  }
  outlets_.clear();
  rdma_destroy_event_channel(channel_);
}

Datagrams::Outlet::~Outlet() {
  if (id == nullptr) return;
  if (id->qp != nullptr) rdma_destroy_qp(id);
  if (id->recv_cq != nullptr) ibv_destroy_cq(id->recv_cq);
  if (id->recv_cq_channel != nullptr) ibv_destroy_comp_channel(id->recv_cq_channel);
  if (mr != nullptr) ibv_dereg_mr(mr);
  rdma_destroy_id(id);
}

int Datagrams::bind(const sockaddr* address) {
  return ::bind(udp_.get(), address, static_cast<socklen_t>(sockaddr_size(address)));
}

int Datagrams::connect(const sockaddr* address) {
  const std::lock_guard lock(mutex_);
  if (::connect(udp_.get(), address, static_cast<socklen_t>(sockaddr_size(address))) != 0) {
    return -1;
  }
  connected_ = to_endpoint(address);
  return peer_of(*connected_) != nullptr ? 0 : -1;
}

int Datagrams::name(bool of_peer, sockaddr* address, socklen_t* size) {
  return of_peer ? ::getpeername(udp_.get(), address, size)
                 : ::getsockname(udp_.get(), address, size);
}

void Datagrams::close() {
  const std::lock_guard lock(mutex_);
  progress();
}

// --- Peers ---

Datagrams::Outlet* Datagrams::outlet_at(const IpAddress& local) {
  if (const auto found = outlets_.find(local); found != outlets_.end()) return found->second.get();
  io::SocketAddress own = io::SocketAddress::empty();
  if (::getsockname(udp_.get(), &own.generic, &own.size) != 0) return nullptr;
  auto outlet = std::make_unique<Outlet>();
  outlet->local = {local, own.to_endpoint().port};
  if (rdma_create_id(channel_, &outlet->id, nullptr, RDMA_PS_UDP) != 0) return nullptr;
  rdma_cm_id* id = outlet->id;
  // Any port of the port space: the one that peers know is the UDP socket's.
  sockaddr_storage address = to_sockaddr({local, 0});
  if (rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&address)) != 0) return nullptr;
  if (with_device(id) == nullptr) return nullptr;
  id->send_cq_channel = id->recv_cq_channel = ibv_create_comp_channel(id->verbs);
  if (id->recv_cq_channel == nullptr) return nullptr;
  ::fcntl(id->recv_cq_channel->fd, F_SETFL, O_NONBLOCK);
  id->send_cq = id->recv_cq =
      ibv_create_cq(id->verbs, kReceives + kSends, nullptr, id->recv_cq_channel, 0);
  if (id->recv_cq == nullptr) return nullptr;
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = id->recv_cq;
  init.qp_type = IBV_QPT_UD;
  init.sq_sig_all = 1;
  init.cap = {kSends, kReceives, 1, 1, 0};
  if (rdma_create_qp(id, nullptr, &init) != 0) return nullptr;
  outlet->memory.resize(kStride * (kReceives + kSends));
  outlet->mr =
      ibv_reg_mr(id->pd, outlet->memory.data(), outlet->memory.size(), IBV_ACCESS_LOCAL_WRITE);
  if (outlet->mr == nullptr) return nullptr;
  ibv_port_attr port{};
  if (ibv_query_port(id->verbs, 1, &port) != 0) return nullptr;
  outlet->longest = std::min(kLongest, size_t{128} << port.active_mtu);
  for (uint32_t slot = 0; slot < kReceives; ++slot) post_receive(*outlet, slot);
  for (uint32_t slot = 0; slot < kSends; ++slot) outlet->free_sends.push_back(kReceives + slot);
  ibv_req_notify_cq(id->recv_cq, 0);
  return (outlets_[local] = std::move(outlet)).get();
}

Datagrams::Peer* Datagrams::peer_of(const Endpoint& remote) {
  if (const auto found = peers_.find(remote); found != peers_.end()) return &found->second;
  io::SocketAddress own = io::SocketAddress::empty();
  if (::getsockname(udp_.get(), &own.generic, &own.size) != 0) return nullptr;
  IpAddress local = own.to_endpoint().address;
  if (local.is_unspecified()) {
    const auto source = io::source_address_for(remote.address);
    if (!source.ok()) {
      fail(source.error());
      return nullptr;
    }
    local = *source;
  }
  Outlet* outlet = outlet_at(local);
  if (outlet == nullptr) return nullptr;
  if (peers_.size() >= kMostPeers) {
    // They tell their QPs again.
    for (const auto& [known, peer] : peers_) {
      if (peer.handle != nullptr) ibv_destroy_ah(peer.handle);
    }
    peers_.clear();
  }
  Peer& peer = peers_[remote];
  peer.outlet = outlet;
  return &peer;
}

void Datagrams::learn(Peer& peer, const Endpoint& remote, uint32_t qpn) {
  peer.qpn = qpn;
  if (peer.handle != nullptr) return;
  Library& library = Library::get();
  ibv_ah_attr attr{};
  {
    const std::lock_guard lock(library.mutex);
    const auto place = library.nics.find(peer.outlet->local.address);
    if (!place.ok()) return;
    attr.grh.sgid_index = place->gid_index;
  }
  const Gid gid = remote.address.to_gid();
  std::memcpy(attr.grh.dgid.raw, gid.data(), gid.size());
  attr.grh.hop_limit = 64;
  attr.is_global = 1;
  attr.port_num = 1;
  peer.handle = ibv_create_ah(peer.outlet->id->pd, &attr);
}

// --- Sending ---

ssize_t Datagrams::send_by_udp(const Peer& peer, const Endpoint& remote, const void* from,
                               size_t size, bool control) {
  const IpAddress& local = peer.outlet->local.address;
  std::byte bytes[RsocketUdp::kIpv6Size] = {};
  RsocketUdp header;
  header.version = local.is_v4() ? 4 : 6;
  header.op = static_cast<uint8_t>(control ? RsocketOp::control : RsocketOp::data);
  header.length =
      static_cast<uint8_t>(local.is_v4() ? RsocketUdp::kIpv4Size : RsocketUdp::kIpv6Size);
  header.qpn = Qpn(peer.outlet->id->qp->qp_num);
  emit_header(header, bytes);
  put_address(bytes + RsocketUdp::kSize, local);
  io::SocketAddress to(remote);
  iovec pieces[2] = {{bytes, header.length}, {const_cast<void*>(from), size}};
  msghdr message{};
  message.msg_name = &to.generic;
  message.msg_namelen = to.size;
  message.msg_iov = pieces;
  message.msg_iovlen = 2;
  const ssize_t sent = ::sendmsg(udp_.get(), &message, MSG_NOSIGNAL);
  return sent < 0 ? -1 : static_cast<ssize_t>(size);
}

ssize_t Datagrams::send(const void* from, size_t size, int, const sockaddr* to) {
  const std::lock_guard lock(mutex_);
  const std::optional<Endpoint> remote = to != nullptr ? to_endpoint(to) : connected_;
  if (!remote) return fail(to != nullptr ? EAFNOSUPPORT : EDESTADDRREQ);
  progress();
  Peer* peer = peer_of(*remote);
  if (peer == nullptr) return -1;
  Outlet& outlet = *peer->outlet;
  const size_t header = header_size(outlet.local.address);
  if (size > kLongest - RsocketDatagram::kIpv6Size) return fail(EMSGSIZE);
  // A send queue that is full empties by itself, within microseconds.
  for (int tries = 0; outlet.free_sends.empty() && tries < 1000; ++tries) take_completions(outlet);
  if (peer->handle == nullptr || header + size > outlet.longest || outlet.free_sends.empty()) {
    return send_by_udp(*peer, *remote, from, size, false);
  }
  const uint32_t slot = outlet.free_sends.back();
  std::byte* place = outlet.memory.data() + slot * kStride;
  put_header(place, outlet.local);
  if (size > 0) std::memcpy(place + header, from, size);
  ibv_sge sge{reinterpret_cast<uintptr_t>(place), static_cast<uint32_t>(header + size),
              outlet.mr->lkey};
  ibv_send_wr wr{};
  wr.wr_id = slot;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.wr.ud.ah = peer->handle;
  wr.wr.ud.remote_qpn = peer->qpn;
  wr.wr.ud.remote_qkey = RDMA_UDP_QKEY;
  ibv_send_wr* bad = nullptr;
  if (const int failed = ibv_post_send(outlet.id->qp, &wr, &bad); failed != 0) return fail(failed);
  outlet.free_sends.pop_back();
  return static_cast<ssize_t>(size);
}

// --- Receiving ---

void Datagrams::post_receive(Outlet& outlet, uint32_t slot) {
  ibv_sge sge{reinterpret_cast<uintptr_t>(outlet.memory.data() + slot * kStride), kStride,
              outlet.mr->lkey};
  ibv_recv_wr wr{};
  wr.wr_id = kReceive | slot;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  (void)ibv_post_recv(outlet.id->qp, &wr, &bad);
}

void Datagrams::keep(const Endpoint& from, std::span<const std::byte> bytes) {
  if (arrived_.size() < kMostKept) arrived_.push_back({from, {bytes.begin(), bytes.end()}});
}

void Datagrams::progress() {
  take_udp();
  for (const auto& [local, outlet] : outlets_) take_completions(*outlet);
}

void Datagrams::take_udp() {
  std::byte bytes[kLongest];
  for (;;) {
    io::SocketAddress source = io::SocketAddress::empty();
    const ssize_t size =
        ::recvfrom(udp_.get(), bytes, sizeof bytes, 0, &source.generic, &source.size);
    if (size < 0) return;
    if (static_cast<size_t>(size) < RsocketUdp::kIpv4Size) continue;
    const auto header = wire::parse_header<RsocketUdp>(bytes);
    const Endpoint from = source.to_endpoint();
    const size_t length = from.address.is_v4() ? RsocketUdp::kIpv4Size : RsocketUdp::kIpv6Size;
    if (header.tag != RsocketUdp::kTag || header.length != length ||
        static_cast<size_t>(size) < length) {
      continue;
    }
    Peer* peer = peer_of(from);
    if (peer == nullptr) continue;
    learn(*peer, from, header.qpn.value());
    if (header.op != static_cast<uint8_t>(RsocketOp::data)) continue;
    send_by_udp(*peer, from, nullptr, 0, true);
    keep(from, std::span(bytes, static_cast<size_t>(size)).subspan(length));
  }
}

void Datagrams::take_completions(Outlet& outlet) {
  ibv_wc completions[16];
  for (;;) {
    const int count = ibv_poll_cq(outlet.id->recv_cq, 16, completions);
    for (int i = 0; i < count; ++i) {
      const ibv_wc& wc = completions[i];
      const auto slot = static_cast<uint32_t>(wc.wr_id);
      if ((wc.wr_id & kReceive) == 0) {
        outlet.free_sends.push_back(slot);
        continue;
      }
      if (wc.status == IBV_WC_SUCCESS && wc.byte_len >= kGrh) {
        std::span<const std::byte> message(outlet.memory.data() + slot * kStride + kGrh,
                                           wc.byte_len - kGrh);
        const std::optional<Endpoint> from = take_header(message);
        if (from && (!connected_ || *from == *connected_)) keep(*from, message);
      }
      post_receive(outlet, slot);
    }
    if (count < 16) return;
  }
}

ssize_t Datagrams::receive(void* to, size_t size, int flags, sockaddr* peer, socklen_t* length) {
  std::vector<pollfd> waits;
  for (bool arm = false;; arm = true) {
    if ((ready(POLLIN, arm) & POLLIN) != 0) {
      const std::lock_guard lock(mutex_);
      if (!arrived_.empty()) {
        const Message& first = arrived_.front();
        const size_t count = std::min(size, first.bytes.size());
        if (count > 0) std::memcpy(to, first.bytes.data(), count);
        if (peer != nullptr && length != nullptr) {
          const sockaddr_storage address = to_sockaddr(first.from);
          const size_t whole = sockaddr_size(reinterpret_cast<const sockaddr*>(&address));
          std::memcpy(peer, &address, std::min<size_t>(*length, whole));
          *length = static_cast<socklen_t>(whole);
        }
        if ((flags & MSG_PEEK) == 0) arrived_.pop_front();
        return static_cast<ssize_t>(count);
      }
    }
    if (!blocking_ || (flags & MSG_DONTWAIT) != 0) return fail(EAGAIN);
    if (!arm) continue;
    waits.clear();
    add_waits(waits);
    if (::poll(waits.data(), waits.size(), -1) < 0) return -1;
  }
}

short Datagrams::ready(short events, bool arm) {
  const std::lock_guard lock(mutex_);
  if (arm) {
    for (const auto& [local, outlet] : outlets_) {
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      unsigned taken = 0;
      while (ibv_get_cq_event(outlet->id->recv_cq_channel, &cq, &context) == 0) ++taken;
      if (taken > 0) ibv_ack_cq_events(outlet->id->recv_cq, taken);
      ibv_req_notify_cq(outlet->id->recv_cq, 0);
    }
  }
  progress();
  short found = static_cast<short>(events & POLLOUT);
  if ((events & POLLIN) != 0 && !arrived_.empty()) found |= POLLIN;
  return found;
}

void Datagrams::add_waits(std::vector<pollfd>& waits) {
  const std::lock_guard lock(mutex_);
  waits.push_back({udp_.get(), POLLIN, 0});
  for (const auto& [local, outlet] : outlets_) {
    waits.push_back({outlet->id->recv_cq_channel->fd, POLLIN, 0});
  }
}

}  // namespace farverbs::rdmacm
