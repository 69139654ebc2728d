// UdpPort: a Port over one unconnected UDP socket. Bursts leave by UDP segmentation offload (GSO)
// and arrive merged (GRO) where the kernel has them (man udp(7)); an IPv4 or IPv6 address, or a
// wildcard. What may leave from any port goes by connected sockets beside it (SideSender), which
// are opened as their peers come up. Else nothing is allocated after open(), and no call makes more
// than one system call but for kernels without GSO.
#pragma once

#include <sys/socket.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "farverbs/io/port.h"
#include "farverbs/io/side_sender.h"
#include "farverbs/io/socket_address.h"
#include "farverbs/io/udp_socket.h"

namespace farverbs::io {

class UdpPort final : public Port {
 public:
  static Result<std::unique_ptr<UdpPort>> open(const UdpOptions& options);
  ~UdpPort() override;
  UdpPort(const UdpPort&) = delete;
  UdpPort& operator=(const UdpPort&) = delete;

  Endpoint local() const override { return socket_.local; }
  const PortLimits& limits() const override { return limits_; }
  const PortCounters& counters() const override { return counters_; }
  std::span<std::byte> staging() override {
    return side_ != nullptr ? side_->staging() : std::span<std::byte>();
  }
  SendStatus send(const TxFlow& flow, const wire::TxBurst& burst) override;
  size_t receive(std::span<RxBurst> bursts) override;
  int wait_fd() const override { return socket_.fd.get(); }
  std::vector<int> sockets() const override;

 private:
  // Datagrams that arrive one by one are fetched up to so many a call; merged ones one a call, into
  // the same cache-hot buffer.
  static constexpr size_t kMaxBatch = 32;
  static constexpr size_t kBufferBytes = size_t{64} << 10;
  // Buffers are staggered, for at a stride of 64 KiB their first lines would share one cache set.
  static constexpr size_t kStride = kBufferBytes + 1280;
  static constexpr size_t kControlBytes = 192;
  static constexpr unsigned kMostPatience = 64;

  struct alignas(cmsghdr) Control {
    std::byte bytes[kControlBytes];
  };
  struct Slot {
    sockaddr_in6 source;
    iovec data;
  };

  UdpPort(const UdpOptions& options, UdpSocket socket);
  bool map_buffers();
  SendStatus send_segmented(const TxFlow& flow, const wire::TxBurst& burst);
  SendStatus send_one_by_one(const TxFlow& flow, const wire::TxBurst& burst);
  size_t flow_control(const TxFlow& flow, std::byte* control) const;
  void set_destination(const Endpoint& destination);
  void adopt(uint8_t traffic_class);
  // Nothing: it goes the way of all others.
  std::optional<SendStatus> send_aside(const TxFlow& flow, const wire::TxBurst& burst);
  SendStatus failed(int code, const wire::TxBurst& burst);
  SendStatus sent(const wire::TxBurst& burst);
  bool receive_one(RxBurst& burst);
  size_t receive_many(std::span<RxBurst> bursts);
  // False for a datagram without payload, which no protocol of ours has.
  bool describe(const msghdr& header, size_t index, size_t length, RxBurst& burst);
  void prepare(msghdr& header, size_t index);

  UdpSocket socket_;
  uint8_t traffic_class_;     // the socket's
  uint8_t wanted_class_ = 0;  // of flows lately that had another one
  unsigned wanted_for_ = 0;   // so many times in a row
  uint8_t hop_limit_;
  PortLimits limits_;
  PortCounters counters_;

  Endpoint destination_;  // of destination_address_
  SocketAddress destination_address_;
  std::unique_ptr<SideSender> side_;  // from the first burst on that may leave by it
  bool no_side_ = false;
  std::vector<mmsghdr> tx_messages_;  // only without GSO
  std::vector<iovec> tx_data_;

  std::byte* buffers_ = nullptr;  // kMaxBatch of them, kStride apart
  size_t batch_ = 1;              // how many the next call asks for
  unsigned patience_ = 1;         // after so many single datagrams, two are asked for
  unsigned singles_ = 0;
  uint32_t overflows_seen_ = 0;  // the kernel's count, which wraps
  sockaddr_in6 last_source_{};   // of last_endpoint_: most datagrams come from few peers
  Endpoint last_endpoint_;
  std::array<Slot, kMaxBatch> slots_;
  std::array<Control, kMaxBatch> controls_;
  std::array<mmsghdr, kMaxBatch> messages_;
};

}  // namespace farverbs::io
