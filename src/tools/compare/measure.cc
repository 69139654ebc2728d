#include "tools/compare/measure.h"

#include <algorithm>

#include <fmt/format.h>

namespace farverbs::tools::compare {
namespace {

constexpr double kRampWindow = 0.3;

// The same losses for every program of a round, others in the next.
uint64_t seed_of(const Run& run) { return static_cast<uint64_t>(run.round) + 1; }

std::string why_not_class(const Offer& offer, const Row& row, const std::string& program) {
  if (program != kOurs) return {};
  switch (row.kind) {
    case Kind::kBackground:
    case Kind::kRealtime:
      return offer.classes;
    case Kind::kFec:
      return offer.classes.empty() ? offer.correction : offer.classes;
    case Kind::kShort:
      return offer.transports;
    default:
      return {};
  }
}

}  // namespace

std::vector<std::string> programs_of(const Row& row) {
  switch (row.kind) {
    case Kind::kBulk:
    case Kind::kAmount:
    case Kind::kBlackout:
      return {kOurs, kCubic, kBbr};
    case Kind::kFile:
      return {kOurs, "scp over TCP BBR", "rsync daemon over TCP BBR"};
    case Kind::kBesideCubic:
      return {kOurs, kBbr};
    case Kind::kTwo:
      return {kOurs, kBbr};
    case Kind::kBackground:
      return {kOurs, "Farverbs, no class"};
    case Kind::kRealtime:
      return {kOurs, "Farverbs, no classes"};
    case Kind::kFec:
      return {kOurs, "Farverbs, no correction"};
    case Kind::kShort:
      return {kOurs, "Farverbs, standard RC"};
  }
  return {};
}

std::string why_not(const Offer& offer, const Row& row, const std::string& program) {
  if (std::string why = why_not_class(offer, row, program); !why.empty()) return why;
  const bool meets_cubic = row.kind == Kind::kBesideCubic || row.kind == Kind::kBackground;
  const std::string congestion = congestion_of(program);
  if (congestion == "cubic" || meets_cubic) {
    if (!offer.cubic.empty()) return offer.cubic;
  }
  if (congestion == "bbr" && !offer.bbr.empty()) return offer.bbr;
  if (program.rfind("scp", 0) == 0) return offer.scp;
  if (program.rfind("rsync", 0) == 0) return offer.rsync;
  const bool own_tcp = row.kind == Kind::kAmount || row.kind == Kind::kFile;
  if ((meets_cubic || !congestion.empty()) && !own_tcp) return offer.iperf3;
  return {};
}

Result<Run> measure(const Context& context, const Row& row, const std::string& program, int round) {
  Run run;
  run.program = program;
  run.round = round;
  run.skipped = why_not(context.offer, row, program);
  if (!run.skipped.empty()) return run;
  context.say(fmt::format("{}: {}", row.name(), program));
  using Measure = Result<void> (*)(const Context&, const Row&, Run&);
  constexpr Measure kMeasures[] = {
      measure_bulk,       measure_amount,   measure_file,     measure_beside_cubic, measure_two,
      measure_background, measure_messages, measure_messages, measure_blackout,     measure_short};
  const Result<void> done = kMeasures[static_cast<size_t>(row.kind)](context, row, run);
  if (!done.ok()) {
    if (done.error().code == EINTR) return done.error();
    run.figures.clear();
    run.failed = done.error().message;
  }
  return run;
}

Result<void> measure_bulk(const Context& context, const Row& row, Run& run) {
  const Flow flow{run.program, 0, row.seconds, {}};
  FV_ASSIGN(Together together, run_flows(context, row.line, {flow}, seed_of(run)));
  const FlowReport& report = together.flows.front();
  const double limit = physical_limit(row.line.rate, row.line.loss, report.packet);
  const double steady = mean_rate(report.rate, row.settle, row.seconds);
  auto& f = run.figures;
  f["goodput_mbps"] = steady * 1e-6;
  f["limit_mbps"] = limit * 1e-6;
  f["goodput_of_limit"] = steady / limit;
  f["payload_of_wire"] = report.packet.payload_share();
  const double first = std::min(5.0, row.seconds);
  f["first_5s_of_link"] = mean_rate(report.rate, 0, first) / row.line.rate;
  const double window = std::max(kRampWindow, row.line.rtt);
  if (const auto ramp = reached(report.rate, 0.9 * limit, window)) f["ramp_s"] = *ramp;
  std::vector<double> added;
  for (const RttSample& sample : together.rtt) {
    if (sample.at >= row.settle && sample.at < row.seconds) {
      added.push_back(sample.ms - together.rtt_base_ms);
    }
  }
  if (!added.empty()) {
    f["rtt_base_ms"] = together.rtt_base_ms;
    f["rtt_added_p50_ms"] = quantile(added, 0.5);
    f["rtt_added_p95_ms"] = quantile(added, 0.95);
    f["rtt_added_max_ms"] = quantile(added, 1);
  }
  // As they were on the line.
  const double resent = report.retransmitted_bytes * report.packet.ip / report.packet.payload;
  f["retransmitted_mb"] = resent * 1e-6;
  f["lost_mb"] = together.dropped_bytes * 1e-6;
  f["queue_dropped"] = together.queue_drops;
  if (together.dropped_bytes > 0) f["retransmitted_per_lost"] = resent / together.dropped_bytes;
  if (report.payload > 0) f["cpu_s_per_gb"] = report.cpu_seconds / report.payload * 1e9;
  run.rate = report.rate;
  run.rtt = std::move(together.rtt);
  run.warnings = std::move(together.warnings);
  return {};
}

Result<void> measure_beside_cubic(const Context& context, const Row& row, Run& run) {
  const std::vector<Flow> flows = {{run.program, 0, row.seconds, {}}, {kCubic, 0, row.seconds, {}}};
  FV_ASSIGN(Together together, run_flows(context, row.line, flows, seed_of(run)));
  const double ours = mean_rate(together.flows[0].rate, row.settle, row.seconds);
  const double cubic = mean_rate(together.flows[1].rate, row.settle, row.seconds);
  run.figures["ours_mbps"] = ours * 1e-6;
  run.figures["cubic_mbps"] = cubic * 1e-6;
  if (cubic > 0) run.figures["ratio_to_cubic"] = ours / cubic;
  run.rate = together.flows[0].rate;
  run.rtt = std::move(together.rtt);
  run.warnings = std::move(together.warnings);
  return {};
}

Result<void> measure_two(const Context& context, const Row& row, Run& run) {
  constexpr double kLater = 5;
  const std::vector<Flow> flows = {{run.program, 0, row.seconds, {}},
                                   {run.program, kLater, row.seconds - kLater, {}}};
  FV_ASSIGN(Together together, run_flows(context, row.line, flows, seed_of(run)));
  const double first = mean_rate(together.flows[0].rate, row.settle, row.seconds);
  const double second =
      mean_rate(together.flows[1].rate, row.settle - kLater, row.seconds - kLater);
  run.figures["first_mbps"] = first * 1e-6;
  run.figures["second_mbps"] = second * 1e-6;
  run.figures["jain_index"] = jain_index({first, second});
  run.rate = together.flows[0].rate;
  run.rtt = std::move(together.rtt);
  run.warnings = std::move(together.warnings);
  return {};
}

Result<void> measure_background(const Context& context, const Row& row, Run& run) {
  const Flow cubic{kCubic, 0, row.seconds, {}};
  FV_ASSIGN(const Together solo, run_flows(context, row.line, {cubic}, seed_of(run)));
  Flow ours{kOurs, 0, row.seconds, {}};
  if (run.program == kOurs) ours.more = {"--class", "background"};
  FV_ASSIGN(Together together, run_flows(context, row.line, {cubic, ours}, seed_of(run)));
  const double alone = mean_rate(solo.flows[0].rate, row.settle, row.seconds);
  const double beside = mean_rate(together.flows[0].rate, row.settle, row.seconds);
  run.figures["cubic_solo_mbps"] = alone * 1e-6;
  run.figures["cubic_mbps"] = beside * 1e-6;
  if (alone > 0) run.figures["cubic_keeps"] = beside / alone;
  run.figures["ours_mbps"] = mean_rate(together.flows[1].rate, row.settle, row.seconds) * 1e-6;
  run.rate = together.flows[1].rate;
  run.rtt = std::move(together.rtt);
  run.warnings = std::move(together.warnings);
  return {};
}

Result<void> measure_blackout(const Context& context, const Row& row, Run& run) {
  const Blackout blackout{row.settle, 2};
  const Flow flow{run.program, 0, row.seconds, {}};
  FV_ASSIGN(Together together, run_flows(context, row.line, {flow}, seed_of(run), &blackout));
  const TimeLine& rate = together.arrived;
  const double before = mean_rate(rate, row.settle - 2, row.settle - 0.5);
  const double back = blackout.at + blackout.seconds;
  run.figures["before_mbps"] = before * 1e-6;
  // The window begins where the line is back, so that what had waited for it does not count.
  constexpr double kWindow = 0.2;
  if (const auto at = reached(rate, 0.9 * before, kWindow, back)) {
    run.figures["recovery_s"] = *at - kWindow / 2 - back;
  }
  run.rate = together.arrived;
  run.rtt = std::move(together.rtt);
  run.warnings = std::move(together.warnings);
  return {};
}

}  // namespace farverbs::tools::compare
