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
#include <optional>
#include <span>
#include <vector>

#include "farverbs/io/file_descriptor.h"
#include "farverbs/io/port.h"

namespace farverbs::io {

class SideSender {
 public:
  // A large burst. Below that the copy is cheaper.
  static constexpr size_t kLeastBytes = size_t{16} << 10;

  // This kernel does; older ones take a page at a time, as a datagram of its own.
  static bool kernel_splices();

  explicit SideSender(const IpAddress& local) : local_(local) {}
  ~SideSender();
  SideSender(const SideSender&) = delete;
  SideSender& operator=(const SideSender&) = delete;

  // Where the next burst is best written; nothing before the first large one. It changes with each
  // large burst that was sent.
  std::span<std::byte> staging() const {
    return ring_ != nullptr ? std::span(ring_ + next_ * kSlotBytes, kSlotBytes)
                            : std::span<std::byte>();
  }

  // As Port::send. Nothing: it has to go another way, and nothing has left. That is so for peers
  // there is no place for (of many that are busy in turn only the first have one: to connect anew
  // for each burst would cost more than it saves), for the large burst after which the ring is
  // there, and always once refused().
  std::optional<SendStatus> send(const TxFlow& flow, const wire::TxBurst& burst);
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

  bool prepare_ring();
  Connection* place_for(const Endpoint& to);
  bool open(Connection& place, const Endpoint& to) const;
  static bool adopt(Connection& connection, const TxFlow& flow, size_t segment_size);
  ssize_t splice(const Connection& connection, size_t bytes);
  std::optional<SendStatus> failed(int code);

  IpAddress local_;
  FileDescriptor memory_;
  std::byte* ring_ = nullptr;
  bool ring_tried_ = false;
  size_t next_ = 0;
  bool refused_ = false;
  std::array<Connection, kMostPeers> connections_;
  uint64_t bursts_ = 0;  // that were asked for
};

}  // namespace farverbs::io
