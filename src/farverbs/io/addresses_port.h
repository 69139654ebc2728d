// AddressesPort: one port for several local addresses of an interface. Each has a SharedPort of its
// own, with the same slot at all, so that a QPN steers to this process whatever address it was sent
// to. TxFlow::source says from which address a datagram leaves. The first is there from the
// beginning; others are opened when somebody means to use them, and looked at rarely while nothing
// comes, so that they cost the first one's latency nothing.
#pragma once

#include <memory>
#include <vector>

#include "farverbs/io/shared_port.h"

namespace farverbs::io {

class AddressesPort final : public Port {
 public:
  static Result<std::unique_ptr<AddressesPort>> create(std::unique_ptr<SharedPort> first);

  // Opens `address` as source `source`, which is not 0. Nothing if it is that already; EEXIST if
  // the source is another address; EADDRINUSE if another process has this slot there.
  Result<void> open(uint8_t source, const IpAddress& address, Entropy& entropy);
  // Receives datagrams to the group that come by the interface; each call needs one of leave().
  Result<void> join(const IpAddress& group, uint32_t interface_index);
  void leave(const IpAddress& group);

  Endpoint local() const override { return first_->local(); }
  bool has_source(uint8_t source) const override { return source == 0 || find(source) != nullptr; }
  Endpoint local_at(uint8_t source) const override;
  const PortLimits& limits() const override { return first_->limits(); }
  const PortCounters& counters() const override;
  std::span<std::byte> staging() override { return first_->staging(); }
  SendStatus send(const TxFlow& flow, const wire::TxBurst& burst) override;
  size_t receive(std::span<RxBurst> bursts) override;
  int wait_fd() const override { return wait_.get(); }
  std::vector<int> sockets() const override;

 private:
  // A quiet one is looked at in every so many calls; one that had something, in each of the next
  // so many.
  static constexpr uint32_t kQuietEvery = 16;
  static constexpr uint32_t kLivelyCalls = 4'096;

  // Another address, or a group.
  struct Other {
    std::unique_ptr<Port> port;
    uint8_t source = 0;  // 0: a group
    uint32_t members = 0;
    uint32_t next_look = 1;
    uint32_t lively = 0;
    bool is_group(const IpAddress& group) const {
      return source == 0 && port->local().address == group;
    }
  };

  AddressesPort(std::unique_ptr<SharedPort> first, FileDescriptor wait)
      : first_(std::move(first)), wait_(std::move(wait)) {}
  Port* find(uint8_t source) const;

  std::unique_ptr<SharedPort> first_;
  std::vector<Other> others_;
  FileDescriptor wait_;  // an epoll descriptor over those of all
  mutable PortCounters total_;
};

}  // namespace farverbs::io
