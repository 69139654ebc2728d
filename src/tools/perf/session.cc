#include "tools/perf/session.h"

#include <fmt/format.h>

#include "tools/common/format.h"
#include "tools/common/process_usage.h"
#include "tools/perf/endpoint.h"
#include "tools/perf/latency.h"
#include "tools/perf/report.h"
#include "tools/perf/traffic.h"

namespace farverbs::tools::perf {
namespace {

constexpr Duration kBlockedLook = Duration::milliseconds(20);
constexpr Duration kLinkEvery = Duration::milliseconds(5);
constexpr Duration kCloseTimeout = Duration::seconds(20);

class Session {
 public:
  Session(Link& link, LocalEndpoint& local, const RemoteEndpoint& remote, const Options& options)
      : link_(link),
        local_(local),
        options_(options),
        traffic_(local, remote, options, link.peer()),
        latency_(local, remote, options, link.peer()) {}

  Result<void> post_receives() {
    if (options_.op != Op::kSend) return {};
    return options_.mode == Mode::kLatency ? latency_.post_receives() : traffic_.post_receives();
  }

  // Until the client says stop.
  Result<void> run() {
    while (!stopped_) {
      if (sleeps()) {
        FV_ASSIGN(const Json order, link_.receive(Duration::max()));
        FV_TRY(obey(order));
        continue;
      }
      FV_TRY(turn());
      if (const Time now = clock_now(); now >= next_link_) {
        next_link_ = now + kLinkEvery;
        FV_ASSIGN(const std::optional<Json> order, link_.poll());
        if (order.has_value()) FV_TRY(obey(*order));
      }
    }
    return {};
  }

  Result<void> finish() { return link_.send(to_json(difference(begin_, end_))); }

 private:
  // One-sided operations need nobody here: the device's background thread serves them. In latency
  // mode the process polls along, unless it is to sleep.
  bool sleeps() const {
    if (options_.bidirectional || options_.op == Op::kSend) return false;
    return options_.mode == Mode::kBandwidth || options_.target_idle ||
           options_.wait == Wait::kBlock;
  }

  Duration patience() const { return options_.wait == Wait::kPoll ? Duration() : kBlockedLook; }

  Result<void> turn() {
    if (options_.mode == Mode::kBandwidth) return traffic_.step(patience());
    // Reading the clock and the connection after each look would cost latency.
    constexpr int kLooksPerTurn = 256;
    for (int i = 0; i < (patience() == Duration() ? kLooksPerTurn : 1); ++i) {
      FV_TRY(latency_.look(patience()));
      if (is_ping_pong(options_)) {
        for (const uint64_t arrived = latency_.arrived(); answered_ < arrived; ++answered_) {
          FV_TRY(latency_.post());
        }
      }
    }
    return {};
  }

  Result<void> obey(const Json& order) {
    FV_ASSIGN(const std::string type, json_string(order, "type"));
    if (type == "start") {
      if (options_.bidirectional) traffic_.start_sending();
    } else if (type == "mark") {
      begin_ = take_snapshot(local_, traffic_.sent());
    } else if (type == "stop") {
      end_ = take_snapshot(local_, traffic_.sent());
      stopped_ = true;
    } else {
      return Error{EPROTO, fmt::format("{} gave the unknown order '{}'", link_.peer(), type)};
    }
    return {};
  }

  Link& link_;
  LocalEndpoint& local_;
  const Options& options_;
  Traffic traffic_;
  LatencyEnd latency_;
  uint64_t answered_ = 0;
  Snapshot begin_;
  Snapshot end_;
  Time next_link_;
  bool stopped_ = false;
};

}  // namespace

Result<Options> read_hello(const Json& hello, const SessionLimits& limits) {
  FV_ASSIGN(const uint64_t version, json_unsigned(hello, "version", 0, UINT32_MAX));
  if (version != kProtocolVersion) {
    return Error{EPROTO, fmt::format("the client speaks version {} of the measurement protocol and "
                                     "the server version {}: use the same farverbs on both sides",
                                     version, kProtocolVersion)};
  }
  FV_ASSIGN(const Json object, json_object(hello, "options"));
  FV_ASSIGN(const Options options, from_json(object));
  if (options.region > limits.max_memory / 2) {
    return Error{ENOMEM, fmt::format("--region {} is more than this server gives (server's "
                                     "--max-memory)",
                                     format_bytes(options.region))};
  }
  return options;
}

Result<std::string> serve_measurement(std::shared_ptr<verbs::Device> device, Link& link,
                                      const Options& options, const Json& hello,
                                      const IpAddress& client) {
  FV_ASSIGN(const Json description, json_object(hello, "endpoint"));
  FV_ASSIGN(const RemoteEndpoint remote, read_description(description, options, client));
  FV_ASSIGN(LocalEndpoint local, make_endpoint(std::move(device), options));
  FV_TRY(connect(local, remote, options));
  Session session(link, local, remote, options);
  FV_TRY(session.post_receives());
  FV_TRY(link.send({{"endpoint", describe(local, options)}}));
  FV_TRY(session.run());
  FV_TRY(session.finish());
  // The client closes when it has its report; queue pairs that are gone before that would make its
  // last acknowledgements stray.
  (void)link.receive(kCloseTimeout);
  return title(options);
}

}  // namespace farverbs::tools::perf
