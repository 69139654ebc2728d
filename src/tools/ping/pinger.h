// The asking side of `farverbs ping`: finds the path MTU, then sends messages and counts what comes
// back.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "farverbs/base/result.h"
#include "farverbs/base/time.h"
#include "farverbs/verbs/rendezvous.h"
#include "farverbs/verbs/verbs.h"
#include "tools/common/json_fields.h"
#include "tools/common/latency_histogram.h"

namespace farverbs::tools::ping {

struct PingOptions {
  std::string host;
  uint16_t port = verbs::kRendezvousPort;
  uint16_t udp_port = kRoceUdpPort;  // of our own device
  uint64_t count = 5;
  uint32_t size = 64;  // bytes of a message
  Duration interval = Duration::milliseconds(200);
  Duration timeout = Duration::seconds(1);  // how long a message may be under way
};

struct PingReport {
  std::string address;              // of the server
  uint32_t path_mtu = 0;            // bytes; the largest that passed
  uint32_t packet_bytes = 0;        // the IP packet of a full one
  uint32_t interface_path_mtu = 0;  // the largest that both interfaces carry
  verbs::Transport transport = verbs::Transport::kStandard;  // of a reliable connection
  uint64_t sent = 0;
  uint64_t received = 0;
  LatencyHistogram round_trip;

  double loss_percent() const;
};

// on_reply: sequence number from 1 and round trip time, as replies come. EINVAL: an option is out
// of range; ETIMEDOUT: nothing comes back at all; EPIPE: the server went away.
Result<PingReport> run_ping(const PingOptions& options,
                            const std::function<void(uint64_t, Duration)>& on_reply = {});

Json to_json(const PingReport& report, const PingOptions& options);
std::string to_text(const PingReport& report);

}  // namespace farverbs::tools::ping
