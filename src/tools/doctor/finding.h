// What a probe of this machine found out, and how findings are shown.
#pragma once

#include <string>
#include <vector>

#include "tools/common/json_fields.h"

namespace farverbs::tools::doctor {

enum class Status { kOk, kWarn, kFail };
const char* to_string(Status status);

struct Finding {
  std::string check;  // machine-readable name
  Status status = Status::kOk;
  std::string found;   // one line
  std::string advice;  // what to do about it; empty if nothing
};

// Each group tries what it names: it makes the system calls rather than reading versions.
std::vector<Finding> probe_sockets();     // UDP, offloads, ECN, port sharing, buffers
std::vector<Finding> probe_privileges();  // AF_XDP, namespaces, TUN
std::vector<Finding> probe_machine();     // CPU, clocks, timers, limits, congestion control

std::string to_text(const std::vector<Finding>& findings);
Json to_json(const std::vector<Finding>& findings);
// True if nothing essential is missing.
bool is_fit(const std::vector<Finding>& findings);

}  // namespace farverbs::tools::doctor
