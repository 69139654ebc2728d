// farverbs_sim: runs the production packet loop through seeded scenarios of faults, or one seed
// again. A failing seed is one line that replays it.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <vector>

#include "farverbs/sim/scenario.h"

namespace {

using farverbs::sim::run_scenario;
using farverbs::sim::ScenarioReport;

struct Totals {
  uint64_t passed = 0;
  uint64_t failed = 0;
  uint64_t requests = 0;
  uint64_t steps = 0;
  uint64_t broken = 0;
  uint64_t killed = 0;
};

// Every `stride`-th seed from `first` on; prints failures as they come.
Totals run_seeds(uint64_t first, uint64_t end, uint64_t stride) {
  Totals totals;
  for (uint64_t seed = first; seed < end; seed += stride) {
    const ScenarioReport report = run_scenario(seed);
    totals.requests += report.requests;
    totals.steps += report.steps;
    totals.broken += report.broken;
    totals.killed += report.killed;
    if (report.failure.empty()) {
      ++totals.passed;
    } else {
      ++totals.failed;
      fmt::print("FAILED: {}\n  {}\n  replay: farverbs_sim --seed {}\n", report.failure,
                 report.description, seed);
      std::fflush(stdout);
    }
  }
  return totals;
}

int replay(uint64_t seed) {
  const ScenarioReport report = run_scenario(seed);
  fmt::print("seed {}: {}\n", seed, report.description);
  fmt::print("{} requests, {} steps, {:.3f} s of virtual time, {} broken, {} killed\n",
             report.requests, report.steps, report.virtual_time.to_seconds(), report.broken,
             report.killed);
  fmt::print("{}\n", report.failure.empty() ? "passed" : "FAILED: " + report.failure);
  return report.failure.empty() ? 0 : 1;
}

int run_one_bulk(farverbs::sim::BulkSpec spec, double mbps, double rtt_ms, double megabytes) {
  spec.rate = farverbs::BitRate::bits_per_second(static_cast<uint64_t>(mbps * 1e6));
  spec.round_trip = farverbs::Duration::from_seconds(rtt_ms / 1e3);
  spec.total_bytes = static_cast<uint64_t>(megabytes * 1e6);
  spec.trace = stdout;
  const farverbs::sim::BulkReport report = run_bulk(spec);
  fmt::print(
      "{}: {:.1f}% of the link's payload capacity over {:.2f} s, {} packets sent again, {} "
      "lost\n",
      report.completed ? "completed" : "FAILED", report.share_of_capacity * 100,
      report.elapsed.to_seconds(), report.retransmitted_packets, report.lost_packets);
  return report.completed ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Runs the packet loop through seeded scenarios on a virtual network.");
  uint64_t seeds = 1000;
  uint64_t first = 1;
  uint64_t seed = 0;
  unsigned jobs = 2;
  auto* one = app.add_option("--seed", seed, "replay this one seed and describe it");
  app.add_option("--seeds", seeds, "how many seeds to run")->excludes(one);
  app.add_option("--first", first, "the first of them")->excludes(one);
  app.add_option("--jobs", jobs, "processes")->check(CLI::Range(1, 64));
  farverbs::sim::BulkSpec spec;
  double mbps = 200;
  double rtt_ms = 100;
  double megabytes = 200;
  auto* one_bulk = app.add_subcommand("bulk", "One transfer over one line, with its time line.");
  one_bulk->add_option("--mbps", mbps, "the line's rate");
  one_bulk->add_option("--rtt", rtt_ms, "milliseconds");
  one_bulk->add_option("--megabytes", megabytes, "how much");
  one_bulk->add_option("--loss", spec.loss, "share of packets lost");
  one_bulk->add_option("--queue", spec.queue_bdp, "bottleneck queue in bandwidth-delay products");
  one_bulk->add_option("--message", spec.message_bytes, "bytes of a request");
  one_bulk->add_option("--depth", spec.depth, "requests outstanding");
  one_bulk->add_option("--window", spec.max_window_packets, "the QP's most packets");
  double trace_ms = 250;
  one_bulk->add_option("--trace-every", trace_ms, "milliseconds of virtual time between lines");
  one_bulk->add_flag("--read", spec.read, "READ instead of WRITE");
  one_bulk->add_flag("--far", spec.far, "over the far transport");
  one_bulk->add_option("--burst", spec.burst_loss_length, "mean length of a burst of losses");
  one_bulk->add_option("--seed", spec.seed, "of chance");
  double measure_after_ms = 0;
  one_bulk->add_option("--measure-after", measure_after_ms, "milliseconds: the ramp");
  CLI11_PARSE(app, argc, argv);
  spec.measure_after = farverbs::Duration::from_seconds(measure_after_ms / 1e3);
  spec.trace_every = farverbs::Duration::from_seconds(trace_ms / 1e3);
  if (one_bulk->parsed()) return run_one_bulk(spec, mbps, rtt_ms, megabytes);
  if (one->count() > 0) return replay(seed);

  // Processes, not threads: a crash loses one stride and says so.
  std::vector<int> pipes;
  std::vector<pid_t> children;
  for (unsigned j = 0; j < jobs; ++j) {
    int ends[2];
    if (::pipe(ends) != 0) return 2;
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(ends[0]);
      const Totals totals = run_seeds(first + j, first + seeds, jobs);
      const bool told = ::write(ends[1], &totals, sizeof totals) == sizeof totals;
      ::_exit(told ? 0 : 2);
    }
    if (child < 0) return 2;
    ::close(ends[1]);
    pipes.push_back(ends[0]);
    children.push_back(child);
  }
  Totals all;
  for (unsigned j = 0; j < jobs; ++j) {
    Totals totals;
    const bool told = ::read(pipes[j], &totals, sizeof totals) == sizeof totals;
    int status = 0;
    ::waitpid(children[j], &status, 0);
    if (!told) {
      fmt::print(
          "FAILED: a simulator process died (status {}); seeds {} + n x {}: run with --jobs 1 "
          "to find the seed\n",
          status, first + j, jobs);
      ++all.failed;
      continue;
    }
    all.passed += totals.passed;
    all.failed += totals.failed;
    all.requests += totals.requests;
    all.steps += totals.steps;
    all.broken += totals.broken;
    all.killed += totals.killed;
  }
  fmt::print(
      "{} requests in {} steps; {} conversations ended in an error after faults that outlast "
      "the retries, {} processes were killed\n",
      all.requests, all.steps, all.broken, all.killed);
  fmt::print("{} passed, {} failed\n", all.passed, all.failed);
  return all.failed == 0 ? 0 : 1;
}
