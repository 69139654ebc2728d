// What one transfer of the demo did, and how people read it: a table, and a picture of the rates on
// one time axis. Pure, so that it is tested without a network.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "farverbs/base/units.h"

namespace farverbs::tools::demo {

enum class Outcome {
  kDone,
  kFailed,       // `message` says why
  kStopped,      // took longer than the time allowed
  kUnavailable,  // this machine lacks what it needs; no fault of anybody's
};

/// Bytes that had arrived, `seconds` after the start.
struct Sample {
  double seconds = 0;
  uint64_t bytes = 0;
};

struct Transfer {
  std::string name;
  Outcome outcome = Outcome::kFailed;
  std::string message;
  double seconds = 0;  // from the start of the command to its end
  uint64_t file_bytes = 0;
  bool identical = false;       // the copy has the original's SHA-256
  uint64_t sent_bytes = 0;      // IP bytes that the sender put on the line; 0: not known
  std::vector<Sample> samples;  // of IP bytes received
};

/// The part of a transfer that the receiving end knows: outcome, message, seconds and samples.
nlohmann::json to_json(const Transfer& transfer);
/// Throws nlohmann::json::exception if `value` is not of to_json's shape.
Transfer from_json(const nlohmann::json& value);

std::string table(const std::vector<Transfer>& transfers, BitRate line);

/// One row of `columns` characters for each transfer; a character is a span of time, and its
/// darkness the share of the line that was used in it.
std::string picture(const std::vector<Transfer>& transfers, BitRate line, size_t columns);

}  // namespace farverbs::tools::demo
