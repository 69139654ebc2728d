// The record of a lab that stays up: a file in /run/farverbs/lab, or in $XDG_RUNTIME_DIR without
// root. The emulator holds a lock on it for as long as it lives, so a record without a lock is one
// of a lab that died.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "farverbs/base/result.h"

namespace farverbs::tools::lab {

struct SideState {
  int netns_fd = -1;  // in the emulator's process
  std::string address;
};

struct LabState {
  std::string name;
  pid_t pid = 0;
  bool user_namespace = false;
  std::string description;
  SideState a;
  SideState b;
};

// The folder, made if missing. To be asked before a user namespace changes who this process is.
Result<std::string> state_folder();
std::string state_file(const std::string& folder, const std::string& name);
std::string stats_file(const std::string& folder, const std::string& name);
std::string control_file(const std::string& folder, const std::string& name);

// Names are file names: letters, digits, '-' and '_', and not "a" or "b", which name the sides.
Result<void> check_name(const std::string& name);

// Creates or takes over the record of a lab that does not run. Gives the locked descriptor, to be
// kept open (also over fork) as long as the lab lives. EEXIST if it runs.
Result<int> claim_state(const std::string& folder, const std::string& name);
Result<void> write_state(int fd, const LabState& state);
// ENODEV if there is none, ESRCH if its emulator died.
Result<LabState> read_state(const std::string& folder, const std::string& name);
void remove_state(const std::string& folder, const std::string& name);

}  // namespace farverbs::tools::lab
