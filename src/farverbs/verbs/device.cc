#include <sys/eventfd.h>

#include <algorithm>

#include "farverbs/io/shared_port.h"
#include "farverbs/io/udp_port.h"
#include "farverbs/verbs/state.h"

namespace farverbs::verbs {
namespace {

// IP, UDP, BTH and the longest extended headers around a payload, as other RoCE stacks reckon: an
// interface of 1,500 bytes carries a path MTU of 1,024.
constexpr uint32_t kHeaderReserve = 80;

PathMtu largest_path_mtu(uint32_t interface_mtu) {
  PathMtu best = PathMtu::k256;
  for (const PathMtu mtu : {PathMtu::k512, PathMtu::k1024, PathMtu::k2048, PathMtu::k4096}) {
    if (model::bytes_of(mtu) + kHeaderReserve <= interface_mtu) best = mtu;
  }
  return best;
}

}  // namespace

namespace detail {

void AsyncEvents::on_async_event(const model::AsyncEvent& event) {
  {
    std::lock_guard lock(mutex_);
    events_.push_back(event);
  }
  waker_.wake();
}

std::optional<AsyncEvent> AsyncEvents::pop() {
  std::lock_guard lock(mutex_);
  if (events_.empty()) return std::nullopt;
  const model::AsyncEvent event = events_.front();
  events_.pop_front();
  if (events_.empty()) waker_.drain();
  return AsyncEvent{event.type, event.element};
}

}  // namespace detail

Result<Device> Device::open(const DeviceOptions& options) {
  if (options.shards < 1 || options.shards > 64) {
    return invalid("shards must be 1 to 64, got " + std::to_string(options.shards));
  }
  if (options.max_window_packets < 4096 || options.max_window_packets > (1u << 22)) {
    return invalid("max_window_packets must be 4096 to 4194304, got " +
                   std::to_string(options.max_window_packets));
  }
  if (options.more_gids > 0 && (options.shards != 1 || !options.share_port)) {
    return invalid("more_gids needs share_port and one shard");
  }
  FV_ASSIGN(io::Interface interface, io::find_interface(options.address));
  FV_ASSIGN(io::Waker waker, io::Waker::create());
  auto state =
      std::make_shared<detail::DeviceState>(options, std::move(interface), std::move(waker));
  state->max_path_mtu = largest_path_mtu(state->interface.mtu);

  engine::LoopConfig config;
  config.transport.max_window_packets = options.max_window_packets;
  if (options.transport != Transport::kStandard) {
    config.transport.far_use = proto::FarUse::kNegotiate;
  }
  config.limits.max_rd_atomic = state->attributes.max_rd_atomic;
  config.limits.max_dest_rd_atomic = state->attributes.max_rd_atomic;
  config.limits.max_path_mtu = state->max_path_mtu;
  config.limits.gid_count = options.more_gids + 1u;
  config.fixed_window_bytes = options.fixed_window_bytes;
  // A jumbo frame at most: above, more would be lost with a packet than is won.
  constexpr uint32_t kMostMtu = 9'000;
  const uint32_t headers = options.address.is_v4() ? 28 : 48;
  config.datagram_ceiling = std::min(state->interface.mtu, kMostMtu) - headers;
  for (unsigned i = 0; i < options.shards; ++i) {
    io::UdpOptions udp;
    udp.local = {options.address, options.udp_port};
    std::unique_ptr<io::Port> port;
    uint8_t slot = 0;
    if (options.share_port || options.shards > 1) {
      FV_ASSIGN(auto shared, io::SharedPort::open(udp, state->entropy));
      slot = shared->slot();
      state->shared_ports.push_back(shared.get());
      if (options.more_gids > 0) {
        FV_ASSIGN(auto several, io::AddressesPort::create(std::move(shared)));
        state->addresses_port = several.get();
        port = std::move(several);
      } else {
        port = std::move(shared);
      }
    } else {
      FV_ASSIGN(port, io::UdpPort::open(udp));
    }
    FV_ASSIGN(std::unique_ptr<engine::Shard> shard,
              engine::Shard::create(std::move(port), state->memory, state->entropy, config, slot,
                                    state->followers, options.background_progress));
    FV_ASSIGN(std::unique_ptr<io::ManagementRouter> router, io::ManagementRouter::create());
    shard->with_loop([&](engine::Loop& loop, Time) { loop.route_management(std::move(router)); });
    state->shards.push_back(std::move(shard));
  }
  if (options.stats || stats_wanted_by_environment()) {
    // Nobody's work fails because it cannot be watched.
    auto stats = detail::StatsServer::start(*state, stats_folder());
    if (stats.ok()) state->stats = std::move(stats).value();
  }
  return Device(std::move(state));
}

const DeviceAttributes& Device::attributes() const { return state_->attributes; }
const DeviceOptions& Device::options() const { return state_->options; }

PortAttributes Device::port() const {
  PortAttributes port;
  port.gid = state_->options.address.to_gid();
  port.interface_name = state_->interface.name;
  port.max_path_mtu = state_->max_path_mtu;
  port.interface_mtu = state_->interface.mtu;
  if (auto interface = io::find_interface(state_->options.address); interface.ok()) {
    port.active = interface->up;
    port.interface_mtu = interface->mtu;
  }
  return port;
}

DeviceCounters Device::counters() const {
  DeviceCounters total;
  for (size_t i = 0; i < state_->shards.size(); ++i) {
    auto& shard = state_->shards[i];
    shard->with_loop([&](engine::Loop& loop, Time) {
      if (i < state_->shared_ports.size()) {
        const io::SharingCounters sharing = state_->shared_ports[i]->sharing();
        total.forwarded_out += sharing.forwarded_datagrams;
        total.forwarded_in += sharing.handed_over_datagrams;
      }
      const io::PortCounters& port = loop.port().counters();
      total.sent_datagrams += port.sent_datagrams;
      total.sent_bytes += port.sent_bytes;
      total.sent_bursts += port.sent_bursts;
      total.received_datagrams += port.received_datagrams;
      total.received_bytes += port.received_bytes;
      total.received_bursts += port.received_bursts;
      total.receive_overflows += port.receive_overflows;
      total.malformed_packets += loop.counters().malformed_packets;
      total.unknown_qpn += loop.counters().unknown_qpn;
    });
    const engine::Shard::Counters steps = shard->counters();
    total.inline_steps += steps.inline_steps;
    total.background_steps += steps.background_steps;
    total.background_wakeups += steps.background_wakeups;
  }
  return total;
}

Result<ProtectionDomain> Device::allocate_pd() {
  auto pd = std::make_shared<detail::PdState>();
  pd->device = state_;
  pd->id = state_->next_pd.fetch_add(1);
  return ProtectionDomain(std::move(pd));
}

Result<CompletionChannel> Device::create_channel() {
  auto channel = std::make_shared<detail::ChannelState>();
  channel->device = state_;
  channel->event_fd = ::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  if (channel->event_fd < 0) return Error::from_errno("cannot create a completion channel");
  return CompletionChannel(std::move(channel));
}

Result<CompletionQueue> Device::create_cq(uint32_t capacity, CompletionChannel* channel,
                                          void* context, model::AsyncEventSink* events) {
  if (capacity == 0 || capacity > state_->attributes.max_cqe) {
    return invalid("the capacity of a completion queue must be 1 to " +
                   std::to_string(state_->attributes.max_cqe) + ", got " +
                   std::to_string(capacity));
  }
  auto cq = std::make_shared<detail::CqState>();
  cq->device = state_;
  if (channel != nullptr) cq->channel = channel->state_;
  cq->queue = std::make_unique<model::CompletionQueue>(
      capacity, context, cq->channel.get(), events != nullptr ? events : &state_->events);
  return CompletionQueue(std::move(cq));
}

std::optional<AsyncEvent> Device::poll_async_event() { return state_->events.pop(); }
int Device::async_fd() const { return state_->events.fd(); }
std::string Device::stats_socket() const {
  return state_->stats != nullptr ? state_->stats->path() : std::string();
}
bool Device::progress() { return state_->poll_shards(); }

Result<void> Device::use_gid(uint8_t index, const IpAddress& address) {
  if (index == 0 || index > state_->options.more_gids) {
    return invalid("index of a GID to add must be 1 to " +
                   std::to_string(state_->options.more_gids) + ", got " + std::to_string(index));
  }
  return state_->shards[0]->with_loop([&](engine::Loop&, Time) {
    return state_->addresses_port->open(index, address, state_->entropy);
  });
}

void Device::hand_over() {
  for (auto& shard : state_->shards) shard->hand_over();
}

std::vector<int> Device::sockets() const {
  std::vector<int> sockets;
  for (const auto& shard : state_->shards) {
    const std::vector<int> its = shard->sockets();
    sockets.insert(sockets.end(), its.begin(), its.end());
  }
  return sockets;
}

}  // namespace farverbs::verbs
