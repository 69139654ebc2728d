#include "tools/demo/report.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace farverbs::tools::demo {
namespace {

// From nothing to a full line.
constexpr std::string_view kShades = " .:-=+*#";

double megabits_per_second(uint64_t bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(bytes) * 8e-6 / seconds : 0;
}

std::string describe_stop(const Transfer& transfer) {
  const uint64_t arrived = transfer.samples.empty() ? 0 : transfer.samples.back().bytes;
  // Headers and repeats are among the bytes that arrived.
  const double share = transfer.file_bytes > 0 ? static_cast<double>(arrived) * 100 /
                                                     static_cast<double>(transfer.file_bytes)
                                               : 0;
  return fmt::format("stopped after {:.0f} s, when some {:.0f}% had come", transfer.seconds,
                     std::min(share, 99.0));
}

std::string describe_outcome(const Transfer& transfer) {
  switch (transfer.outcome) {
    case Outcome::kDone:
      return transfer.identical ? "identical" : "DIFFERS FROM THE ORIGINAL";
    case Outcome::kStopped:
      return describe_stop(transfer);
    case Outcome::kUnavailable:
      return "not available: " + transfer.message;
    case Outcome::kFailed:
      break;
  }
  return "FAILED: " + transfer.message;
}

std::string row(const Transfer& transfer, BitRate line) {
  std::string sent = "-";
  if (transfer.sent_bytes > 0 && transfer.outcome == Outcome::kDone) {
    sent = fmt::format("{:.2f}", static_cast<double>(transfer.sent_bytes) /
                                     static_cast<double>(transfer.file_bytes));
  }
  if (transfer.outcome != Outcome::kDone) {
    return fmt::format("  {:<12} {:>9} {:>9} {:>8} {:>10}   {}\n", transfer.name, "-", "-", "-",
                       sent, describe_outcome(transfer));
  }
  const double rate = megabits_per_second(transfer.file_bytes, transfer.seconds);
  const double share = rate * 1e8 / static_cast<double>(line.bps());
  return fmt::format("  {:<12} {:>7.2f} s {:>9.1f} {:>7.0f}% {:>10}   {}\n", transfer.name,
                     transfer.seconds, rate, share, sent, describe_outcome(transfer));
}

/// Bytes that had arrived at `seconds`, between samples by straight lines.
double arrived(const std::vector<Sample>& samples, double seconds) {
  const auto after = std::find_if(samples.begin(), samples.end(),
                                  [&](const Sample& sample) { return sample.seconds >= seconds; });
  if (after == samples.end())
    return samples.empty() ? 0 : static_cast<double>(samples.back().bytes);
  const Sample before = after == samples.begin() ? Sample{} : *(after - 1);
  const double span = after->seconds - before.seconds;
  const double share = span > 0 ? (seconds - before.seconds) / span : 1;
  return static_cast<double>(before.bytes) +
         share * (static_cast<double>(after->bytes) - static_cast<double>(before.bytes));
}

char shade(double used) {
  const auto levels = static_cast<double>(kShades.size() - 1);
  // Headers keep even a full line a little below 1.
  const double level = std::ceil(used * levels - 0.4);
  return kShades[static_cast<size_t>(std::clamp(level, 0.0, levels))];
}

std::string strip(const Transfer& transfer, BitRate line, double seconds_a_column, size_t columns) {
  const double full = static_cast<double>(line.bps()) / 8 * seconds_a_column;
  std::string strip;
  for (size_t column = 0; column < columns; ++column) {
    const double from = static_cast<double>(column) * seconds_a_column;
    if (from >= transfer.seconds) break;
    const double bytes =
        arrived(transfer.samples, from + seconds_a_column) - arrived(transfer.samples, from);
    strip += shade(bytes / full);
  }
  return strip;
}

}  // namespace

nlohmann::json to_json(const Transfer& transfer) {
  nlohmann::json samples = nlohmann::json::array();
  for (const Sample& sample : transfer.samples) samples.push_back({sample.seconds, sample.bytes});
  return {{"outcome", static_cast<int>(transfer.outcome)},
          {"message", transfer.message},
          {"seconds", transfer.seconds},
          {"samples", std::move(samples)}};
}

Transfer from_json(const nlohmann::json& value) {
  Transfer transfer;
  transfer.outcome = static_cast<Outcome>(value.at("outcome").get<int>());
  transfer.message = value.at("message").get<std::string>();
  transfer.seconds = value.at("seconds").get<double>();
  for (const nlohmann::json& sample : value.at("samples")) {
    transfer.samples.push_back({sample.at(0).get<double>(), sample.at(1).get<uint64_t>()});
  }
  return transfer;
}

std::string table(const std::vector<Transfer>& transfers, BitRate line) {
  std::string out = fmt::format("  {:<12} {:>9} {:>9} {:>8} {:>10}   {}\n", "copied by", "time",
                                "Mb/s", "of line", "sent/file", "the copy");
  for (const Transfer& transfer : transfers) out += row(transfer, line);
  return out;
}

std::string picture(const std::vector<Transfer>& transfers, BitRate line, size_t columns) {
  double longest = 0;
  for (const Transfer& transfer : transfers) longest = std::max(longest, transfer.seconds);
  if (longest <= 0 || columns == 0) return {};
  const double seconds_a_column = longest / static_cast<double>(columns);
  std::string out;
  for (const Transfer& transfer : transfers) {
    if (transfer.samples.empty()) continue;
    const char* end = transfer.outcome == Outcome::kDone ? "|" : " (not finished)";
    out += fmt::format("  {:<12} |{}{}\n", transfer.name,
                       strip(transfer, line, seconds_a_column, columns), end);
  }
  const std::string last = fmt::format("{:.1f} s", longest);
  out += fmt::format("  {:<12} 0 s{:>{}}\n", "", last, columns - 1);
  out +=
      fmt::format("  a character is {:.0f} ms; '{}' is a line not used, '{}' a full one: \"{}\"\n",
                  seconds_a_column * 1e3, kShades.front(), kShades.back(), kShades);
  return out;
}

}  // namespace farverbs::tools::demo
