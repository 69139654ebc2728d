#include "tools/lab/emulator.h"

#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "farverbs/base/check.h"
#include "tools/lab/netdev.h"

namespace farverbs::tools::lab {
namespace {

constexpr Duration kPublishEvery = Duration::milliseconds(100);
constexpr Duration kStall = Duration::milliseconds(1);
// A core that slept long wakes late; this much before a packet is due it is woken for a short
// sleep.
constexpr Duration kWakeMargin = Duration::microseconds(150);
constexpr int kReadsPerPass = 256;  // so that a flood does not keep due packets waiting

Time clock_now(clockid_t clock = CLOCK_MONOTONIC) {
  timespec t;
  ::clock_gettime(clock, &t);
  return Time::from_ns(int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec);
}

timespec to_timespec(int64_t ns) {
  return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

// Wakes on time also where other work keeps the cores busy. Real-time scheduling suits a thread
// that sleeps every tick. Where it is not allowed a short slice (Linux 6.12) lets it preempt
// others, and lateness shows in the statistics.
void be_punctual() {
  ::prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  const sched_param priority{1};
  if (::sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &priority) == 0) return;
  (void)::setpriority(PRIO_PROCESS, 0, -15);
  struct {  // struct sched_attr of linux/sched/types.h, its first version
    uint32_t size = 48, policy = SCHED_OTHER;
    uint64_t flags = 0;
    int32_t nice = ::getpriority(PRIO_PROCESS, 0);
    uint32_t priority = 0;
    uint64_t runtime_ns = 100'000, deadline_ns = 0, period_ns = 0;
  } attributes;
  (void)::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

// Memory for what the path can hold, and half as much again for the records around small packets.
size_t arena_bytes(const LinkConfig& link) {
  constexpr uint64_t kAssumedRate = 10'000'000'000;  // of a path without a bottleneck
  constexpr uint64_t kLeast = 16u << 20, kMost = uint64_t{4} << 30;
  const BitRate rate = link.rate.is_zero() ? BitRate::bits_per_second(kAssumedRate) : link.rate;
  const Duration held = link.delay + link.jitter + link.reorder_by;
  const uint64_t bytes = rate.bytes_for(held) + link.queue_bytes;
  return std::clamp(bytes * 2 + kLeast, kLeast, kMost);
}

}  // namespace

Emulator::Direction::Direction(const LinkConfig& config, End from_end, End to_end,
                               DirectionStats* counters)
    : link(config),
      from(from_end),
      to(to_end),
      arena(arena_bytes(config)),
      scratch(new std::byte[kMaxRead]),
      stats(counters) {
  held.reserve(4096);
}

Emulator::Emulator(const EmulatorConfig& config, End a, End b, SharedStats* shared,
                   const SharedConfig* control)
    : config_(config),
      shared_(shared),
      control_(control),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)),
      a_to_b_(config.a_to_b, a, b, &stats_.a_to_b),
      b_to_a_(config.b_to_a, b, a, &stats_.b_to_a) {
  FV_CHECK(timer_ >= 0);
}

Emulator::~Emulator() { ::close(timer_); }

bool Emulator::run(const std::atomic<bool>& stop) {
  be_punctual();
  started_ = tick_at_ = next_publish_ = clock_now();
  for (Direction* d : {&a_to_b_, &b_to_a_}) {
    d->last_read = started_;
    d->device_drops_before = device_transmit_drops(d->from.netdev);
  }
  while (!stop.load(std::memory_order_relaxed) && !failed_) {
    obey();
    bool busy = false;
    for (Direction* d : {&a_to_b_, &b_to_a_}) {
      const Time now = clock_now();
      busy |= drain(*d, now);
      busy |= release(*d, now);
    }
    if (clock_now() >= next_publish_) publish(false);
    wait(busy, stop);
  }
  publish(!failed_);
  return !failed_;
}

bool Emulator::drain(Direction& d, Time now) {
  // Packets of a tick arrived at some moment since the last one; its middle makes the mean right.
  const Duration since = std::min(now - d.last_read, config_.tick * 2);
  const Time arrival = std::max(now - since / 2, d.last_read);
  d.last_read = now;
  int reads = 0;
  for (; reads < kReadsPerPass; ++reads) {
    Super* super = d.arena.reserve();
    VnetHeader vnet;
    iovec pieces[2] = {{&vnet, sizeof vnet}, {d.scratch.get(), kMaxRead}};
    if (super != nullptr) pieces[1].iov_base = super->data();
    const ssize_t n = ::readv(d.from.tun, pieces, 2);
    if (n < 0) {
      if (errno == EINTR) continue;
      failed_ |= errno != EAGAIN;
      break;
    }
    ++d.stats->reads;
    const auto bytes = static_cast<uint32_t>(n) - static_cast<uint32_t>(sizeof vnet);
    Packet unkept;
    Packet& packet = super != nullptr ? super->packet : unkept;
    std::byte* data = static_cast<std::byte*>(pieces[1].iov_base);
    if (!parse_packet(vnet, {data, bytes}, packet)) {
      ++d.stats->malformed;
    } else if (is_interface_chatter(packet)) {
      continue;
    } else if (super == nullptr) {
      d.stats->packets_in += packet.segments;
      d.stats->bytes_in += bytes;
      d.stats->memory_drops += packet.segments;
    } else {
      accept(d, super, bytes, arrival);
    }
  }
  return reads > 0;
}

void Emulator::accept(Direction& d, Super* super, uint32_t bytes, Time arrival) {
  const Packet& packet = super->packet;
  DirectionStats& stats = *d.stats;
  const bool ecn = packet.ecn_capable();
  uint32_t references = 0;
  for (uint32_t i = 0; i < packet.segments; ++i) {
    const uint32_t length = packet.wire_length(i);
    const Fate fate = d.link.offer(arrival, length);
    ++stats.packets_in;
    stats.bytes_in += length;
    if (fate.queue_drop) {
      ++stats.queue_drops;
      stats.dropped_bytes += length;
      continue;
    }
    stats.queued_ns_total += fate.queued.ns();
    stats.queued_ns_max = std::max(stats.queued_ns_max, fate.queued.ns());
    if (fate.lost) {
      ++stats.lost;
      stats.dropped_bytes += length;
      continue;
    }
    const bool mark = fate.mark && ecn;
    stats.marked += mark;
    stats.late += fate.late;
    stats.corrupted += fate.corrupt;
    stats.duplicated += fate.duplicate;
    const InFlight flight{fate.due, super,        static_cast<uint16_t>(i),
                          mark,     fate.corrupt, fate.noise};
    const int copies = fate.duplicate ? 2 : 1;
    for (int copy = 0; copy < copies; ++copy) {
      d.line.push(flight, fate.late);
      ++references;
    }
  }
  if (references > 0) d.arena.keep(super, bytes, references);
}

bool Emulator::release(Direction& d, Time now) {
  // Half a tick early is as good as half a tick late, and makes the mean right.
  const Time until = now + config_.tick / 2;
  if (d.line.next_due() > until) return false;
  while (d.line.next_due() <= until) {
    const InFlight packet = d.line.pop();
    if (packet.corrupt) {
      flush(d);
      write_corrupted(d, packet);
      continue;
    }
    if (!d.merger.append(packet.super->packet, packet.index, packet.mark)) {
      flush(d);
      d.merger.append(packet.super->packet, packet.index, packet.mark);
    }
    d.held.push_back(packet);
  }
  flush(d);
  return true;
}

void Emulator::flush(Direction& d) {
  if (d.merger.empty()) return;
  write(d, d.merger.finish());
  const Time now = clock_now();
  d.merger.clear();
  for (const InFlight& packet : d.held) {
    const Duration error = now - packet.due;
    d.stats->error.add(error < Duration() ? -error : error);
    d.stats->error_ns_total += error.ns();
    ++d.stats->packets_out;
    d.stats->bytes_out += packet.super->packet.wire_length(packet.index);
    d.arena.release(packet.super);
  }
  d.held.clear();
}

void Emulator::write_corrupted(Direction& d, const InFlight& packet) {
  d.merger.append(packet.super->packet, packet.index, packet.mark);
  const std::span<const iovec> pieces = d.merger.finish();
  VnetHeader vnet;
  std::memcpy(&vnet, pieces[0].iov_base, sizeof vnet);
  size_t bytes = 0;
  for (const iovec& piece : pieces.subspan(1)) {
    std::memcpy(d.scratch.get() + bytes, piece.iov_base, piece.iov_len);
    bytes += piece.iov_len;
  }
  corrupt_packet({d.scratch.get(), bytes}, d.merger.ip_header(), packet.noise, vnet);
  const iovec whole[2] = {{&vnet, sizeof vnet}, {d.scratch.get(), bytes}};
  write(d, whole);
  d.merger.clear();
  ++d.stats->packets_out;
  d.stats->bytes_out += bytes;
  d.arena.release(packet.super);
}

void Emulator::write(Direction& d, std::span<const iovec> pieces) {
  ++d.stats->writes;
  if (::writev(d.to.tun, pieces.data(), static_cast<int>(pieces.size())) < 0) {
    d.stats->write_errors += std::max(d.merger.count(), 1u);
  }
}

void Emulator::obey() {
  if (control_ == nullptr || control_->version() == control_version_) return;
  EmulatorConfig wanted;
  if (!control_->read(wanted, &control_version_)) return;
  a_to_b_.link.change(wanted.a_to_b);
  b_to_a_.link.change(wanted.b_to_a);
}

void Emulator::wait(bool busy, const std::atomic<bool>& stop) {
  const Time now = clock_now();
  const Time next_due = std::min(a_to_b_.line.next_due(), b_to_a_.line.next_due());
  if (!busy && next_due - kWakeMargin > now) {
    wait_for_packet(std::min(next_due - kWakeMargin, next_publish_));
    return;
  }
  // Even when late it sleeps a little: a real-time thread that spins is suspended for 50 ms at
  // once.
  tick_at_ = busy ? std::max(tick_at_ + config_.tick, now + config_.tick / 4) : next_due;
  const timespec until = to_timespec(tick_at_.ns());
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
    if (stop.load(std::memory_order_relaxed)) return;
  }
  note_lateness();
}

// Until a packet arrives or the time is come. A timer of its own, because poll() rounds its timeout
// by a thousandth. A stop that comes just before the call is noticed 100 ms later.
void Emulator::wait_for_packet(Time until) {
  const itimerspec timer{{}, to_timespec(until.ns())};
  ::timerfd_settime(timer_, TFD_TIMER_ABSTIME, &timer, nullptr);
  pollfd fds[3] = {
      {a_to_b_.from.tun, POLLIN, 0}, {b_to_a_.from.tun, POLLIN, 0}, {timer_, POLLIN, 0}};
  ::poll(fds, 3, -1);
  // What woke us arrived just now, not in the middle of the sleep.
  tick_at_ = a_to_b_.last_read = b_to_a_.last_read = clock_now();
}

void Emulator::note_lateness() {
  const Duration late = clock_now() - tick_at_;
  if (late <= kStall) return;
  ++stats_.stalls;
  stats_.stall_ns_max = std::max(stats_.stall_ns_max, late.ns());
}

void Emulator::publish(bool final) {
  const Time now = clock_now();
  next_publish_ = now + kPublishEvery;
  stats_.elapsed_ns = (now - started_).ns();
  stats_.cpu_ns = clock_now(CLOCK_PROCESS_CPUTIME_ID).ns();
  for (Direction* d : {&a_to_b_, &b_to_a_}) {
    d->stats->device_drops = device_transmit_drops(d->from.netdev) - d->device_drops_before;
  }
  stats_.final = final;
  shared_->publish(stats_);
}

}  // namespace farverbs::tools::lab
