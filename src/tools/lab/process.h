// Processes of a lab: the emulator's loop with its signals, shared memory for its statistics, and
// programs started at one end of the path.
#pragma once

#include <sys/types.h>

#include <string>

#include "farverbs/base/result.h"
#include "tools/lab/emulator.h"
#include "tools/lab/netdev.h"

namespace farverbs::tools::lab {

// Statistics in memory that children share (fd -1) or that lies in a file; never unmapped.
Result<SharedStats*> map_stats(int fd);

// Runs the emulator in this process until SIGTERM. `parent` is a process whose death means the lab
// is over (0: none): then what still runs at the ends is ended too. Returns an exit code.
// `control`: null if the path stays as it is.
int emulate(const EmulatorConfig& config, const NetPath& path, SharedStats* stats, pid_t parent,
            const SharedConfig* control = nullptr);

// FARVERBS_LAB_SELF, FARVERBS_LAB_PEER and FARVERBS_LAB_SIDE of one side, "a" or "b".
void set_side_environment(const std::string& side, const std::string& self,
                          const std::string& peer);

// Starts a shell command at an end, in a process group of its own that dies with this process. The
// exit code of a command that cannot be started is 126.
Result<pid_t> start_command(const std::string& command, const std::string& side, const NetEnd& self,
                            const NetEnd& peer, bool read_stdin);

// 0 to 255 as a shell gives it: 128 and the number of a deadly signal.
int exit_code_of(int wait_status);

// Waits for a child to end; false if it did not within `milliseconds`.
bool wait_for_child(pid_t pid, int milliseconds);

}  // namespace farverbs::tools::lab
