#include "tools/perf/options.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "farverbs/verbs/verbs.h"
#include "tools/common/class_option.h"
#include "tools/common/format.h"

namespace farverbs::tools::perf {
namespace {

template <typename Enum, size_t kCount>
using Names = std::array<std::pair<Enum, const char*>, kCount>;

constexpr Names<Op, 5> kOps = {{{Op::kWrite, "write"},
                                {Op::kRead, "read"},
                                {Op::kSend, "send"},
                                {Op::kFetchAdd, "fetch-add"},
                                {Op::kCompareSwap, "compare-swap"}}};
constexpr Names<Mode, 2> kModes = {{{Mode::kBandwidth, "bandwidth"}, {Mode::kLatency, "latency"}}};
constexpr Names<verbs::Transport, 3> kTransports = {{{verbs::Transport::kAuto, "auto"},
                                                     {verbs::Transport::kStandard, "standard"},
                                                     {verbs::Transport::kFar, "far"}}};
constexpr Names<Wait, 2> kWaits = {{{Wait::kPoll, "poll"}, {Wait::kBlock, "block"}}};

template <typename Enum, size_t kCount>
const char* name_of(const Names<Enum, kCount>& names, Enum value) {
  for (const auto& [candidate, name] : names) {
    if (candidate == value) return name;
  }
  return "?";
}

template <typename Enum, size_t kCount>
Result<Enum> value_of(const Names<Enum, kCount>& names, const char* what, const std::string& text) {
  std::string all;
  for (const auto& [value, name] : names) {
    if (text == name) return value;
    all += all.empty() ? name : std::string(", ") + name;
  }
  return invalid(fmt::format("'{}' is no {}: choose one of {}", text, what, all));
}

constexpr verbs::DeviceAttributes kLimits;
constexpr uint64_t kSmallMessage = 4096;
constexpr uint64_t kColdRegion = UINT64_C(1) << 30;
constexpr uint64_t kMaxRegion = UINT64_C(1) << 40;
constexpr Duration kDefaultSpin = Duration::microseconds(50);
constexpr Duration kMaxSpin = Duration::seconds(1);
constexpr double kMaxSeconds = 1e6;
constexpr double kWarmupSeconds = 0.2;

uint64_t default_size(const Arguments& a) {
  if (is_atomic(a.op)) return 8;
  return a.mode == Mode::kLatency ? 64 : UINT64_C(1) << 20;
}

// Enough outstanding for a home line around the world (1 Gb/s x 250 ms).
uint32_t default_depth(const Arguments& a, uint64_t size) {
  if (a.mode == Mode::kLatency) return 1;
  const uint64_t fits = (UINT64_C(32) << 20) / std::max<uint64_t>(size, 1);
  return static_cast<uint32_t>(std::clamp<uint64_t>(fits, 16, 128));
}

// A completion per message costs more than a small message itself.
uint32_t default_signal_every(uint64_t size, uint32_t depth) {
  return size <= kSmallMessage ? std::clamp<uint32_t>(depth / 4, 1, 32) : 1;
}

bool is_mtu(uint32_t mtu) {
  return mtu == 0 || mtu == 256 || mtu == 512 || mtu == 1024 || mtu == 2048 || mtu == 4096;
}

Result<void> check_message(const Options& o) {
  if (is_atomic(o.op) && o.size != 8) {
    return invalid(
        fmt::format("--op {} works on 8 bytes: leave --size out or use --size 8", to_string(o.op)));
  }
  if (o.size > kLimits.max_message_bytes) {
    return invalid(fmt::format("--size {} is more than a message carries: use at most {}", o.size,
                               format_bytes(kLimits.max_message_bytes)));
  }
  if (o.inlined && (o.op == Op::kRead || is_atomic(o.op))) {
    return invalid(
        "--inline sends data along with the request, which only --op write and --op "
        "send have");
  }
  if (o.inlined && o.size > kLimits.max_inline_data) {
    return invalid(fmt::format("--inline takes messages of at most {} bytes: use a smaller --size",
                               kLimits.max_inline_data));
  }
  if (!is_mtu(o.mtu)) {
    return invalid(fmt::format("--mtu {} is no path MTU: use 256, 512, 1024, 2048 or 4096", o.mtu));
  }
  return {};
}

Result<void> check_queues(const Options& o) {
  if (o.qps == 0 || o.qps > kLimits.max_qp) {
    return invalid(fmt::format("--qps must be 1 to {}", kLimits.max_qp));
  }
  if (o.depth == 0 || o.depth > kLimits.max_qp_wr) {
    return invalid(fmt::format("--depth must be 1 to {}", kLimits.max_qp_wr));
  }
  if (uint64_t{o.qps} * o.depth > kLimits.max_cqe / 2) {
    return invalid(
        fmt::format("--qps times --depth is {}, more than one completion queue holds: "
                    "use a smaller --depth",
                    uint64_t{o.qps} * o.depth));
  }
  if (o.signal_every == 0 || o.signal_every > o.depth) {
    return invalid(
        "--signal-every must be 1 to --depth, or the queue would fill up without a "
        "completion");
  }
  if (o.region < o.stride() || o.region > kMaxRegion) {
    return invalid(fmt::format("--region must hold at least one message ({} bytes) and at most {}",
                               o.stride(), format_bytes(kMaxRegion)));
  }
  if (o.spin < Duration() || o.spin > kMaxSpin) return invalid("--spin must be 0 to 1000000 us");
  return {};
}

Result<void> check_mode(const Options& o) {
  if (o.mode == Mode::kBandwidth) {
    if (o.target_idle) {
      return invalid(
          "--target-idle is about --mode latency: in bandwidth mode the target of "
          "one-sided operations always sleeps");
    }
    if (o.interval != Duration()) return invalid("--interval is about --mode latency");
    return {};
  }
  if (o.qps != 1 || o.depth != 1) {
    return invalid("--mode latency measures one message at a time: leave --qps and --depth out");
  }
  if (o.bidirectional) {
    return invalid("--bidirectional is about --mode bandwidth: a ping-pong goes both ways anyway");
  }
  if (o.op == Op::kSend && o.target_idle) {
    return invalid(
        "--target-idle needs a one-sided operation: a SEND is answered by the server's "
        "process (use --wait block to let it sleep between messages)");
  }
  if (o.op == Op::kWrite && !o.target_idle) {
    if (o.size == 0) {
      return invalid(
          "--op write --mode latency waits for the last byte to change: --size must be "
          "at least 1");
    }
    if (o.wait == Wait::kBlock) {
      return invalid(
          "--op write --mode latency watches memory, which cannot block: use "
          "--target-idle, or --op send --wait block");
    }
  }
  return {};
}

Result<Duration> checked_seconds(double seconds, const char* name) {
  // Written so that a NaN fails as well.
  if (!(seconds >= 0 && seconds <= kMaxSeconds)) {
    return invalid(fmt::format("{} must be 0 to {} seconds", name, kMaxSeconds));
  }
  return Duration::from_seconds(seconds);
}

// What the command line says about how much is sent and when.
Result<void> resolve_extent(const Arguments& a, Options& o) {
  if (int{a.seconds.has_value()} + a.iterations.has_value() + a.bytes.has_value() > 1) {
    return invalid("give one of --seconds, --iterations and --bytes");
  }
  if (a.bytes) {
    if (a.mode != Mode::kBandwidth || a.bidirectional || is_atomic(a.op)) {
      return invalid("--bytes is about --mode bandwidth in one direction");
    }
    if (*a.bytes == 0 || o.size == 0) return invalid("--bytes and --size must be at least 1");
    o.total_bytes = *a.bytes;
    o.iterations = (*a.bytes + o.size - 1) / o.size;
  } else if (a.iterations) {
    if (*a.iterations == 0) return invalid("--iterations must be at least 1");
    o.iterations = *a.iterations;
  } else {
    FV_ASSIGN(o.run_time, checked_seconds(a.seconds.value_or(5), "--seconds"));
    if (o.run_time < Duration::milliseconds(1)) return invalid("--seconds must be at least 0.001");
  }
  if (a.message_rate) {
    if (!(*a.message_rate > 0 && *a.message_rate <= 1e6)) {
      return invalid("--rate-messages must be more than 0 and at most 1000000 a second");
    }
    if (a.mode != Mode::kBandwidth || a.bidirectional || a.bytes || o.qps != 1) {
      return invalid("--rate-messages is about one queue pair in --mode bandwidth, one direction");
    }
    o.message_rate = *a.message_rate;
    o.signal_every = 1;
  }
  // Both count from the first byte.
  const bool from_the_start = o.total_bytes > 0 || o.message_rate > 0;
  if (from_the_start && a.warmup_seconds.value_or(0) > 0) {
    return invalid("--warmup has no place in a run that counts from the first byte on");
  }
  FV_ASSIGN(
      o.warmup,
      checked_seconds(a.warmup_seconds.value_or(from_the_start ? 0 : kWarmupSeconds), "--warmup"));
  FV_ASSIGN(o.timeline_step, checked_seconds(a.timeline_seconds, "--timeline"));
  if (o.timeline_step > Duration() && o.timeline_step < Duration::milliseconds(1)) {
    return invalid("--timeline must be 0.001 seconds or more");
  }
  return {};
}

Result<void> check(const Options& o) {
  FV_TRY(check_message(o));
  FV_TRY(check_queues(o));
  return check_mode(o);
}

}  // namespace

const char* to_string(Op op) { return name_of(kOps, op); }
const char* to_string(Mode mode) { return name_of(kModes, mode); }
const char* to_string(Wait wait) { return name_of(kWaits, wait); }
const char* to_string(verbs::Transport transport) { return name_of(kTransports, transport); }
Result<Op> parse_op(const std::string& text) { return value_of(kOps, "operation", text); }
Result<Mode> parse_mode(const std::string& text) { return value_of(kModes, "mode", text); }
Result<Wait> parse_wait(const std::string& text) { return value_of(kWaits, "way to wait", text); }
Result<verbs::Transport> parse_transport(const std::string& text) {
  return value_of(kTransports, "transport", text);
}

Result<Options> resolve(const Arguments& a) {
  Options o;
  o.op = a.op;
  o.mode = a.mode;
  o.wait = a.wait.value_or(a.mode == Mode::kLatency ? Wait::kPoll : Wait::kBlock);
  o.size = a.size.value_or(default_size(a));
  o.depth = a.depth.value_or(default_depth(a, o.size));
  o.signal_every = a.signal_every.value_or(default_signal_every(o.size, o.depth));
  o.region = a.region.value_or(a.cold ? kColdRegion : 0);
  // A region that is not asked for holds one message, which stays in the caches.
  if (o.size <= kLimits.max_message_bytes && !a.region) o.region = std::max(o.region, o.stride());
  o.qps = a.qps;
  o.mtu = a.mtu;
  o.transport = a.transport;
  o.traffic = a.traffic;
  o.bidirectional = a.bidirectional;
  o.inlined = a.inlined;
  o.target_idle = a.target_idle;
  o.cold = a.cold;
  FV_TRY(resolve_extent(a, o));
  FV_ASSIGN(o.interval, checked_seconds(a.interval_us * 1e-6, "--interval"));
  o.spin = kDefaultSpin;
  if (a.spin_us) {
    FV_ASSIGN(o.spin, checked_seconds(*a.spin_us * 1e-6, "--spin"));
  }
  FV_TRY(check(o));
  return o;
}

Json to_json(const Options& o) {
  return {{"op", to_string(o.op)},
          {"mode", to_string(o.mode)},
          {"wait", to_string(o.wait)},
          {"size", o.size},
          {"depth", o.depth},
          {"signal_every", o.signal_every},
          {"region_bytes", o.region},
          {"qps", o.qps},
          {"mtu", o.mtu},
          {"transport", to_string(o.transport)},
          {"class", model::to_string(o.traffic)},
          {"bidirectional", o.bidirectional},
          {"inline", o.inlined},
          {"target_idle", o.target_idle},
          {"cold", o.cold},
          {"spin_ns", o.spin.ns()}};
}

Result<Options> from_json(const Json& object) {
  Options o;
  FV_ASSIGN(const std::string op, json_string(object, "op"));
  FV_ASSIGN(o.op, parse_op(op));
  FV_ASSIGN(const std::string mode, json_string(object, "mode"));
  FV_ASSIGN(o.mode, parse_mode(mode));
  FV_ASSIGN(const std::string wait, json_string(object, "wait"));
  FV_ASSIGN(o.wait, parse_wait(wait));
  FV_ASSIGN(const std::string transport, json_string(object, "transport"));
  FV_ASSIGN(o.transport, parse_transport(transport));
  FV_ASSIGN(const std::string traffic, json_string(object, "class"));
  FV_ASSIGN(o.traffic, parse_class(traffic));
  constexpr uint64_t kMax32 = UINT32_MAX;
  FV_ASSIGN(o.size, json_unsigned(object, "size", 0, kLimits.max_message_bytes));
  FV_ASSIGN(const uint64_t depth, json_unsigned(object, "depth", 1, kMax32));
  FV_ASSIGN(const uint64_t signal_every, json_unsigned(object, "signal_every", 1, kMax32));
  FV_ASSIGN(o.region, json_unsigned(object, "region_bytes", 1, kMaxRegion));
  FV_ASSIGN(const uint64_t qps, json_unsigned(object, "qps", 1, kMax32));
  FV_ASSIGN(const uint64_t mtu, json_unsigned(object, "mtu", 0, 4096));
  FV_ASSIGN(const uint64_t spin,
            json_unsigned(object, "spin_ns", 0, static_cast<uint64_t>(kMaxSpin.ns())));
  o.depth = static_cast<uint32_t>(depth);
  o.signal_every = static_cast<uint32_t>(signal_every);
  o.qps = static_cast<uint32_t>(qps);
  o.mtu = static_cast<uint32_t>(mtu);
  o.spin = Duration::nanoseconds(static_cast<int64_t>(spin));
  FV_ASSIGN(o.bidirectional, json_bool(object, "bidirectional"));
  FV_ASSIGN(o.inlined, json_bool(object, "inline"));
  FV_ASSIGN(o.target_idle, json_bool(object, "target_idle"));
  FV_ASSIGN(o.cold, json_bool(object, "cold"));
  FV_TRY(check(o));
  return o;
}

}  // namespace farverbs::tools::perf
