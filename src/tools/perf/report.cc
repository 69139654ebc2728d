#include "tools/perf/report.h"

#include <algorithm>

#include <fmt/format.h>

#include "tools/common/format.h"
#include "tools/common/process_usage.h"
#include "tools/perf/latency.h"

namespace farverbs::tools::perf {
namespace {

struct CounterName {
  const char* name;
  uint64_t verbs::DeviceCounters::*value;
};

constexpr CounterName kCounters[] = {
    {"sent_datagrams", &verbs::DeviceCounters::sent_datagrams},
    {"sent_bytes", &verbs::DeviceCounters::sent_bytes},
    {"sent_bursts", &verbs::DeviceCounters::sent_bursts},
    {"received_datagrams", &verbs::DeviceCounters::received_datagrams},
    {"received_bytes", &verbs::DeviceCounters::received_bytes},
    {"received_bursts", &verbs::DeviceCounters::received_bursts},
    {"receive_overflows", &verbs::DeviceCounters::receive_overflows},
    {"icrc_errors", &verbs::DeviceCounters::icrc_errors},
    {"malformed_packets", &verbs::DeviceCounters::malformed_packets},
    {"unknown_qpn", &verbs::DeviceCounters::unknown_qpn},
    {"forwarded_out", &verbs::DeviceCounters::forwarded_out},
    {"forwarded_in", &verbs::DeviceCounters::forwarded_in},
    {"inline_steps", &verbs::DeviceCounters::inline_steps},
    {"background_steps", &verbs::DeviceCounters::background_steps},
    {"background_wakeups", &verbs::DeviceCounters::background_wakeups},
};

struct QpCounterName {
  const char* name;
  uint64_t verbs::QpCounters::*value;
};

constexpr QpCounterName kQpCounters[] = {
    {"sent_packets", &verbs::QpCounters::sent_packets},
    {"sent_payload_bytes", &verbs::QpCounters::sent_payload_bytes},
    {"received_packets", &verbs::QpCounters::received_packets},
    {"retransmitted_packets", &verbs::QpCounters::retransmitted_packets},
    {"retransmitted_bytes", &verbs::QpCounters::retransmitted_bytes},
    {"timeouts", &verbs::QpCounters::timeouts},
    {"sequence_naks_received", &verbs::QpCounters::sequence_naks_received},
    {"rnr_naks_received", &verbs::QpCounters::rnr_naks_received},
    {"duplicates_received", &verbs::QpCounters::duplicates_received},
};

double per_second(double amount, Duration elapsed) {
  return elapsed > Duration() ? amount / elapsed.to_seconds() : 0;
}

double bytes_of(const SideReport& side, const Options& options) {
  if (options.total_bytes > 0) return static_cast<double>(options.total_bytes);
  return static_cast<double>(side.messages) * static_cast<double>(options.size);
}

double bits_of(const SideReport& side, const Options& options) {
  return per_second(bytes_of(side, options) * 8, side.elapsed);
}

Json direction(const SideReport& side, const Options& options) {
  return {{"messages", side.messages},
          {"seconds", side.elapsed.to_seconds()},
          {"bits_per_second", bits_of(side, options)},
          {"messages_per_second", per_second(static_cast<double>(side.messages), side.elapsed)}};
}

const char* latency_kind(const Options& options) {
  return is_ping_pong(options) ? "round_trip" : "post_to_completion";
}

Json timeline_json(const Timeline& timeline) {
  return {{"interval_seconds", timeline.step().to_seconds()}, {"bytes", timeline.bytes()}};
}

// What a packet with as much payload as fits is on the wire.
Json full_packet_json(const Report& report) {
  const bool v6 = report.server_address.find(':') != std::string::npos;
  constexpr uint32_t kUdpAndRoce = 8 + 12 + 4;  // UDP, BTH, ICRC
  if (report.transport == verbs::Transport::kFar) {
    // As large as the interface lets out (docs/far-transport.md, section 2); a path that carries
    // less is found out by the transport, and not told here.
    constexpr uint32_t kFarHeaders = kUdpAndRoce + 8 + 16;
    const uint32_t payload = (report.interface_mtu - kFarHeaders - (v6 ? 40 : 20)) & ~3u;
    return {{"payload_bytes", payload}, {"ip_bytes", payload + kFarHeaders + (v6 ? 40 : 20)}};
  }
  return {{"payload_bytes", report.path_mtu},
          {"ip_bytes", report.path_mtu + kUdpAndRoce + (v6 ? 40 : 20)}};
}

Json latency_json(const Report& report) {
  const LatencyHistogram& h = report.latency;
  return {{"kind", latency_kind(report.options)},
          {"count", h.count()},
          {"min", h.min().to_microseconds()},
          {"mean", h.mean().to_microseconds()},
          {"p50", h.quantile(0.5).to_microseconds()},
          {"p99", h.quantile(0.99).to_microseconds()},
          {"p999", h.quantile(0.999).to_microseconds()},
          {"max", h.max().to_microseconds()}};
}

std::string three_digits(double value) {
  return fmt::format("{:.{}f}", value, value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3);
}

}  // namespace

Snapshot take_snapshot(const LocalEndpoint& endpoint, uint64_t messages) {
  return {clock_now(), cpu_time(), messages, endpoint.counters(), endpoint.device->counters()};
}

SideReport difference(const Snapshot& begin, const Snapshot& end) {
  SideReport side;
  side.elapsed = end.at - begin.at;
  side.cpu = end.cpu - begin.cpu;
  side.messages = end.messages - begin.messages;
  side.retransmitted = end.qps.retransmitted_packets - begin.qps.retransmitted_packets;
  side.counters = Json::object();
  for (const CounterName& counter : kCounters) {
    side.counters[counter.name] = end.device.*counter.value - begin.device.*counter.value;
  }
  for (const QpCounterName& counter : kQpCounters) {
    side.counters[counter.name] = end.qps.*counter.value - begin.qps.*counter.value;
  }
  return side;
}

Json to_json(const SideReport& side) {
  return {{"elapsed_ns", side.elapsed.ns()},
          {"cpu_ns", side.cpu.ns()},
          {"messages", side.messages},
          {"retransmitted_packets", side.retransmitted},
          {"counters", side.counters}};
}

Result<SideReport> side_from_json(const Json& object) {
  constexpr uint64_t kMaxNs = INT64_MAX;
  SideReport side;
  FV_ASSIGN(const uint64_t elapsed, json_unsigned(object, "elapsed_ns", 0, kMaxNs));
  FV_ASSIGN(const uint64_t cpu, json_unsigned(object, "cpu_ns", 0, kMaxNs));
  FV_ASSIGN(side.messages, json_unsigned(object, "messages", 0, UINT64_MAX));
  FV_ASSIGN(side.retransmitted, json_unsigned(object, "retransmitted_packets", 0, UINT64_MAX));
  FV_ASSIGN(side.counters, json_object(object, "counters"));
  side.elapsed = Duration::nanoseconds(static_cast<int64_t>(elapsed));
  side.cpu = Duration::nanoseconds(static_cast<int64_t>(cpu));
  return side;
}

double Report::bits_per_second() const {
  return bits_of(client, options) + (options.bidirectional ? bits_of(server, options) : 0);
}

double Report::messages_per_second() const {
  const auto of = [](const SideReport& side) {
    return per_second(static_cast<double>(side.messages), side.elapsed);
  };
  return of(client) + (options.bidirectional ? of(server) : 0);
}

double Report::cpu_per_gigabyte(Duration cpu) const {
  const double bytes = bytes_of(client, options) * (is_ping_pong(options) ? 2 : 1) +
                       (options.bidirectional ? bytes_of(server, options) : 0);
  return bytes > 0 ? cpu.to_seconds() / bytes * 1e9 : 0;
}

Json to_json(const Report& report) {
  const Options& o = report.options;
  Json out = {{"tool", "perf"},
              {"client", report.client_address},
              {"server", report.server_address},
              {"options", to_json(o)},
              {"path_mtu", report.path_mtu},
              {"transport", to_string(report.transport)},
              {"class", model::to_string(o.traffic)},
              {"seconds", report.client.elapsed.to_seconds()},
              {"messages", report.client.messages + (o.bidirectional ? report.server.messages : 0)},
              {"bits_per_second", report.bits_per_second()},
              {"messages_per_second", report.messages_per_second()}};
  out["setup_seconds"] = report.setup.to_seconds();
  if (o.total_bytes > 0) {
    out["transfer"] = {{"bytes", o.total_bytes},
                       {"seconds", report.total.to_seconds()},
                       {"seconds_after_setup", (report.total - report.setup).to_seconds()}};
  }
  if (o.timeline_step > Duration()) out["timeline"] = timeline_json(report.timeline);
  out["full_packet"] = full_packet_json(report);
  if (o.times_messages()) out["latency_us"] = latency_json(report);
  if (o.message_rate > 0) {
    Json& samples = out["samples_us"] = Json::array();
    for (const Duration sample : report.samples) samples.push_back(sample.to_microseconds());
  }
  if (o.bidirectional) {
    out["to_server"] = direction(report.client, o);
    out["to_client"] = direction(report.server, o);
  }
  const Duration cpu = report.client.cpu + report.server.cpu;
  out["cpu"] = {{"client_seconds", report.client.cpu.to_seconds()},
                {"server_seconds", report.server.cpu.to_seconds()},
                {"client_seconds_per_gb", report.cpu_per_gigabyte(report.client.cpu)},
                {"server_seconds_per_gb", report.cpu_per_gigabyte(report.server.cpu)},
                {"seconds_per_gb", report.cpu_per_gigabyte(cpu)}};
  out["retransmitted_packets"] = {{"client", report.client.retransmitted},
                                  {"server", report.server.retransmitted}};
  out["counters"] = {{"client", report.client.counters}, {"server", report.server.counters}};
  if (!report.intervals.empty()) {
    Json intervals = Json::array();
    for (const Interval& i : report.intervals) {
      const double bits = static_cast<double>(i.messages) * static_cast<double>(o.size) * 8;
      intervals.push_back({{"begin", i.begin.to_seconds()},
                           {"end", i.end.to_seconds()},
                           {"messages", i.messages},
                           {"bits_per_second", per_second(bits, i.end - i.begin)}});
    }
    out["intervals"] = std::move(intervals);
  }
  return out;
}

std::string title(const Options& o) {
  std::string text =
      fmt::format("{} {}, {} messages", to_string(o.op), to_string(o.mode), format_bytes(o.size));
  if (o.mode == Mode::kBandwidth) {
    text +=
        fmt::format(", {} queue pair{} x {} outstanding", o.qps, o.qps == 1 ? "" : "s", o.depth);
  }
  if (o.total_bytes > 0) text += fmt::format(", {} altogether", format_bytes(o.total_bytes));
  if (o.message_rate > 0) text += fmt::format(", {:g} a second", o.message_rate);
  if (o.bidirectional) text += ", both directions";
  if (o.traffic != verbs::TrafficClass::kBulk) {
    text += fmt::format(", {}", model::to_string(o.traffic));
  }
  if (o.inlined) text += ", inline";
  if (o.slots() > 1) text += fmt::format(", through {} of memory", format_bytes(o.region));
  if (o.target_idle) text += ", target asleep";
  if (o.mode == Mode::kLatency) {
    text += o.wait == Wait::kPoll ? ", polling" : ", blocking";
  }
  return text;
}

std::string to_text(const Interval& interval, const Options& options) {
  const Duration length = interval.end - interval.begin;
  const auto messages = static_cast<double>(interval.messages);
  return fmt::format(
      "{:>7.1f} s  {:>12}  {:>8} messages/s", interval.end.to_seconds(),
      format_bit_rate(per_second(messages * static_cast<double>(options.size) * 8, length)),
      format_count(per_second(messages, length)));
}

std::string to_text(const Report& report) {
  const Options& o = report.options;
  TextTable table;
  if (o.times_messages()) {
    const LatencyHistogram& h = report.latency;
    table.row({is_ping_pong(o) ? "round trip" : "post to completion", "min", "p50", "p99", "p99.9",
               "max"});
    table.row({"", format_duration(h.min()), format_duration(h.quantile(0.5)),
               format_duration(h.quantile(0.99)), format_duration(h.quantile(0.999)),
               format_duration(h.max())});
    table.row({"messages/s", format_count(report.messages_per_second())});
  } else {
    table.row({"bandwidth", format_bit_rate(report.bits_per_second())});
    if (o.bidirectional) {
      table.row({"  to the server", format_bit_rate(bits_of(report.client, o))});
      table.row({"  to the client", format_bit_rate(bits_of(report.server, o))});
    }
    table.row({"messages/s", format_count(report.messages_per_second())});
  }
  std::string text = table.to_string();
  TextTable sides;
  sides.row({"", "client", "server"});
  sides.row({"CPU seconds", three_digits(report.client.cpu.to_seconds()),
             three_digits(report.server.cpu.to_seconds())});
  if (o.mode == Mode::kBandwidth && o.size > 0) {
    sides.row({"CPU seconds per GB", three_digits(report.cpu_per_gigabyte(report.client.cpu)),
               three_digits(report.cpu_per_gigabyte(report.server.cpu))});
  }
  sides.row({"retransmitted packets", std::to_string(report.client.retransmitted),
             std::to_string(report.server.retransmitted)});
  text += "\n" + sides.to_string();
  if (o.total_bytes > 0) {
    text += fmt::format(
        "\n{:.4g} s from the first packet to the last confirmation, {:.4g} s of it to connect\n",
        report.total.to_seconds(), report.setup.to_seconds());
  }
  const bool far = report.transport == verbs::Transport::kFar;
  text +=
      fmt::format("\n{:.3g} s measured, {}, from {} to {}\n", report.client.elapsed.to_seconds(),
                  far ? "far transport" : fmt::format("path MTU {}", report.path_mtu),
                  report.client_address, report.server_address);
  return text;
}

}  // namespace farverbs::tools::perf
