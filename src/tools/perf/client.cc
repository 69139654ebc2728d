#include "tools/perf/client.h"

#include <algorithm>
#include <deque>
#include <thread>

#include <fmt/format.h>

#include "tools/common/process_usage.h"
#include "tools/perf/latency.h"
#include "tools/perf/link.h"
#include "tools/perf/session.h"
#include "tools/perf/traffic.h"

namespace farverbs::tools::perf {
namespace {

constexpr Duration kConnectTimeout = Duration::seconds(10);
// Thousands of queue pairs and gigabytes of memory to touch take their time.
constexpr Duration kSetupTimeout = Duration::seconds(120);
// How often a running measurement looks whether the server still lives.
constexpr Duration kCheckEvery = Duration::milliseconds(100);
constexpr Duration kPatience = Duration::seconds(30);

class Client {
 public:
  Client(Link& link, LocalEndpoint& local, const RemoteEndpoint& remote, const Options& options,
         Report& report, Duration report_every,
         const std::function<void(const Interval&)>& on_interval)
      : link_(link),
        local_(local),
        options_(options),
        report_(report),
        report_every_(report_every),
        on_interval_(on_interval),
        traffic_(local, remote, options, link.peer()),
        latency_(local, remote, options, link.peer()) {
    report_.timeline = Timeline(options.timeline_step);
  }

  Result<void> post_receives() {
    if (options_.op != Op::kSend) return {};
    if (options_.mode == Mode::kLatency) return latency_.post_receives();
    return options_.bidirectional ? traffic_.post_receives() : Result<void>();
  }

  Result<void> run() {
    report_.timeline.begin(clock_now());
    FV_TRY(link_.say("start"));
    FV_TRY(options_.mode == Mode::kLatency ? measure_latency()
           : options_.message_rate > 0     ? measure_paced()
                                           : measure_bandwidth());
    FV_TRY(link_.say("stop"));
    return await_report();
  }

 private:
  Duration patience() const { return options_.wait == Wait::kPoll ? Duration() : kCheckEvery; }

  Result<void> check_server(Time now) {
    if (now < next_check_) return {};
    next_check_ = now + kCheckEvery;
    Result<std::optional<Json>> said = link_.poll();
    return said.ok() ? Result<void>() : Result<void>(said.error());
  }

  // Begins the measured part.
  Result<void> mark(uint64_t messages) {
    begin_ = take_snapshot(local_, messages);
    interval_begin_ = begin_.at;
    interval_messages_ = messages;
    return link_.say("mark");
  }

  void finish(uint64_t messages) {
    const Snapshot end = take_snapshot(local_, messages);
    if (report_every_ > Duration() && messages > interval_messages_) {
      close_interval(end.at, messages);
    }
    report_.client = difference(begin_, end);
  }

  void close_interval(Time now, uint64_t messages) {
    const Interval interval{interval_begin_ - begin_.at, now - begin_.at,
                            messages - interval_messages_};
    interval_begin_ = now;
    interval_messages_ = messages;
    report_.intervals.push_back(interval);
    if (on_interval_) on_interval_(interval);
  }

  void tick(Time now, uint64_t messages) {
    if (report_every_ > Duration() && now - interval_begin_ >= report_every_) {
      close_interval(now, messages);
    }
  }

  Result<void> step_traffic(Time until) {
    const Time now = clock_now();
    const Duration left = until.is_never() ? kCheckEvery : until - now;
    FV_TRY(traffic_.step(std::clamp(left, Duration(), patience())));
    if (options_.timeline_step > Duration()) {
      report_.timeline.note(clock_now(), traffic_.sent_bytes());
    }
    return check_server(now);
  }

  // Until everything that was sent is acknowledged. A slow path may take its time over that, as
  // long as it gets on.
  Result<void> drain() {
    traffic_.stop_sending();
    uint64_t sent = traffic_.sent();
    Time deadline = clock_now() + kPatience;
    while (!traffic_.drained()) {
      FV_TRY(step_traffic(deadline));
      const Time now = clock_now();
      if (traffic_.sent() > sent) {
        sent = traffic_.sent();
        deadline = now + kPatience;
      } else if (now >= deadline) {
        return Error{ETIMEDOUT, fmt::format("{} does not acknowledge what was sent", link_.peer())};
      }
    }
    return {};
  }

  Result<void> measure_bandwidth() {
    const bool counted = options_.iterations > 0;
    if (options_.warmup > Duration()) {
      traffic_.start_sending();
      const Time warm = clock_now() + options_.warmup;
      while (clock_now() < warm) FV_TRY(step_traffic(warm));
      // A counted run sends exactly what it counts.
      if (counted) FV_TRY(drain());
    }
    FV_TRY(mark(traffic_.sent()));
    const Time end = counted ? Time::never() : begin_.at + options_.run_time;
    traffic_.start_sending(counted ? traffic_.sent() + options_.iterations : UINT64_MAX,
                           options_.total_bytes > 0 ? options_.last_size() : 0);
    for (Time now = begin_.at; now < end && !traffic_.done(); now = clock_now()) {
      FV_TRY(step_traffic(end));
      tick(now, traffic_.sent());
    }
    finish(traffic_.sent());
    // What is still on its way dies with its queue pairs.
    traffic_.stop_sending();
    return {};
  }

  // Messages leave by the clock, whatever becomes of those before; each counts from when it was
  // due, so that one that has to wait for room is not flattered.
  Result<void> measure_paced() {
    FV_TRY(mark(0));
    const Duration period = Duration::from_seconds(1 / options_.message_rate);
    const Time end = options_.iterations > 0
                         ? begin_.at + period * static_cast<int64_t>(options_.iterations)
                         : begin_.at + options_.run_time;
    std::deque<Time> due;
    Time next = begin_.at;
    Time progress = begin_.at;
    uint64_t asked = 0, confirmed = 0;
    for (Time now = begin_.at; now < end || !due.empty(); now = clock_now()) {
      for (; next <= now && next < end; next = next + period) {
        due.push_back(next);
        ++asked;
      }
      traffic_.start_sending(asked);
      FV_TRY(step_traffic(next < end ? next : now + kCheckEvery));
      now = clock_now();
      if (confirmed < traffic_.sent()) progress = now;
      for (; confirmed < traffic_.sent(); ++confirmed) {
        report_.samples.push_back(now - due.front());
        report_.latency.add(report_.samples.back());
        due.pop_front();
      }
      tick(now, confirmed);
      if (now - progress > kPatience + period) {
        return Error{ETIMEDOUT, fmt::format("{} does not acknowledge what was sent", link_.peer())};
      }
    }
    finish(confirmed);
    return {};
  }

  // One message and its answer.
  Result<Duration> once(uint64_t number) {
    const bool ping_pong = is_ping_pong(options_);
    const Time begin = clock_now();
    FV_TRY(latency_.post());
    for (uint32_t turn = 1;; ++turn) {
      FV_TRY(latency_.look(patience()));
      if ((ping_pong ? latency_.arrived() : latency_.completed()) > number) break;
      if (patience() > Duration() || turn % 1024 == 0) FV_TRY(check_server(clock_now()));
    }
    return clock_now() - begin;
  }

  Result<void> measure_latency() {
    uint64_t number = 0;
    const auto pause = [&] {
      if (options_.interval == Duration()) return;
      std::this_thread::sleep_for(std::chrono::nanoseconds(options_.interval.ns()));
    };
    const Time warm = clock_now() + options_.warmup;
    while (clock_now() < warm) {
      FV_TRY(once(number++));
      pause();
    }
    FV_TRY(mark(number));
    const uint64_t first = number;
    const Time end = options_.iterations > 0 ? Time::never() : begin_.at + options_.run_time;
    for (Time now = begin_.at; now < end; now = clock_now()) {
      if (options_.iterations > 0 && number - first == options_.iterations) break;
      FV_ASSIGN(const Duration took, once(number));
      ++number;
      report_.latency.add(took);
      tick(now, number);
      pause();
    }
    finish(number);
    return {};
  }

  Result<void> await_report() {
    FV_ASSIGN(const Json message, link_.receive(kPatience));
    FV_ASSIGN(report_.server, side_from_json(message));
    return {};
  }

  Link& link_;
  LocalEndpoint& local_;
  const Options& options_;
  Report& report_;
  const Duration report_every_;
  const std::function<void(const Interval&)>& on_interval_;
  Traffic traffic_;
  LatencyEnd latency_;
  Snapshot begin_;
  Time next_check_;
  Time interval_begin_;
  uint64_t interval_messages_ = 0;
};

}  // namespace

Result<Report> run_client(const ClientPlace& place, const Options& options, Duration report_every,
                          const std::function<void(const Interval&)>& on_interval) {
  const Time began = clock_now();
  FV_ASSIGN(verbs::Rendezvous connection,
            verbs::Rendezvous::connect(place.host, place.port, kConnectTimeout));
  Link link(connection, fmt::format("the server at {} port {}", place.host, place.port));

  verbs::DeviceOptions device_options;
  device_options.address = connection.local_address();
  device_options.udp_port = place.udp_port;
  device_options.spin = options.spin;
  device_options.stats = true;
  FV_ASSIGN(verbs::Device opened, verbs::Device::open(device_options));
  auto device = std::make_shared<verbs::Device>(std::move(opened));
  FV_ASSIGN(LocalEndpoint local, make_endpoint(std::move(device), options));

  FV_TRY(link.send({{"farverbs", "perf"},
                    {"version", kProtocolVersion},
                    {"options", to_json(options)},
                    {"endpoint", describe(local, options)}}));
  FV_ASSIGN(const Json answer, link.receive(kSetupTimeout));
  FV_ASSIGN(const Json description, json_object(answer, "endpoint"));
  FV_ASSIGN(const RemoteEndpoint remote,
            read_description(description, options, connection.peer_address()));
  FV_TRY(connect(local, remote, options));

  Report report;
  report.setup = clock_now() - began;
  report.options = options;
  report.client_address = connection.local_address().to_string();
  report.server_address = connection.peer_address().to_string();
  report.path_mtu = local.path_mtu;
  report.interface_mtu = local.device->port().interface_mtu;
  report.transport = local.transport;
  Client client(link, local, remote, options, report, report_every, on_interval);
  Result<void> done = client.post_receives();
  if (done.ok()) done = client.run();
  if (!done.ok()) return link.explain(done.error());
  // Whatever followed the last confirmation is no part of it.
  report.total = report.setup + report.client.elapsed;
  return report;
}

}  // namespace farverbs::tools::perf
