// SpliceSender: sends large bursts to near peers without the copy into the kernel, which costs more
// than all else that a sender does there: the pages of the burst themselves become the packet's
// (sendfile(2) from a memfd to a connected UDP socket; since Linux 6.5 that is MSG_SPLICE_PAGES
// within, and one UDP_SEGMENT send).
//
// - The kernel goes on reading a burst's memory until the receiver has taken it, and nobody tells
//   when. So bursts are written to a ring of slots in turn. A slot that is written again too early
//   damages packets on the way, which their ICRC shows: they are lost like others.
// - A connected socket is another one than the port's: datagrams leave from another UDP port, and
//   with an unpredictable IPv4 identification. Only for packets that bear both: the far
//   transport's, which say that they come from a side port.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "farverbs/io/file_descriptor.h"
#include "farverbs/io/port.h"

namespace farverbs::io {

class SpliceSender {
 public:
  // Below that the copy is cheaper.
  static constexpr size_t kLeastBytes = size_t{16} << 10;

  // nullptr: not on this kernel, or no memory for the ring.
  static std::unique_ptr<SpliceSender> open(const IpAddress& local);
  ~SpliceSender();
  SpliceSender(const SpliceSender&) = delete;
  SpliceSender& operator=(const SpliceSender&) = delete;

  // Where the next burst is to be written. It changes with each burst that was sent.
  std::span<std::byte> staging() const { return {ring_ + next_ * kSlotBytes, kSlotBytes}; }
  // `bytes` are in the slot that staging() shows, from its begin.
  bool holds(std::span<const std::byte> bytes) const { return bytes.data() == staging().data(); }

  // As Port::send, of a burst that it holds. kFailed with `refused()`: this way does not work here;
  // nothing has left.
  SendStatus send(const TxFlow& flow, const wire::TxBurst& burst);
  bool refused() const { return refused_; }

  std::vector<int> sockets() const;

 private:
  static constexpr size_t kSlotBytes = size_t{64} << 10;
  // More than a window of a near peer has in flight.
  static constexpr size_t kSlots = 32;
  static constexpr size_t kMostPeers = 8;

  struct Connection {
    Endpoint to;
    FileDescriptor fd;
    size_t segment_size = 0;
    int traffic_class = -1;
    int hop_limit = -1;
  };

  SpliceSender(const IpAddress& local, FileDescriptor memory, std::byte* ring)
      : local_(local), memory_(std::move(memory)), ring_(ring) {}
  Connection* connection_to(const Endpoint& to);
  bool adopt(Connection& connection, const TxFlow& flow, size_t segment_size) const;
  SendStatus failed(int code);

  IpAddress local_;
  FileDescriptor memory_;
  std::byte* ring_;
  size_t next_ = 0;
  bool refused_ = false;
  std::array<Connection, kMostPeers> connections_;
  size_t replaced_ = 0;  // which of them gives way to the next new one
};

}  // namespace farverbs::io
