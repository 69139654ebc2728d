// What `farverbs top` shows: two looks at the devices make rates. Pure, so that it is tested
// without processes.
#pragma once

#include <string>
#include <vector>

#include "tools/top/sources.h"

namespace farverbs::tools::top {

struct Line {
  pid_t pid = 0;
  std::string process;
  const QpStats* qp = nullptr;
  const FlightStats* flight = nullptr;  // null: none
  std::string phase;
  double sent_bits = 0;  // payload a second, since the look before
  double received_bits = 0;
  double resent_per_second = 0;
  double resent_share = 0;  // of the packets sent since the look before
};

/// Busiest first. `before` may be empty: then there are no rates. Both outlive the lines.
std::vector<Line> make_lines(const std::vector<DeviceStats>& before,
                             const std::vector<DeviceStats>& now);

/// At most `most` queue pairs, and how many more there are; 0: all.
std::string to_text(const std::vector<Line>& lines, size_t most);
/// What the devices told, with the rates beside each queue pair.
Json to_json(const std::vector<DeviceStats>& devices, const std::vector<Line>& lines);

}  // namespace farverbs::tools::top
