// PcapPort: a Port that writes every datagram that passes it into a capture file, as the Ethernet
// frames that `farverbs decode` and other tools read. Received frames get the IPv4 identification
// that explains their ICRC, for a UDP socket does not tell it. Slow; for debugging and tests.
#pragma once

#include <memory>

#include "farverbs/io/port.h"
#include "farverbs/wire/pcap.h"

namespace farverbs::io {

class PcapPort final : public Port {
 public:
  // `now` gives the time since the epoch that packets are stamped with (os_wall_clock).
  PcapPort(std::unique_ptr<Port> inner, wire::PcapWriter writer, Time (*now)())
      : inner_(std::move(inner)), writer_(std::move(writer)), now_(now) {}

  Endpoint local() const override { return inner_->local(); }
  bool has_source(uint8_t source) const override { return inner_->has_source(source); }
  Endpoint local_at(uint8_t source) const override { return inner_->local_at(source); }
  const PortLimits& limits() const override { return inner_->limits(); }
  const PortCounters& counters() const override { return inner_->counters(); }
  SendStatus send(const TxFlow& flow, const wire::TxBurst& burst) override;
  size_t receive(std::span<RxBurst> bursts) override;
  int wait_fd() const override { return inner_->wait_fd(); }
  std::vector<int> sockets() const override { return inner_->sockets(); }

  Port& inner() { return *inner_; }
  // Datagrams that could not be written (the disk is full); the traffic goes on.
  uint64_t not_written() const { return not_written_; }

 private:
  struct Burst {
    Endpoint source;
    Endpoint destination;
    uint8_t traffic_class;
    uint8_t hop_limit;
    std::span<const std::byte> bytes;
    size_t segment_size;
    bool received;
  };
  void write(const Burst& burst);

  std::unique_ptr<Port> inner_;
  wire::PcapWriter writer_;
  Time (*now_)();
  uint64_t not_written_ = 0;
};

}  // namespace farverbs::io
