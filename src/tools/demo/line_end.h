// What runs at the ends of the demo's line: the sender or server at A, and at B the receiving
// command with a watcher that samples how many bytes have arrived and writes a Transfer when it
// ends.
#pragma once

#include <string>

#include "farverbs/base/result.h"
#include "farverbs/base/time.h"

namespace farverbs::tools::demo {

struct EndOptions {
  std::string way;           // "farverbs", or the name of a TCP congestion control
  std::string file;          // the original
  std::string copy;          // where it goes
  std::string report;        // where B writes its Transfer, as JSON
  double limit_seconds = 0;  // after which B gives up
};

/// Sends until the peer is done or this process is ended.
Result<void> run_sender(const EndOptions& options);
/// Errors are of the watcher; what goes wrong with the transfer is in the report.
Result<void> run_receiver(const EndOptions& options);

/// The path of this program.
std::string own_path();

}  // namespace farverbs::tools::demo
