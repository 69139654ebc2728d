#include "tools/ping/pinger.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "farverbs/base/byte_order.h"
#include "tools/common/format.h"
#include "tools/common/process_usage.h"
#include "tools/ping/echo_end.h"

namespace farverbs::tools::ping {
namespace {

constexpr Duration kConnectTimeout = Duration::seconds(10);
constexpr Duration kSetupTimeout = Duration::seconds(30);
constexpr Duration kTurn = Duration::milliseconds(100);
constexpr uint64_t kSendTag = UINT64_C(1) << 63;
constexpr int kProbes = 3;
constexpr uint64_t kMaxCount = 10'000'000;

class Pinger {
 public:
  Pinger(EchoEnd& end, verbs::Rendezvous& connection, const PingOptions& options)
      : end_(end), connection_(connection), options_(options) {}

  // The largest path MTU whose packets come back, as an index of queue pairs. Small ones first:
  // they tell whether anything passes, and how long to wait for those that may not.
  Result<uint32_t> find_path_mtu(uint32_t qps) {
    Duration patience = options_.timeout;
    FV_ASSIGN(const bool any, probe(0, &patience));
    if (!any) {
      return Error{ETIMEDOUT, fmt::format("no RDMA packets come back from {} (does a firewall drop "
                                          "UDP port {}?)",
                                          options_.host, kRoceUdpPort)};
    }
    for (uint32_t qp = qps - 1; qp > 0; --qp) {
      FV_ASSIGN(const bool passes, probe(qp, &patience));
      if (passes) return qp;
    }
    return 0u;
  }

  Result<void> run(uint32_t qp, PingReport& report,
                   const std::function<void(uint64_t, Duration)>& on_reply) {
    qp_ = qp;
    sent_at_.clear();
    report_ = &report;
    on_reply_ = &on_reply;
    Time next = clock_now();
    while (report.sent < options_.count) {
      FV_TRY(send(options_.size));
      ++report.sent;
      next = next + options_.interval;
      if (report.sent < options_.count) FV_TRY(collect_until(next, UINT64_MAX));
    }
    return collect_until(clock_now() + options_.timeout, report.sent);
  }

 private:
  // Shortens *patience once it knows the round trip time.
  Result<bool> probe(uint32_t qp, Duration* patience) {
    qp_ = qp;
    sent_at_.clear();
    PingReport probes;
    report_ = &probes;
    const std::function<void(uint64_t, Duration)> nobody;
    on_reply_ = &nobody;
    const uint32_t size = model::bytes_of(static_cast<verbs::PathMtu>(qp + 1));
    for (int i = 0; i < kProbes; ++i) {
      FV_TRY(send(size));
      FV_TRY(collect_until(clock_now() + *patience, 1));
      if (probes.received == 0) continue;
      const Duration learnt = probes.round_trip.max() * 4 + Duration::milliseconds(100);
      *patience = std::min(*patience, learnt);
      return true;
    }
    return false;
  }

  Result<void> send(uint32_t size) {
    const uint64_t sequence = sent_at_.size();
    // A slot comes around again after kSlots messages; unreliable sends have long left it by then.
    const verbs::ScatterGatherElement sge =
        end_.send_slot(qp_, static_cast<uint32_t>(sequence % kSlots), size);
    store_be(end_.bytes(sge), sequence);
    verbs::SendWorkRequest request;
    request.wr_id = kSendTag;
    request.opcode = verbs::SendOpcode::kSend;
    request.flags = model::kSignaled;
    request.sges = {&sge, 1};
    sent_at_.push_back(clock_now());
    return end_.qps[qp_].post_send(request);
  }

  // Until `deadline`, or `enough` replies.
  Result<void> collect_until(Time deadline, uint64_t enough) {
    std::array<verbs::WorkCompletion, kSlots> completions;
    for (Time now = clock_now(); now < deadline && report_->received < enough; now = clock_now()) {
      const size_t count = end_.cq.wait(completions, std::min(deadline - now, kTurn));
      const Time arrived = clock_now();
      for (size_t i = 0; i < count; ++i) FV_TRY(take(completions[i], arrived));
      if (now >= next_check_) {
        next_check_ = now + kTurn;
        FV_TRY(check_server());
      }
    }
    return {};
  }

  Result<void> take(const verbs::WorkCompletion& completion, Time arrived) {
    if (completion.status != verbs::CompletionStatus::kSuccess) {
      return Error{EIO, fmt::format("a message failed: {}", model::to_string(completion.status))};
    }
    if (completion.wr_id == kSendTag) return {};
    const auto qp = static_cast<uint32_t>(completion.wr_id >> 32);
    const auto slot = static_cast<uint32_t>(completion.wr_id);
    const auto sequence = load_be<uint64_t>(end_.bytes(end_.receive_slot(qp, slot, kMinSize)));
    // Late answers to probes of another queue pair are no answers to these messages.
    if (qp == qp_ && completion.byte_length >= kMinSize && sequence < sent_at_.size() &&
        !sent_at_[sequence].is_never()) {
      const Duration round_trip = arrived - sent_at_[sequence];
      sent_at_[sequence] = Time::never();  // answered
      ++report_->received;
      report_->round_trip.add(round_trip);
      if (*on_reply_) (*on_reply_)(sequence + 1, round_trip);
    }
    return end_.post_receive(qp, slot);
  }

  Result<void> check_server() {
    const Result<std::string> said = connection_.receive(Duration());
    if (!said.ok() && said.error().code == ETIMEDOUT) return {};
    if (!said.ok()) {
      return Error{said.error().code, fmt::format("the server at {} went away: {}", options_.host,
                                                  said.error().message)};
    }
    FV_ASSIGN(const Json message, parse_json_object(*said));
    return json_no_error(message);
  }

  EchoEnd& end_;
  verbs::Rendezvous& connection_;
  const PingOptions& options_;
  uint32_t qp_ = 0;
  Time next_check_;
  std::vector<Time> sent_at_;
  PingReport* report_ = nullptr;
  const std::function<void(uint64_t, Duration)>* on_reply_ = nullptr;
};

Result<void> check(const PingOptions& o) {
  if (o.size < kMinSize || o.size > kMaxSize) {
    return invalid(fmt::format("--size must be {} to {} bytes", kMinSize, kMaxSize));
  }
  if (o.count == 0 || o.count > kMaxCount) {
    return invalid(fmt::format("--count must be 1 to {}", kMaxCount));
  }
  if (o.interval < Duration::microseconds(10)) {
    return invalid("--interval must be at least 0.00001 seconds");
  }
  return {};
}

// IP and UDP headers, BTH and ICRC around a full packet of a SEND.
uint32_t packet_bytes(uint32_t path_mtu, const IpAddress& address) {
  return path_mtu + (address.is_v4() ? 20 : 40) + 8 + 12 + 4;
}

const char* transport_name(const PingReport& report) {
  return report.transport == verbs::Transport::kFar ? "far" : "standard";
}

}  // namespace

double PingReport::loss_percent() const {
  return sent == 0 ? 0 : 100.0 * static_cast<double>(sent - received) / static_cast<double>(sent);
}

Result<PingReport> run_ping(const PingOptions& options,
                            const std::function<void(uint64_t, Duration)>& on_reply) {
  FV_TRY(check(options));
  FV_ASSIGN(verbs::Rendezvous connection,
            verbs::Rendezvous::connect(options.host, options.port, kConnectTimeout));
  verbs::DeviceOptions device_options;
  device_options.address = connection.local_address();
  device_options.udp_port = options.udp_port;
  FV_ASSIGN(verbs::Device device, verbs::Device::open(device_options));
  FV_ASSIGN(EchoEnd end, make_echo_end(device, device.port().max_path_mtu));
  FV_TRY(connection.send(
      Json{{"farverbs", kSessionKind}, {"version", kSessionVersion}, {"endpoint", describe(end)}}
          .dump()));
  Result<std::string> text = connection.receive(kSetupTimeout);
  if (!text.ok()) {
    return Error{text.error().code, fmt::format("the server at {} does not answer: {}",
                                                options.host, text.error().message)};
  }
  FV_ASSIGN(const Json answer, parse_json_object(*text));
  FV_TRY(json_no_error(answer));
  FV_ASSIGN(const Json description, json_object(answer, "endpoint"));
  const IpAddress address = connection.peer_address();
  FV_ASSIGN(const uint32_t qps, connect(end, description, address));

  PingReport report;
  report.address = address.to_string();
  report.transport = end.reliable->transport();
  report.interface_path_mtu = model::bytes_of(static_cast<verbs::PathMtu>(qps));
  Pinger pinger(end, connection, options);
  FV_ASSIGN(const uint32_t qp, pinger.find_path_mtu(qps));
  report.path_mtu = model::bytes_of(static_cast<verbs::PathMtu>(qp + 1));
  report.packet_bytes = packet_bytes(report.path_mtu, address);
  FV_TRY(pinger.run(qp, report, on_reply));
  return report;
}

Json to_json(const PingReport& report, const PingOptions& options) {
  const LatencyHistogram& h = report.round_trip;
  return {{"tool", "ping"},
          {"host", options.host},
          {"server", report.address},
          {"size", options.size},
          {"sent", report.sent},
          {"received", report.received},
          {"loss_percent", report.loss_percent()},
          {"round_trip_us",
           {{"min", h.min().to_microseconds()},
            {"mean", h.mean().to_microseconds()},
            {"p50", h.quantile(0.5).to_microseconds()},
            {"p99", h.quantile(0.99).to_microseconds()},
            {"max", h.max().to_microseconds()}}},
          {"transport", transport_name(report)},
          {"path_mtu", report.path_mtu},
          {"interface_path_mtu", report.interface_path_mtu},
          {"packet_bytes", report.packet_bytes}};
}

std::string to_text(const PingReport& report) {
  const LatencyHistogram& h = report.round_trip;
  std::string text = fmt::format("{} sent, {} received, {:.3g}% lost\n", report.sent,
                                 report.received, report.loss_percent());
  if (report.received > 0) {
    text += fmt::format("round trip min {}, p50 {}, p99 {}, max {}\n", format_duration(h.min()),
                        format_duration(h.quantile(0.5)), format_duration(h.quantile(0.99)),
                        format_duration(h.max()));
  }
  text +=
      fmt::format("path MTU {} (packets of {} bytes pass)", report.path_mtu, report.packet_bytes);
  if (report.path_mtu < report.interface_path_mtu) {
    text += fmt::format("; both interfaces would carry {}: something between them does not",
                        report.interface_path_mtu);
  }
  return text +
         fmt::format("\nreliable connections use the {} transport\n", transport_name(report));
}

}  // namespace farverbs::tools::ping
