// A lab that stays up between commands: its emulator is a process in the background.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "farverbs/base/result.h"
#include "tools/lab/emulator.h"
#include "tools/lab/netdev.h"
#include "tools/lab/state.h"
#include "tools/lab/stats.h"

namespace farverbs::tools::lab {

// Makes the path and leaves its emulator running; returns once commands can use it.
Result<LabState> bring_up(const std::string& name, const EmulatorConfig& config,
                          const NetOptions& net);

// Ends the lab and what runs in it. The statistics are missing if the emulator had died, when only
// its record is removed.
Result<std::optional<LabStats>> bring_down(const std::string& name);

// Replaces this process by `command` at side "a" or "b". Returns only on failure.
Error exec_in(const std::string& name, const std::string& side,
              const std::vector<std::string>& command);

// Changes the path of a running lab within 100 ms: `change` gets what it is now and edits it, or
// refuses. One change at a time; others wait for it.
Result<EmulatorConfig> change_path(const std::string& name,
                                   const std::function<Result<void>(EmulatorConfig&)>& change);

// The counts of a running lab, as of at most 100 ms ago.
Result<LabStats> running_stats(const std::string& name);

}  // namespace farverbs::tools::lab
