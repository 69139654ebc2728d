// SideSender: sends to near peers by connected sockets of its own, which saves a small datagram the
// search for a route, and a large burst the copy into the kernel, which costs more than all else
// that a sender does there: the pages of the burst themselves become the packet's (sendfile(2) from
// a memfd; since Linux 6.5 that is MSG_SPLICE_PAGES within, and one UDP_SEGMENT send).
//
// - Datagrams leave from another UDP port than the port's own, and with an unpredictable IPv4
//   identification. Only for packets that bear both: the far transport's, which say that they come
//   from a side port.
// - The kernel goes on reading a large burst's memory until the receiver has taken it, and nobody
//   tells when. So large bursts are written to a ring of slots in turn. A slot that is written
//   again too early damages packets on the way, which their ICRC shows: they are lost like others.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "farverbs/io/file_descriptor.h"
#include "farverbs/io/port.h"

namespace farverbs::io {

class SideSender {
 public:
  // A large burst. Below that the copy is cheaper.
  static constexpr size_t kLeastBytes = size_t{16} << 10;

  explicit SideSender(const IpAddress& local) : local_(local) {}
  ~SideSender();
  SideSender(const SideSender&) = delete;
  SideSender& operator=(const SideSender&) = delete;

  // Makes the ring, once. False: not on this kernel, or no memory.
  bool prepare_splicing();
  // Where the next burst is to be written; nothing without a ring. It changes with each large burst
  // that was sent.
  std::span<std::byte> staging() const {
    return ring_ != nullptr ? std::span(ring_ + next_ * kSlotBytes, kSlotBytes)
                            : std::span<std::byte>();
  }
  // True for a large burst in the slot that staging() shows.
  bool can_splice(const wire::TxBurst& burst) const {
    return ring_ != nullptr && burst.bytes().size() >= kLeastBytes &&
           burst.bytes().data() == staging().data();
  }

  // True if there is a connection to that peer, or place for one. Of many peers that are busy in
  // turn only the first get one: to connect anew for each burst would cost more than it saves. To
  // be asked before each burst.
  bool has_place_for(const Endpoint& to);
  // As Port::send, to a peer that there is place for; what can_splice() is spliced. kFailed with
  // `refused()`: this way does not work here; nothing has left.
  SendStatus send(const TxFlow& flow, const wire::TxBurst& burst);
  bool refused() const { return refused_; }

  std::vector<int> sockets() const;

 private:
  static constexpr size_t kSlotBytes = size_t{64} << 10;
  // More than a window of a near peer has in flight.
  static constexpr size_t kSlots = 32;
  static constexpr size_t kMostPeers = 8;
  // A connection that was not used for so many bursts gives way.
  static constexpr uint64_t kForgottenAfter = 4'096;

  struct Connection {
    Endpoint to;
    FileDescriptor fd;
    size_t segment_size = 0;
    int traffic_class = -1;
    int hop_limit = -1;
    uint64_t last_use = 0;
  };

  const Connection& least_used() const;
  bool gives_way(const Connection& connection) const {
    return !connection.fd.valid() || connection.last_use + kForgottenAfter < bursts_;
  }
  Connection* connection_to(const Endpoint& to);
  static bool adopt(Connection& connection, const TxFlow& flow, size_t segment_size);
  SendStatus splice(const Connection& connection, size_t bytes);
  SendStatus send_copied(const Connection& connection, std::span<const std::byte> bytes);
  SendStatus failed(int code);

  IpAddress local_;
  FileDescriptor memory_;
  std::byte* ring_ = nullptr;
  bool no_ring_ = false;
  size_t next_ = 0;
  bool refused_ = false;
  std::array<Connection, kMostPeers> connections_;
  uint64_t bursts_ = 0;  // that were asked for
};

}  // namespace farverbs::io
