// Quantities as people write them on a command line: rates ("200mbit"), spans of time ("100ms"),
// probabilities ("1%"), sizes ("500kB", "64KiB"), and sizes of a queue ("1bdp", "20ms"). Units are
// required wherever a bare number could be misread; an error repeats the text and shows a right
// form. A pair "x/y" gives the two directions of a path, A to B and B to A.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "farverbs/base/result.h"
#include "farverbs/base/time.h"
#include "farverbs/base/units.h"

namespace farverbs::tools {

namespace units_detail {

struct Quantity {
  double value = 0;
  std::string unit;  // lower case
};

inline std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// A finite number that is not negative, then a unit, with nothing around them.
inline std::optional<Quantity> split_quantity(std::string_view text) {
  Quantity q;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, q.value, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(q.value) || std::signbit(q.value)) return {};
  q.unit = lower(std::string_view(rest, static_cast<size_t>(end - rest)));
  return q;
}

inline Error bad(std::string_view what, std::string_view text, std::string_view example) {
  return invalid("'" + std::string(text) + "' is not a " + std::string(what) + ": write it like " +
                 std::string(example));
}

template <size_t kCount>
std::optional<double> scale_of(const std::pair<const char*, double> (&units)[kCount],
                               const std::string& unit) {
  for (const auto& [name, scale] : units) {
    if (unit == name) return scale;
  }
  return {};
}

}  // namespace units_detail

// "200mbit", "1.5gbit", "64kbit", "9600bit", "unlimited" (gives 0). Decimal multiples. "mbps" is
// refused because tools disagree on whether its b is a bit or a byte.
inline Result<BitRate> parse_rate(std::string_view text) {
  using namespace units_detail;
  constexpr const char* kExample = "200mbit or 1gbit";
  if (lower(text) == "unlimited") return BitRate();
  constexpr std::pair<const char*, double> kUnits[] = {
      {"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
  const auto q = split_quantity(text);
  if (!q) return bad("rate", text, kExample);
  const auto scale = scale_of(kUnits, q->unit);
  if (!scale) return bad("rate", text, kExample);
  const double bps = q->value * *scale;
  if (bps < 1 || bps > 1e13) {
    return invalid("the rate '" + std::string(text) + "' is outside 1bit to 10000gbit");
  }
  return BitRate::bits_per_second(static_cast<uint64_t>(std::llround(bps)));
}

// "100ms", "250us", "1.5s", "0" (no unit needed).
inline Result<Duration> parse_duration(std::string_view text) {
  using namespace units_detail;
  constexpr const char* kExample = "100ms, 250us or 1.5s";
  constexpr std::pair<const char*, double> kUnits[] = {
      {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 6e10}};
  const auto q = split_quantity(text);
  if (!q) return bad("time", text, kExample);
  if (q->value == 0 && q->unit.empty()) return Duration();
  const auto scale = scale_of(kUnits, q->unit);
  if (!scale) return bad("time", text, kExample);
  const double ns = q->value * *scale;
  if (ns > 3.6e15) return invalid("the time '" + std::string(text) + "' is above 1000 hours");
  return Duration::nanoseconds(std::llround(ns));
}

// "1%", "0.05%", "0". Gives 0 to 1.
inline Result<double> parse_probability(std::string_view text) {
  using namespace units_detail;
  const auto q = split_quantity(text);
  if (!q) return bad("percentage", text, "1% or 0.05%");
  if (q->value == 0 && q->unit.empty()) return 0.0;
  if (q->unit != "%") return bad("percentage", text, "1% or 0.05%");
  if (q->value > 100) return invalid("'" + std::string(text) + "' is more than 100%");
  return q->value / 100;
}

// A plain number that is not negative, such as a mean number of packets.
inline Result<double> parse_number(std::string_view text) {
  const auto q = units_detail::split_quantity(text);
  if (!q || !q->unit.empty()) return units_detail::bad("number", text, "8 or 2.5");
  return q->value;
}

// "1500", "1500B", "500kB" (1000 bytes a k), "64KiB" (1024).
inline Result<uint64_t> parse_bytes(std::string_view text) {
  using namespace units_detail;
  constexpr const char* kExample = "1500, 500kB or 64KiB";
  constexpr std::pair<const char*, double> kUnits[] = {{"", 1},
                                                       {"b", 1},
                                                       {"k", 1e3},
                                                       {"kb", 1e3},
                                                       {"m", 1e6},
                                                       {"mb", 1e6},
                                                       {"g", 1e9},
                                                       {"gb", 1e9},
                                                       {"tb", 1e12},
                                                       {"kib", 1024.0},
                                                       {"mib", 1048576.0},
                                                       {"gib", 1073741824.0},
                                                       {"tib", 1099511627776.0}};
  const auto q = split_quantity(text);
  if (!q) return bad("size", text, kExample);
  const auto scale = scale_of(kUnits, q->unit);
  if (!scale) return bad("size", text, kExample);
  const double bytes = q->value * *scale;
  if (bytes > 9e18) return invalid("the size '" + std::string(text) + "' is too large");
  return static_cast<uint64_t>(std::llround(bytes));
}

// The size of a queue, before the path it belongs to is known.
struct QueueSize {
  enum class Unit { kBytes, kBdp, kTime };
  Unit unit = Unit::kBdp;
  double value = 1;  // bytes, products of rate and round trip time, or seconds

  // Bytes for a link of `rate` on a path of `rtt`. A BDP or a time of an unlimited link is 0.
  uint64_t bytes(BitRate rate, Duration rtt) const {
    const double bytes_per_second = static_cast<double>(rate.bps()) / 8;
    switch (unit) {
      case Unit::kBytes:
        return static_cast<uint64_t>(value);
      case Unit::kBdp:
        return static_cast<uint64_t>(value * bytes_per_second * rtt.to_seconds());
      case Unit::kTime:
        return static_cast<uint64_t>(value * bytes_per_second);
    }
    return 0;
  }
};

// "1bdp", "0.5bdp", "500kB", "20ms".
inline Result<QueueSize> parse_queue_size(std::string_view text) {
  using namespace units_detail;
  const auto q = split_quantity(text);
  if (q && q->unit == "bdp") return QueueSize{QueueSize::Unit::kBdp, q->value};
  if (q && !q->unit.empty()) {
    if (auto time = parse_duration(text); time.ok()) {
      return QueueSize{QueueSize::Unit::kTime, time->to_seconds()};
    }
  }
  if (auto bytes = parse_bytes(text); bytes.ok()) {
    return QueueSize{QueueSize::Unit::kBytes, static_cast<double>(*bytes)};
  }
  return bad("queue size", text, "1bdp, 500kB or 20ms");
}

// "x" gives {x, x}, "x/y" gives {x, y}.
template <typename Parse>
auto parse_pair(std::string_view text, Parse parse)
    -> Result<std::pair<std::decay_t<decltype(parse(text).value())>,
                        std::decay_t<decltype(parse(text).value())>>> {
  const size_t slash = text.find('/');
  auto first = parse(text.substr(0, slash));
  if (!first.ok()) return first.error();
  if (slash == std::string_view::npos) return std::pair(*first, *first);
  auto second = parse(text.substr(slash + 1));
  if (!second.ok()) return second.error();
  return std::pair(*first, *second);
}

}  // namespace farverbs::tools
