// Measuring rows: each function opens fields, runs programs there and turns what they report into
// figures (result.h).
#pragma once

#include <functional>
#include <string>

#include "farverbs/base/result.h"
#include "tools/compare/programs.h"
#include "tools/compare/result.h"

namespace farverbs::tools::compare {

struct Context {
  Offer offer;
  std::string folder;  // for reports and files while it runs
  /// Tells people what is being run.
  std::function<void(const std::string&)> say;
};

/// The programs that are compared on a row, in their order.
std::vector<std::string> programs_of(const Row& row);

/// One program on one row. EINTR: the user wants to stop; everything else is told in the Run.
Result<Run> measure(const Context& context, const Row& row, const std::string& program, int round);

// The parts of it.

/// What the flows of a field did together.
struct Together {
  std::vector<FlowReport> flows;
  std::vector<std::string> outputs;  // of each flow's client
  std::vector<RttSample> rtt;        // beside them; its clock begins with the first flow
  double rtt_base_ms = 0;            // the least that was seen
  double dropped_bytes = 0;          // IP bytes from A to B that were lost or found no room
  double queue_drops = 0;
  TimeLine arrived;                   // IP bytes at B, if there was a blackout
  std::vector<std::string> warnings;  // of the line
};
/// Runs the flows on a line of their own. `blackout`: when the line goes down and for how long.
struct Blackout {
  double at = 0;
  double seconds = 0;
};
Result<Together> run_flows(const Context& context, const Line& line, const std::vector<Flow>& flows,
                           uint64_t seed, const Blackout* blackout = nullptr);

/// Why `program` cannot run on `row` here; empty if it can.
std::string why_not(const Offer& offer, const Row& row, const std::string& program);

Result<void> measure_bulk(const Context& context, const Row& row, Run& run);
Result<void> measure_amount(const Context& context, const Row& row, Run& run);
Result<void> measure_file(const Context& context, const Row& row, Run& run);
Result<void> measure_beside_cubic(const Context& context, const Row& row, Run& run);
Result<void> measure_two(const Context& context, const Row& row, Run& run);
Result<void> measure_background(const Context& context, const Row& row, Run& run);
Result<void> measure_messages(const Context& context, const Row& row, Run& run);
Result<void> measure_blackout(const Context& context, const Row& row, Run& run);
Result<void> measure_short(const Context& context, const Row& row, Run& run);

}  // namespace farverbs::tools::compare
