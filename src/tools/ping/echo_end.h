// EchoEnd: one side of a ping session: unreliable connected queue pairs (UC: what the network loses
// stays lost, and can be counted), one for each path MTU that this side's interface carries, and
// slots of memory for messages on their way.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "farverbs/base/result.h"
#include "farverbs/verbs/verbs.h"
#include "tools/common/json_fields.h"

namespace farverbs::tools::ping {

// The kind of session, as the first message of its connection names it.
inline constexpr const char* kSessionKind = "ping";
inline constexpr uint64_t kSessionVersion = 1;
inline constexpr uint32_t kMaxSize = 64 << 10;  // bytes of a message
inline constexpr uint32_t kMinSize = 8;         // its sequence number
inline constexpr uint32_t kSlots = 32;          // receives posted per queue pair

struct EchoEnd {
  verbs::CompletionQueue cq;
  verbs::MemoryRegion memory;
  // By rising path MTU code, from 256 bytes on.
  std::vector<verbs::QueuePair> qps;
  // A reliable one, which carries nothing: it shows which transport the two ends agree on.
  std::optional<verbs::QueuePair> reliable;

  // Slots of queue pair `qp`: kSlots to receive into, then as many to send from.
  verbs::ScatterGatherElement receive_slot(uint32_t qp, uint32_t slot, uint32_t length) const;
  verbs::ScatterGatherElement send_slot(uint32_t qp, uint32_t slot, uint32_t length) const;
  std::byte* bytes(const verbs::ScatterGatherElement& sge) const;
  Result<void> post_receive(uint32_t qp, uint32_t slot);
};

// Queue pairs for the path MTUs up to `largest`.
Result<EchoEnd> make_echo_end(verbs::Device& device, verbs::PathMtu largest);

Json describe(const EchoEnd& end);
// Connects to what the peer at `address` described and returns how many queue pairs both have.
// EPROTO: no description.
Result<uint32_t> connect(EchoEnd& end, const Json& description, const IpAddress& address);

}  // namespace farverbs::tools::ping
