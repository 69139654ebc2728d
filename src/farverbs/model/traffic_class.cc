#include "farverbs/model/traffic_class.h"

#include <array>

namespace farverbs::model {
namespace {

constexpr std::array<const char*, kTrafficClasses> kNames = {"realtime", "interactive", "bulk",
                                                             "background"};

}  // namespace

const char* to_string(TrafficClass traffic) { return kNames[static_cast<size_t>(traffic)]; }

std::optional<TrafficClass> parse_traffic_class(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return static_cast<TrafficClass>(i);
  }
  return {};
}

}  // namespace farverbs::model
