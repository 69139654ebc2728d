#include "farverbs/io/addresses_port.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace farverbs::io {
namespace {

Result<void> watch(const FileDescriptor& epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return Error::from_errno("cannot wait for several sockets");
}

void add(PortCounters& total, const PortCounters& more) {
  total.sent_bursts += more.sent_bursts;
  total.sent_datagrams += more.sent_datagrams;
  total.sent_bytes += more.sent_bytes;
  total.received_bursts += more.received_bursts;
  total.received_datagrams += more.received_datagrams;
  total.received_bytes += more.received_bytes;
  total.receive_overflows += more.receive_overflows;
  total.send_would_block += more.send_would_block;
  total.send_failures += more.send_failures;
}

}  // namespace

Result<std::unique_ptr<AddressesPort>> AddressesPort::create(std::unique_ptr<SharedPort> first) {
  FileDescriptor wait(epoll_create1(EPOLL_CLOEXEC));
  if (!wait.valid()) return Error::from_errno("cannot wait for several sockets");
  FV_TRY(watch(wait, first->wait_fd()));
  return std::unique_ptr<AddressesPort>(new AddressesPort(std::move(first), std::move(wait)));
}

Result<void> AddressesPort::open(uint8_t source, const IpAddress& address, Entropy& entropy) {
  if (has_source(source)) {
    if (local_at(source).address == address) return {};
    return Error{EEXIST, "source " + std::to_string(source) + " is " +
                             local_at(source).address.to_string() + " already"};
  }
  UdpOptions options;
  options.local = {address, first_->local().port};
  FV_ASSIGN(auto port, SharedPort::open(options, entropy, first_->slot()));
  FV_TRY(watch(wait_, port->wait_fd()));
  others_.push_back({std::move(port), source});
  return {};
}

Port* AddressesPort::find(uint8_t source) const {
  const auto found = std::find_if(others_.begin(), others_.end(),
                                  [&](const Other& other) { return other.source == source; });
  return found == others_.end() ? nullptr : found->port.get();
}

Result<void> AddressesPort::join(const IpAddress& group, uint32_t interface_index) {
  const auto known = std::find_if(others_.begin(), others_.end(),
                                  [&](const Other& other) { return other.is_group(group); });
  if (known != others_.end()) {
    ++known->members;
    return {};
  }
  UdpOptions options;
  options.local = {group, first_->local().port};
  // The kernel gives multicast to every socket of the group, whoever has it.
  options.reuse_port = true;
  FV_ASSIGN(auto port, UdpPort::open(options));
  const int fd = port->wait_fd();
  int status = 0;
  if (group.is_v4()) {
    ip_mreqn request{};
    request.imr_multiaddr.s_addr = htonl(group.v4_value());
    request.imr_ifindex = static_cast<int>(interface_index);
    status = ::setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request);
  } else {
    ipv6_mreq request{};
    std::memcpy(&request.ipv6mr_multiaddr, group.bytes().data(), group.bytes().size());
    request.ipv6mr_interface = interface_index;
    status = ::setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof request);
  }
  if (status != 0) return Error::from_errno("cannot join the group " + group.to_string());
  FV_TRY(watch(wait_, fd));
  others_.push_back({std::move(port), 0, 1});
  return {};
}

void AddressesPort::leave(const IpAddress& group) {
  const auto known = std::find_if(others_.begin(), others_.end(),
                                  [&](const Other& other) { return other.is_group(group); });
  if (known != others_.end() && --known->members == 0) others_.erase(known);
}

Endpoint AddressesPort::local_at(uint8_t source) const {
  const Port* port = source == 0 ? nullptr : find(source);
  return port != nullptr ? port->local() : first_->local();
}

const PortCounters& AddressesPort::counters() const {
  if (others_.empty()) return first_->counters();
  total_ = first_->counters();
  for (const Other& other : others_) add(total_, other.port->counters());
  return total_;
}

SendStatus AddressesPort::send(const TxFlow& flow, const wire::TxBurst& burst) {
  Port* port = flow.source == 0 ? nullptr : find(flow.source);
  return port != nullptr ? port->send(flow, burst) : first_->send(flow, burst);
}

size_t AddressesPort::receive(std::span<RxBurst> bursts) {
  size_t count = first_->receive(bursts);
  for (Other& other : others_) {
    if (other.next_look > 1) {
      --other.next_look;
      continue;
    }
    if (count == bursts.size()) continue;
    const size_t more = other.port->receive(bursts.subspan(count));
    if (more > 0) {
      other.lively = kLivelyCalls;
    } else if (other.lively > 0) {
      --other.lively;
    }
    other.next_look = other.lively > 0 ? 1 : kQuietEvery;
    count += more;
  }
  return count;
}

std::vector<int> AddressesPort::sockets() const {
  std::vector<int> sockets = first_->sockets();
  for (const Other& other : others_) {
    const std::vector<int> its = other.port->sockets();
    sockets.insert(sockets.end(), its.begin(), its.end());
  }
  return sockets;
}

}  // namespace farverbs::io
