// Flows side by side on one line, with a prober of the round trip beside them.
#include <algorithm>
#include <csignal>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/common/process_usage.h"
#include "tools/compare/field.h"
#include "tools/compare/measure.h"

namespace farverbs::tools::compare {
namespace {

constexpr uint16_t kFirstPort = 7480;
// Connecting, the last packets' way and a report take their time; a program that stands still is
// not waited for long.
constexpr double kPatienceSeconds = 20;

struct Running {
  Child* server = nullptr;
  Child* client = nullptr;
};

Result<Child*> start_ping(Field& field, double seconds) {
  return field.start('a', "ping",
                     {own_path(), "compare-end", "ping", "--peer", field.address('b'), "--seconds",
                      fmt::format("{:g}", seconds), "--report", field.file("ping.json")});
}

Result<void> read_ping(const Field& field, double began, Together& together) {
  FV_ASSIGN(const nlohmann::json report, read_json(contents_of(field.file("ping.json"))));
  for (const nlohmann::json& sample : report.value("samples", nlohmann::json::array())) {
    together.rtt.push_back({sample.at(0).get<double>() - began, sample.at(1).get<double>()});
  }
  for (const RttSample& sample : together.rtt) {
    if (together.rtt_base_ms == 0 || sample.ms < together.rtt_base_ms) {
      together.rtt_base_ms = sample.ms;
    }
  }
  return {};
}

// Starts what is due, takes the line down and up, until all clients run.
Result<void> start_clients(Field& field, const Line& line, const std::vector<Flow>& flows,
                           std::vector<Running>& running) {
  const Time began = clock_now();
  std::vector<size_t> order(flows.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t x, size_t y) { return flows[x].start < flows[y].start; });
  for (const size_t i : order) {
    FV_TRY(field.pause(began + Duration::from_seconds(flows[i].start) - clock_now()));
    FV_ASSIGN(running[i].client, field.start('a', fmt::format("client{}", i),
                                             client_words(flows[i], line, field.address('b'),
                                                          static_cast<uint16_t>(kFirstPort + i))));
  }
  return {};
}

// Takes the line down and up while it watches what arrives, on one clock for every program.
Result<void> black_out(Field& field, const Blackout& blackout, Time began, double end,
                       const Running& flow, TimeLine& arrived) {
  constexpr Duration kLook = Duration::milliseconds(10);
  arrived.step = 0.02;
  bool down = false;
  double seen_at = 0, seen = 0;
  while (seen_at < end) {
    FV_TRY(field.pause(kLook));
    const double now = (clock_now() - began).to_seconds();
    const double bytes = Field::received_bytes(*flow.server);
    arrived.add(seen_at, now, bytes - seen);
    seen_at = now;
    seen = bytes;
    const bool wanted = now >= blackout.at && now < blackout.at + blackout.seconds;
    if (wanted != down) FV_TRY(field.set_down(down = wanted));
  }
  return {};
}

Result<void> finish(Field& field, const std::vector<Flow>& flows, std::vector<Running>& running,
                    Together& together) {
  for (size_t i = 0; i < flows.size(); ++i) {
    Running& one = running[i];
    FV_TRY(field.wait(*one.client, Duration::from_seconds(flows[i].seconds + kPatienceSeconds)));
    if (one.client->exit_code != 0) {
      return Error{EIO, fmt::format("{}: {}", flows[i].program, last_words(*one.client))};
    }
    FV_TRY(field.wait(*one.server, Duration::from_seconds(kPatienceSeconds)));
    together.outputs.push_back(contents_of(one.client->output));
    FV_ASSIGN(FlowReport report,
              read_flow(flows[i], together.outputs.back(), contents_of(one.server->output)));
    together.flows.push_back(std::move(report));
  }
  return {};
}

}  // namespace

Result<Together> run_flows(const Context& context, const Line& line, const std::vector<Flow>& flows,
                           uint64_t seed, const Blackout* blackout) {
  FV_ASSIGN(const auto field, Field::open(line, context.folder, seed));
  std::vector<Running> running(flows.size());
  double end = 0;
  for (size_t i = 0; i < flows.size(); ++i) {
    const auto port = static_cast<uint16_t>(kFirstPort + i);
    FV_ASSIGN(running[i].server,
              field->start('b', fmt::format("server{}", i), server_words(flows[i], port)));
    FV_TRY(field->await_listening(*running[i].server, port));
    end = std::max(end, flows[i].start + flows[i].seconds);
  }
  FV_ASSIGN(Child* const ping, start_ping(*field, end + kPatienceSeconds));
  // Some round trips of the idle line.
  FV_TRY(field->pause(Duration::from_seconds(0.2 + line.rtt * 1.2)));
  const Time began = clock_now();
  FV_TRY(start_clients(*field, line, flows, running));
  Together together;
  if (blackout != nullptr) {
    FV_TRY(black_out(*field, *blackout, began, end, running.front(), together.arrived));
  }
  FV_TRY(finish(*field, flows, running, together));
  field->stop(*ping, SIGTERM);
  FV_TRY(read_ping(*field, (began - Time()).to_seconds(), together));
  FV_ASSIGN(const lab::LabStats stats, field->close());
  together.dropped_bytes = static_cast<double>(stats.a_to_b.dropped_bytes);
  together.queue_drops = static_cast<double>(stats.a_to_b.queue_drops);
  together.warnings = lab::overload_warnings(stats);
  return together;
}

}  // namespace farverbs::tools::compare
