#include "farverbs/io/steering_repair.h"

#include <sys/socket.h>

#include <algorithm>

#include "farverbs/io/socket_address.h"

namespace farverbs::io {
namespace {

constexpr Duration kAnswerTime = Duration::milliseconds(20);
// A round that changes nothing doubles the pause: then it is not the program's fault (a network
// card may merge datagrams of several slots), or nobody answers.
constexpr Duration kShortestPause = Duration::milliseconds(5);
constexpr Duration kLongestPause = Duration::seconds(5);
// Sockets that are in the kernel's list without a live slot, as those a forked child keeps open.
constexpr size_t kSpareIndices = 2;

IpAddress probe_address(const Endpoint& shared) {
  if (!shared.address.is_unspecified()) return shared.address;
  std::array<std::byte, 16> one{};
  one[15] = std::byte{1};
  return shared.address.is_v4() ? IpAddress::v4(0x7F00'0001) : IpAddress::v6(one);
}

}  // namespace

Result<SteeringRepair> SteeringRepair::create(const Endpoint& shared, int shared_fd,
                                              uint64_t nonce_seed) {
  SocketAddress from(Endpoint{probe_address(shared), 0});
  FileDescriptor fd(::socket(from.family(), SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() || ::bind(fd.get(), &from.generic, from.size) != 0) {
    return Error::from_errno("cannot open a UDP socket on " + probe_address(shared).to_string());
  }
  return SteeringRepair(shared, shared_fd, std::move(fd), nonce_seed);
}

void SteeringRepair::attach() {
  if (attach_steering(shared_fd_, table_, awake_).ok()) ++programs_attached_;
  // Without a program the kernel spreads datagrams by hash: slow, for most are forwarded, but
  // right.
}

void SteeringRepair::attach_default() {
  table_ = SteeringTable();
  attach();
}

std::optional<SteeringProbe> SteeringRepair::answer(const SteeringProbe& probe, uint8_t own_slot,
                                                    const Endpoint& source, const Endpoint& local) {
  // Only this host may ask: its own address cannot come from outside.
  if (probe.answer || source.address != probe_address(local)) return std::nullopt;
  SteeringProbe reply = probe;
  reply.answer = true;
  reply.slot = own_slot;
  return reply;
}

void SteeringRepair::step(Time now) {
  if (probing_) {
    collect();
    if (unanswered_.none() || now >= deadline_) finish(now);
  } else if (requested_ && now >= next_round_) {
    start(now);
  }
}

void SteeringRepair::start(Time now) {
  requested_ = false;
  probing_ = true;
  ++rounds_;
  before_ = table_;
  nonce_ = nonces_.next();
  deadline_ = now + kAnswerTime;
  unanswered_ = live_ = live_slots(shared_);
  const size_t indices = std::min(unanswered_.count() + kSpareIndices, kSlots);
  const SocketAddress to(Endpoint{probe_address(shared_), shared_.port});
  for (size_t i = 0; i < indices; ++i) {
    SteeringProbe probe;
    probe.index = static_cast<uint8_t>(i);
    probe.nonce = nonce_;
    const auto bytes = probe.to_bytes();
    // A probe that does not fit anywhere is one that is not answered.
    [[maybe_unused]] const ssize_t sent =
        ::sendto(fd_.get(), bytes.data(), bytes.size(), 0, &to.generic, to.size);
  }
}

void SteeringRepair::collect() {
  const SteeringTable known = table_;
  const std::bitset<kSlots> known_awake = awake_;
  std::array<std::byte, SteeringProbe::kBytes + 1> bytes;
  for (size_t i = 0; i < 2 * kSlots; ++i) {
    const ssize_t length = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
    if (length < 0) break;
    const auto reply = SteeringProbe::parse(std::span(bytes).first(static_cast<size_t>(length)));
    if (!reply || !reply->answer || reply->nonce != nonce_) continue;
    // The kernel spreads what is sent to an index beyond its list by hash, so a slot may answer
    // twice; probes are sent in order, and the first answer is the true one.
    if (!unanswered_[reply->slot]) continue;
    unanswered_[reply->slot] = false;
    awake_[reply->slot] = true;
    table_.put(reply->slot, reply->index);
  }
  if (!(table_ == known) || awake_ != known_awake) attach();
}

void SteeringRepair::finish(Time now) {
  probing_ = false;
  // Who answers late is awake again.
  const std::bitset<kSlots> answered = live_ & ~unanswered_;
  const bool some_sleep = answered.any() && awake_ != answered;
  if (some_sleep) awake_ = answered;
  // Another member may have attached a program out of older knowledge in the meantime.
  if (table_ == before_ || some_sleep) attach();
  const bool useful = !(table_ == before_);
  pause_ = useful ? kShortestPause : std::clamp(pause_ * 2, kShortestPause, kLongestPause);
  next_round_ = now + pause_;
}

}  // namespace farverbs::io
