// What a comparison measures: its rows, each a line (rate, round trip, loss) and something that is
// done on it, and what a row is expected to show.
#pragma once

#include <string>
#include <vector>

#include "farverbs/base/result.h"

namespace farverbs::tools::compare {

enum class Kind {
  kBulk,         // one flow for some seconds
  kAmount,       // a fixed amount from connect to the last byte's confirmation
  kFile,         // one file, the whole command
  kBesideCubic,  // beside a CUBIC flow on the same line
  kTwo,          // two of ours
  kBackground,   // class background beside CUBIC
  kRealtime,     // messages of class realtime beside our own bulk
  kFec,          // the same messages on a line that loses, with error correction
  kBlackout,     // the line goes down and comes back
  kShort,        // a veth pair, one transport against the other
};
const char* to_string(Kind kind);

struct Line {
  double rate = 0;  // bits a second; 0: no bottleneck
  double rtt = 0;   // seconds
  double loss = 0;  // share
  double burst = 1;
  /// "200 Mb/s 100 ms 1%".
  std::string name() const;
};

struct Goal {
  const char* metric;
  double must = 0;
  double aim = 0;
  bool less_is_better = false;
  bool fair = false;  // a ratio of two shares: no more than 1 / must either
};

struct Row {
  Kind kind = Kind::kBulk;
  Line line;
  double seconds = 0;  // of a flow
  double settle = 0;   // from when on it counts as steady
  double bytes = 0;    // of an amount or a file
  std::string name() const;
  /// What Farverbs is to reach, by the names of its figures.
  std::vector<Goal> goals() const;
};

struct Plan {
  std::string rate = "200mbit,1gbit";
  std::string rtt = "10ms,100ms,300ms";
  std::string loss = "0,0.1%,1%";
  std::string only;     // a regular expression that a row's name has to contain
  double seconds = 15;  // of each bulk flow
  int rounds = 1;
  bool quick = false;
};

/// The rows of a plan in their order. Errors name the option.
Result<std::vector<Row>> make_rows(const Plan& plan);

}  // namespace farverbs::tools::compare
