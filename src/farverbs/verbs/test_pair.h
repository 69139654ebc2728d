// Two devices of one process on the loopback address, with a connected QP each: what the tests of
// the API start from.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "farverbs/verbs/verbs.h"

namespace farverbs::verbs {

// The value, or the test ends with the error's message.
template <typename T>
T must(Result<T> result) {
  if (!result.ok()) {
    ADD_FAILURE() << result.error().message;
    std::abort();
  }
  return std::move(result).value();
}
inline void must(const Result<void>& result) {
  if (!result.ok()) {
    ADD_FAILURE() << result.error().message;
    std::abort();
  }
}

// On the busiest machine, with the slowest sanitizer; only a test that fails waits so long.
inline constexpr Duration kTestPatience = Duration::seconds(60);

inline constexpr uint32_t kAllAccess =
    model::kLocalWrite | model::kRemoteWrite | model::kRemoteRead | model::kRemoteAtomic;

struct EndOptions {
  std::string address = "127.0.0.1";
  QpType type = QpType::kRc;
  uint32_t depth = 64;
  uint32_t cq_capacity = 512;
  bool background = true;
  bool share_port = true;
  uint64_t memory = 1 << 20;
};

// One end: a device with a protection domain, a completion queue, a QP and a region.
struct End {
  explicit End(const EndOptions& options)
      : device(must(Device::open(device_options(options)))),
        pd(must(device.allocate_pd())),
        channel(must(device.create_channel())),
        cq(must(device.create_cq(options.cq_capacity, &channel))),
        memory(options.memory),
        region(must(pd.register_memory(memory.data(), memory.size(), kAllAccess))),
        qp(new_qp(options)) {}

  static DeviceOptions device_options(const EndOptions& options) {
    DeviceOptions device;
    device.address = *IpAddress::parse(options.address);
    device.background_progress = options.background;
    device.share_port = options.share_port;
    return device;
  }
  QueuePair new_qp(const EndOptions& options) {
    QueuePairInit init;
    init.type = options.type;
    init.send_cq = init.receive_cq = &cq;
    init.capabilities = {options.depth, options.depth, 4, 4, 256};
    return must(pd.create_qp(init));
  }
  // Waits for one completion, a minute at most.
  WorkCompletion completion() {
    WorkCompletion wc;
    EXPECT_EQ(cq.wait({&wc, 1}, kTestPatience), 1u) << "no completion came";
    return wc;
  }
  Result<void> post(SendOpcode opcode, uint64_t wr_id, uint64_t offset, uint32_t length,
                    const MemoryRegion* remote, uint64_t remote_offset,
                    uint32_t flags = model::kSignaled) {
    const ScatterGatherElement sge = region.sge(offset, length);
    SendWorkRequest wr;
    wr.wr_id = wr_id;
    wr.opcode = opcode;
    wr.flags = flags;
    wr.sges = {&sge, 1};
    if (remote != nullptr) {
      wr.remote_address = remote->address() + remote_offset;
      wr.remote_key = remote->rkey();
    }
    return qp.post_send(wr);
  }
  Result<void> post_receive(uint64_t wr_id, uint64_t offset, uint32_t length) {
    const ScatterGatherElement sge = region.sge(offset, length);
    return qp.post_receive({wr_id, {&sge, 1}});
  }

  Device device;
  ProtectionDomain pd;
  CompletionChannel channel;
  CompletionQueue cq;
  std::vector<std::byte> memory;
  MemoryRegion region;
  QueuePair qp;
};

struct Pair {
  explicit Pair(const EndOptions& options = {}, const ConnectOptions& connect = {})
      : a(options), b(options) {
    must(a.qp.connect(b.qp.address(), connect));
    must(b.qp.connect(a.qp.address(), connect));
  }
  End a;
  End b;
};

inline void fill(std::vector<std::byte>& memory, uint8_t seed) {
  for (size_t i = 0; i < memory.size(); ++i) {
    memory[i] = static_cast<std::byte>(i * 31 + (i >> 8) + seed);
  }
}

}  // namespace farverbs::verbs
