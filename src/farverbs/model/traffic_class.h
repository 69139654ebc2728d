// TrafficClass: what a connection's traffic is for, which decides its place in our own sender and
// what others see of it. Verbs name it by their own knobs: the service level and the octet that
// holds the DSCP (RFC 2474) and ECN (RFC 3168) bits. Marks: EF (RFC 3246), AF4x (RFC 2597),
// LE (RFC 8622), CS1 as many networks still mark the latter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "farverbs/model/types.h"

namespace farverbs::model {

// By priority, the first before all others.
enum class TrafficClass : uint8_t { kRealtime, kInteractive, kBulk, kBackground };
inline constexpr size_t kTrafficClasses = 4;

const char* to_string(TrafficClass traffic);  // "realtime" ...
std::optional<TrafficClass> parse_traffic_class(std::string_view name);

// Bits 2 to 7 of the traffic class octet are the DSCP, 0 and 1 ECN.
inline constexpr uint8_t kEcnMask = 0x03;
inline constexpr uint8_t kEcnCapable = 0x02;  // ECT(0)

// Service levels 1, 2 and 3 name a class; all others are bulk.
constexpr TrafficClass class_of_service_level(uint8_t level) {
  switch (level) {
    case 1:
      return TrafficClass::kBackground;
    case 2:
      return TrafficClass::kInteractive;
    case 3:
      return TrafficClass::kRealtime;
    default:
      return TrafficClass::kBulk;
  }
}

constexpr uint8_t service_level_of(TrafficClass traffic) {
  constexpr uint8_t kLevels[kTrafficClasses] = {3, 2, 0, 1};
  return kLevels[static_cast<size_t>(traffic)];
}

// EF and VOICE-ADMIT are real time, CS4, AF4x and CS5 interactive, LE and CS1 background.
constexpr TrafficClass class_of_dscp(uint8_t dscp) {
  if (dscp == 46 || dscp == 44) return TrafficClass::kRealtime;
  if (dscp >= 32 && dscp <= 40) return TrafficClass::kInteractive;
  if (dscp == 1 || dscp == 8) return TrafficClass::kBackground;
  return TrafficClass::kBulk;
}

constexpr uint8_t dscp_of(TrafficClass traffic) {
  constexpr uint8_t kMarks[kTrafficClasses] = {46, 34, 0, 1};
  return kMarks[static_cast<size_t>(traffic)];
}

// A service level that names a class goes before the mark.
constexpr TrafficClass class_of(const AddressVector& av) {
  const TrafficClass by_level = class_of_service_level(av.service_level);
  return by_level != TrafficClass::kBulk
             ? by_level
             : class_of_dscp(static_cast<uint8_t>(av.traffic_class >> 2));
}

// The octet with the mark of `traffic`, unless it has one already.
constexpr uint8_t marked(uint8_t octet, TrafficClass traffic) {
  if ((octet & ~kEcnMask) != 0) return octet;
  return static_cast<uint8_t>(dscp_of(traffic) << 2 | octet);
}

}  // namespace farverbs::model
