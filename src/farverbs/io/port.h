// Port: a place where datagrams leave and arrive, of sockets, of AF_XDP rings, or of the simulator.
// The engine's loop owns it and is its only caller; no call blocks. Sends are bursts
// (wire::TxBurst), receptions are bursts too: one or more datagrams of one flow, laid end to end,
// of segment_size bytes each but for the last, which may be shorter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "farverbs/base/ip_address.h"
#include "farverbs/base/result.h"
#include "farverbs/wire/tx_burst.h"

namespace farverbs::io {

// Addressing of outgoing datagrams. The traffic class octet is DSCP and ECN together.
struct TxFlow {
  Endpoint destination;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 64;
  uint8_t source = 0;  // which of the port's addresses it leaves from
  // It may leave from another UDP port than local()'s and with any IPv4 identification: a side
  // port, to which nobody answers.
  bool any_port = false;
  bool operator==(const TxFlow&) const = default;
};

struct RxBurst {
  std::span<const std::byte> bytes;  // valid until the next receive() or release() of the port
  size_t segment_size = 0;           // > 0; bytes.size() when it holds one datagram
  Endpoint source;
  Endpoint destination;  // the local address it was sent to
  uint8_t traffic_class = 0;
};

enum class SendStatus {
  kSent,
  kWouldBlock,  // no room in the port; try again after wait_fd() says writable or some time
  kTooBig,      // a datagram exceeds what the interface carries (EMSGSIZE)
  kFailed,      // interface down, no route ...: counted, treated by the transport as loss
};

struct PortLimits {
  size_t max_datagrams_per_burst = 1;  // 1: no segmentation offload
  size_t max_burst_bytes = 0;          // storage a TxBurst for this port should have
  size_t max_datagram = 0;             // largest UDP payload that leaves unfragmented
  size_t receive_buffer_bytes = 0;     // what the kernel granted, in bytes of its own accounting
  bool receives_merged = false;        // GRO
};

struct PortCounters {
  uint64_t sent_bursts = 0;
  uint64_t sent_datagrams = 0;
  uint64_t sent_bytes = 0;
  uint64_t received_bursts = 0;
  uint64_t received_datagrams = 0;
  uint64_t received_bytes = 0;
  uint64_t receive_overflows = 0;  // datagrams or super-buffers the kernel dropped (SO_RXQ_OVFL)
  uint64_t send_would_block = 0;
  uint64_t send_failures = 0;
};

class Port {
 public:
  virtual ~Port() = default;
  virtual Endpoint local() const = 0;
  // A port may have several addresses: the GID table's, by their index. 0 is local().
  virtual bool has_source(uint8_t source) const { return source == 0; }
  virtual Endpoint local_at(uint8_t) const { return local(); }
  virtual const PortLimits& limits() const = 0;
  virtual const PortCounters& counters() const = 0;

  // Where the next burst is best written, for the port can send that without copying it; changes
  // with each send. Empty: anywhere.
  virtual std::span<std::byte> staging() { return {}; }

  // Sends all datagrams of the burst, or none. The burst's memory is free again on return, unless
  // it is staging()'s, which the port gives again when it is.
  virtual SendStatus send(const TxFlow& flow, const wire::TxBurst& burst) = 0;

  // Fills `bursts` with what has arrived; returns how many. The bytes stay valid until the next
  // call.
  virtual size_t receive(std::span<RxBurst> bursts) = 0;

  // Pollable descriptor that is readable while there is something to receive; -1 if there is none.
  // To be waited for level-triggered: receive() may give nothing a few times although it is
  // readable.
  virtual int wait_fd() const = 0;

  // Its sockets. For the child of a fork, which must close its copies: as long as one is open, the
  // kernel goes on to deliver to the socket.
  virtual std::vector<int> sockets() const { return {}; }
};

}  // namespace farverbs::io
