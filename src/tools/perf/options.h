// What a measurement is: the options of `farverbs perf client`, filled with defaults, checked, and
// sent to the server, which checks them again because a peer chose them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "farverbs/base/result.h"
#include "farverbs/base/time.h"
#include "farverbs/model/types.h"
#include "farverbs/verbs/verbs.h"
#include "tools/common/json_fields.h"

namespace farverbs::tools::perf {

enum class Op : uint8_t { kWrite, kRead, kSend, kFetchAdd, kCompareSwap };
enum class Mode : uint8_t { kBandwidth, kLatency };
// How a process waits for completions: poll() without end, or wait(), which spins for
// DeviceOptions::spin and then blocks.
enum class Wait : uint8_t { kPoll, kBlock };

const char* to_string(Op op);
const char* to_string(Mode mode);
const char* to_string(Wait wait);
const char* to_string(verbs::Transport transport);
Result<Op> parse_op(const std::string& text);
Result<Mode> parse_mode(const std::string& text);
Result<Wait> parse_wait(const std::string& text);
Result<verbs::Transport> parse_transport(const std::string& text);

inline bool is_atomic(Op op) { return op == Op::kFetchAdd || op == Op::kCompareSwap; }

// As given on the command line; what is absent gets a default that suits the rest.
struct Arguments {
  Op op = Op::kWrite;
  Mode mode = Mode::kBandwidth;
  std::optional<uint64_t> size;          // bytes of a message
  std::optional<uint32_t> depth;         // outstanding messages per queue pair
  std::optional<uint32_t> signal_every;  // one completion for so many messages
  std::optional<uint64_t> region;        // bytes of memory walked through on each side
  std::optional<double> seconds;
  std::optional<uint64_t> iterations;
  std::optional<uint64_t> bytes;       // to move altogether, from the connection on
  std::optional<double> message_rate;  // messages a second, whatever becomes of those before
  std::optional<Wait> wait;
  std::optional<double> spin_us;         // DeviceOptions::spin, both sides
  double timeline_seconds = 0;           // step of the time line; 0: none
  double interval_us = 0;                // pause between messages in latency mode
  std::optional<double> warmup_seconds;  // not measured
  uint32_t qps = 1;
  uint32_t mtu = 0;  // path MTU in bytes; 0: the largest that both ends take
  verbs::Transport transport = verbs::Transport::kAuto;
  verbs::TrafficClass traffic = verbs::TrafficClass::kBulk;
  bool bidirectional = false;
  bool inlined = false;
  bool target_idle = false;  // the server's process sleeps
  bool cold = false;
};

struct Options {
  Op op = Op::kWrite;
  Mode mode = Mode::kBandwidth;
  Wait wait = Wait::kBlock;
  uint64_t size = 0;
  uint32_t depth = 1;
  uint32_t signal_every = 1;
  uint64_t region = 0;  // at least one message's slot
  uint32_t qps = 1;
  uint32_t mtu = 0;
  verbs::Transport transport = verbs::Transport::kAuto;
  verbs::TrafficClass traffic = verbs::TrafficClass::kBulk;
  bool bidirectional = false;
  bool inlined = false;
  bool target_idle = false;
  bool cold = false;
  Duration spin;
  // The client's own affair; the server does not need them.
  Duration run_time;        // zero: `iterations` counts
  uint64_t iterations = 0;  // zero: `run_time` counts
  Duration warmup;
  Duration interval;
  uint64_t total_bytes = 0;  // not zero: `iterations` messages, the last one shorter, are so many
  double message_rate = 0;   // not zero: messages leave by the clock, and each one is timed
  Duration timeline_step;

  // Distance of messages in the region: cache lines are never shared.
  uint64_t stride() const { return (size + 63) / 64 * 64 + (size == 0 ? 64 : 0); }
  uint64_t slots() const { return region / stride(); }
  // Of the last message of a counted run.
  uint64_t last_size() const {
    return total_bytes == 0 ? size : total_bytes - (iterations - 1) * size;
  }
  bool times_messages() const { return mode == Mode::kLatency || message_rate > 0; }
};

// EINVAL with a message that says which option to change and how.
Result<Options> resolve(const Arguments& arguments);

Json to_json(const Options& options);
// EPROTO or EINVAL: what came is not a measurement that a client of ours would ask for.
Result<Options> from_json(const Json& object);

}  // namespace farverbs::tools::perf
