// `farverbs lab run`: a path that lives as long as the command at its B end.
#pragma once

#include <string>

#include "farverbs/base/result.h"
#include "tools/lab/emulator.h"
#include "tools/lab/netdev.h"
#include "tools/lab/stats.h"

namespace farverbs::tools::lab {

struct RunResult {
  int exit_code = 0;  // of B's command, or 128 and a signal that ended the run
  LabStats stats;
};

// Runs `a` and `b` (shell commands) at the ends of a path until b ends, then ends what is left at
// both. Errors: the path could not be made, or the emulator died.
Result<RunResult> run_lab(const EmulatorConfig& config, const NetOptions& net, const std::string& a,
                          const std::string& b);

}  // namespace farverbs::tools::lab
