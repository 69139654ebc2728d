// The option --class of tools that connect queue pairs. A header alone, so that what shares code
// with such tools need not link verbs.
#pragma once

#include <string>

#include "farverbs/base/result.h"
#include "farverbs/model/traffic_class.h"

namespace farverbs::tools {

inline constexpr const char* kClassHelp =
    "realtime, interactive, bulk or background: priority in both senders, and DSCP mark.";

// EINVAL: the message lists what there is.
inline Result<model::TrafficClass> parse_class(const std::string& text) {
  if (const auto traffic = model::parse_traffic_class(text)) return *traffic;
  return invalid("--class '" + text +
                 "' does not exist: choose realtime, interactive, bulk or background");
}

}  // namespace farverbs::tools
