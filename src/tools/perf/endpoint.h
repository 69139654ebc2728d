// One side of a measurement: a device, one completion queue, the queue pairs and one region of
// memory, and how it is described to the other side. Requests read from (or fetch into) the source
// part of the region; the peer reads, writes or sends to the target part. Where only one of them is
// needed they are the same.
#pragma once

#include <memory>
#include <vector>

#include "farverbs/base/result.h"
#include "farverbs/verbs/verbs.h"
#include "tools/common/json_fields.h"
#include "tools/perf/options.h"

namespace farverbs::tools::perf {

struct RemoteEndpoint {
  std::vector<verbs::QpAddress> qps;
  uint64_t target_address = 0;
  MemoryKey rkey;
};

struct LocalEndpoint {
  std::shared_ptr<verbs::Device> device;
  verbs::ProtectionDomain pd;
  verbs::CompletionQueue cq;
  verbs::MemoryRegion memory;
  std::vector<verbs::QueuePair> qps;
  uint64_t target_offset = 0;  // in the region
  uint32_t receives_per_qp = 0;
  uint32_t path_mtu = 0;                                     // bytes, once connected
  verbs::Transport transport = verbs::Transport::kStandard;  // that carries them, once connected

  verbs::ScatterGatherElement source(uint64_t slot, const Options& options) const;
  verbs::ScatterGatherElement target(uint64_t slot, const Options& options) const;
  std::byte* source_bytes() const { return memory.bytes().data(); }
  std::byte* target_bytes() const { return memory.bytes().data() + target_offset; }

  verbs::QpCounters counters() const;  // of all queue pairs
};

// EINVAL when the device cannot do what is asked, ENOMEM.
Result<LocalEndpoint> make_endpoint(std::shared_ptr<verbs::Device> device, const Options& options);

Json describe(const LocalEndpoint& endpoint, const Options& options);
// EPROTO: not a description; its queue pairs must be as many as `options` says, and must be at
// `address`, so that nobody directs our packets at a third party.
Result<RemoteEndpoint> read_description(const Json& object, const Options& options,
                                        const IpAddress& address);

Result<void> connect(LocalEndpoint& local, const RemoteEndpoint& remote, const Options& options);

// A completion that failed, in words that say what to do. `peer` is how messages call the other
// side.
Error describe_failure(const verbs::WorkCompletion& completion, const std::string& peer);

}  // namespace farverbs::tools::perf
