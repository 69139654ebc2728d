// SharedPort: a UDP (address, port) that several processes of a host share without a daemon. It
// claims a slot (the top byte of the process's QPNs), opens a UdpPort that shares the address,
// keeps the kernel's steering right, hands datagrams that came to the wrong process to their owner
// and gives back those that others handed over. To its caller it is a Port like any other that
// gives the datagrams of its own slot, and those that belong to no slot: to QPs 0 and 1, to the
// multicast QPN, and what is too short to have a QPN.
//
// A sender must not put datagrams for different slots of a peer into one burst: the kernel steers a
// burst by its first datagram, and every other one would have to be forwarded.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "farverbs/base/prng.h"
#include "farverbs/io/file_descriptor.h"
#include "farverbs/io/port.h"
#include "farverbs/io/slot_channel.h"
#include "farverbs/io/steering_repair.h"
#include "farverbs/io/udp_port.h"

namespace farverbs::io {

struct SharingCounters {
  uint64_t forwarded_datagrams = 0;    // came to this process, handed to their owner
  uint64_t unowned_datagrams = 0;      // dropped: their slot's process has ended
  uint64_t overflowed_datagrams = 0;   // dropped: their owner did not keep up
  uint64_t handed_over_datagrams = 0;  // came to another process, got from it
  uint64_t rejected_messages = 0;      // on the unix socket: malformed, or from another user
  uint64_t repair_rounds = 0;
  uint64_t programs_attached = 0;
};

class SharedPort final : public Port {
 public:
  // options.reuse_port is implied. Entropy is asked once, for what a stranger must not guess. The
  // slot is a free one, or the one that is wanted (EADDRINUSE: it is another process's).
  static Result<std::unique_ptr<SharedPort>> open(UdpOptions options, Entropy& entropy,
                                                  std::optional<uint8_t> slot = std::nullopt);

  uint8_t slot() const { return channel_.slot(); }
  SharingCounters sharing() const;
  // Looks whether the kernel still steers right, soon and not too often. For who misses answers: if
  // this slot's datagrams go to a process that is stopped, nobody else notices.
  void check_steering() { repair_.request(); }

  Endpoint local() const override { return port_->local(); }
  const PortLimits& limits() const override { return port_->limits(); }
  const PortCounters& counters() const override { return port_->counters(); }
  std::span<std::byte> staging() override { return port_->staging(); }
  SendStatus send(const TxFlow& flow, const wire::TxBurst& burst) override {
    return port_->send(flow, burst);
  }
  size_t receive(std::span<RxBurst> bursts) override;
  int wait_fd() const override { return wait_.get(); }
  std::vector<int> sockets() const override;

 private:
  // The unix socket is looked at in every so many calls, and in the next one after it had
  // something.
  static constexpr unsigned kChannelEvery = 16;
  static constexpr size_t kMaxBursts = 32;

  SharedPort(std::unique_ptr<UdpPort> port, SlotChannel channel, SteeringRepair repair,
             FileDescriptor wait);
  size_t take_own(std::span<RxBurst> out);
  size_t take_handed_over(std::span<RxBurst> out);
  void answer_probes(const RxBurst& run);
  void forward(uint8_t slot, const RxBurst& run);

  std::unique_ptr<UdpPort> port_;
  SlotChannel channel_;
  SteeringRepair repair_;
  FileDescriptor wait_;  // an epoll descriptor over the sockets of all three
  SharingCounters counters_;

  // What the UDP port gave and has not been gone through: bursts from next_ on, the first of them
  // from byte offset_.
  std::array<RxBurst, kMaxBursts> taken_;
  size_t taken_count_ = 0;
  size_t next_ = 0;
  size_t offset_ = 0;
  unsigned calls_to_channel_ = 1;
};

}  // namespace farverbs::io
