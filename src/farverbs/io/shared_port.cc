#include "farverbs/io/shared_port.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cstring>

#include "farverbs/base/byte_order.h"
#include "farverbs/base/ids.h"
#include "farverbs/io/os_clock.h"

namespace farverbs::io {
namespace {

// Where a BTH has the destination QPN (IBTA vol. 1, 9.2.9): 3 bytes at offset 5.
constexpr size_t kQpnEnd = 8;

// Whose a datagram is. kNoSlot is for whoever got it; kProbe is this layer's own.
constexpr int kNoSlot = -1;
constexpr int kProbe = -2;

int owner_of(const std::byte* datagram, size_t size) {
  if (size < kQpnEnd) return kNoSlot;
  if (datagram[0] == SteeringProbe::kOpcode) return kProbe;
  const Qpn qpn(load_be<uint32_t>(datagram + 4));
  if (qpn <= kManagementQpn || qpn == kMulticastQpn) return kNoSlot;
  return qpn.slot();
}

bool watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

Result<std::unique_ptr<SharedPort>> SharedPort::open(UdpOptions options, Entropy& entropy,
                                                     std::optional<uint8_t> slot) {
  options.reuse_port = true;
  std::unique_ptr<UdpPort> port;
  if (options.local.port == 0) {
    // Nobody else can know the port that the kernel chooses, so no slot is needed before.
    FV_ASSIGN(port, UdpPort::open(options));
    options.local.port = port->local().port;
  }
  // The slot comes first: there must be no socket in the group whose slot is not known.
  FV_ASSIGN(SlotChannel channel, SlotChannel::claim(options.local, slot));
  if (port == nullptr) {
    FV_ASSIGN(port, UdpPort::open(options));
  }
  FV_ASSIGN(SteeringRepair repair,
            SteeringRepair::create(options.local, port->wait_fd(), entropy.next()));
  FileDescriptor wait(epoll_create1(EPOLL_CLOEXEC));
  if (!wait.valid() || !watch(wait.get(), port->wait_fd()) || !watch(wait.get(), channel.fd()) ||
      !watch(wait.get(), repair.fd())) {
    return Error::from_errno("cannot wait for several sockets");
  }
  std::bitset<kSlots> others = live_slots(options.local);
  others[channel.slot()] = false;
  if (others.none()) {
    repair.attach_default();
  } else {
    repair.request();
    repair.step(os_now());
  }
  return std::unique_ptr<SharedPort>(
      new SharedPort(std::move(port), std::move(channel), std::move(repair), std::move(wait)));
}

SharedPort::SharedPort(std::unique_ptr<UdpPort> port, SlotChannel channel, SteeringRepair repair,
                       FileDescriptor wait)
    : port_(std::move(port)),
      channel_(std::move(channel)),
      repair_(std::move(repair)),
      wait_(std::move(wait)) {}

SharingCounters SharedPort::sharing() const {
  SharingCounters counters = counters_;
  counters.rejected_messages = channel_.rejected();
  counters.repair_rounds = repair_.rounds();
  counters.programs_attached = repair_.programs_attached();
  return counters;
}

size_t SharedPort::receive(std::span<RxBurst> bursts) {
  if (bursts.empty()) return 0;
  size_t count = take_own(bursts);
  if (count == 0) {
    taken_count_ = port_->receive(std::span(taken_).first(std::min(bursts.size(), kMaxBursts)));
    next_ = offset_ = 0;
    count = take_own(bursts);
  }
  if (--calls_to_channel_ == 0 && count < bursts.size()) {
    if (repair_.idle()) repair_.collect();
    const size_t more = take_handed_over(bursts.subspan(count));
    calls_to_channel_ = more > 0 ? 1 : kChannelEvery;
    count += more;
  } else if (calls_to_channel_ == 0) {
    calls_to_channel_ = 1;
  }
  if (!repair_.idle()) repair_.step(os_now());
  return count;
}

// Goes through what the UDP port gave, run by run of one owner; returns how many runs of this
// process's own there were room for.
size_t SharedPort::take_own(std::span<RxBurst> out) {
  size_t count = 0;
  while (next_ < taken_count_ && count < out.size()) {
    const RxBurst& burst = taken_[next_];
    const size_t size = burst.bytes.size();
    const auto owner_at = [&](size_t at) {
      return owner_of(burst.bytes.data() + at, std::min(burst.segment_size, size - at));
    };
    const int owner = owner_at(offset_);
    size_t end = offset_ + burst.segment_size;
    while (end < size && owner_at(end) == owner) end += burst.segment_size;
    end = std::min(end, size);
    RxBurst run = burst;
    run.bytes = burst.bytes.subspan(offset_, end - offset_);
    run.segment_size = std::min(run.segment_size, run.bytes.size());
    if (owner == slot() || owner == kNoSlot) {
      out[count++] = run;
    } else if (owner == kProbe) {
      answer_probes(run);
    } else {
      forward(static_cast<uint8_t>(owner), run);
    }
    offset_ = end;
    if (offset_ >= size) {
      offset_ = 0;
      ++next_;
    }
  }
  return count;
}

size_t SharedPort::take_handed_over(std::span<RxBurst> out) {
  if (!channel_.receive(out[0])) return 0;
  counters_.handed_over_datagrams +=
      (out[0].bytes.size() + out[0].segment_size - 1) / out[0].segment_size;
  return 1;
}

void SharedPort::forward(uint8_t slot, const RxBurst& run) {
  const size_t datagrams = (run.bytes.size() + run.segment_size - 1) / run.segment_size;
  switch (channel_.forward(slot, run)) {
    case Forwarding::kForwarded:
      counters_.forwarded_datagrams += datagrams;
      repair_.request();
      break;
    case Forwarding::kNoOwner:
      counters_.unowned_datagrams += datagrams;
      break;
    case Forwarding::kFull:
      counters_.overflowed_datagrams += datagrams;
      repair_.request();
      break;
  }
}

std::vector<int> SharedPort::sockets() const {
  std::vector<int> sockets = port_->sockets();
  sockets.push_back(channel_.fd());
  sockets.push_back(repair_.fd());
  return sockets;
}

void SharedPort::answer_probes(const RxBurst& run) {
  for (size_t at = 0; at < run.bytes.size(); at += run.segment_size) {
    const auto probe = SteeringProbe::parse(
        run.bytes.subspan(at, std::min(run.segment_size, run.bytes.size() - at)));
    if (!probe) continue;
    const auto reply = SteeringRepair::answer(*probe, slot(), run.source, local());
    if (!reply) continue;
    auto bytes = reply->to_bytes();
    wire::TxBurst burst;
    burst.reset(bytes, 1);
    burst.append(bytes.size());
    TxFlow flow;
    flow.destination = run.source;
    port_->send(flow, burst);
  }
}

}  // namespace farverbs::io
