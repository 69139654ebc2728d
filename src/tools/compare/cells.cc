#include "tools/compare/cells.h"

#include <algorithm>
#include <regex>

#include <fmt/format.h>

#include "tools/common/format.h"
#include "tools/common/units_parse.h"

namespace farverbs::tools::compare {
namespace {

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> words;
  size_t at = 0;
  while (true) {
    const size_t comma = list.find(',', at);
    words.push_back(list.substr(at, comma - at));
    if (comma == std::string::npos) return words;
    at = comma + 1;
  }
}

template <typename Parse>
auto parse_list(const char* option, const std::string& list, Parse parse)
    -> Result<std::vector<std::decay_t<decltype(parse(list).value())>>> {
  std::vector<std::decay_t<decltype(parse(list).value())>> values;
  for (const std::string& word : split(list)) {
    auto value = parse(word);
    if (!value.ok()) return invalid(std::string(option) + ": " + value.error().message);
    values.push_back(*value);
  }
  return values;
}

constexpr double kMega = 1e6;

Row bulk(const Line& line, double seconds) {
  Row row;
  row.line = line;
  row.seconds = seconds;
  // Long enough for the ramp of the programs that have one to show, and then as long again.
  row.settle = std::min(5.0, seconds / 2);
  return row;
}

Row special(Kind kind, const Line& line, double seconds, double settle) {
  Row row;
  row.kind = kind;
  row.line = line;
  row.seconds = seconds;
  row.settle = settle;
  return row;
}

Row amount(Kind kind, const Line& line, double bytes) {
  Row row;
  row.kind = kind;
  row.line = line;
  row.bytes = bytes;
  return row;
}

std::vector<Row> quick_rows() {
  constexpr Line kClean{200 * kMega, 0.05, 0, 1};
  constexpr Line kLossy{200 * kMega, 0.05, 0.01, 1};
  return {bulk(kClean, 5), bulk(kLossy, 5), amount(Kind::kAmount, kLossy, 1e6)};
}

std::vector<Row> special_rows(double seconds) {
  constexpr Line kFar{200 * kMega, 0.1, 0.01, 1};
  constexpr Line kFarFast{1000 * kMega, 0.1, 0.01, 1};
  constexpr Line kHome{200 * kMega, 0.05, 0, 1};
  std::vector<Row> rows;
  rows.push_back(bulk({200 * kMega, 0.1, 0.01, 8}, seconds));
  rows.push_back(bulk({1000 * kMega, 0.1, 0.01, 8}, seconds));
  rows.push_back(amount(Kind::kAmount, kFar, 1e6));
  rows.push_back(amount(Kind::kAmount, kFar, 10e6));
  rows.push_back(amount(Kind::kAmount, kFarFast, 100e6));
  rows.push_back(amount(Kind::kFile, kFar, 50e6));
  rows.push_back(special(Kind::kBesideCubic, kHome, 30, 10));
  rows.push_back(special(Kind::kTwo, kHome, 30, 20));
  rows.push_back(special(Kind::kBackground, kHome, 20, 5));
  rows.push_back(special(Kind::kRealtime, kHome, 30, 3));
  rows.push_back(special(Kind::kFec, {200 * kMega, 0.05, 0.01, 1}, 30, 3));
  rows.push_back(special(Kind::kBlackout, {200 * kMega, 0.1, 0, 1}, 14, 5));
  rows.push_back(special(Kind::kShort, {}, 3, 0.5));
  return rows;
}

Goal goodput_goal(const Line& line) {
  if (line.burst > 1) return {"goodput_of_limit", 0.94, 0.97};
  if (line.loss > 0.05) return {"goodput_of_limit", 0.85, 0.93};
  if (line.loss > 0.02) return {"goodput_of_limit", 0.94, 0.97};
  if (line.loss > 0.01) return {"goodput_of_limit", 0.96, 0.98};
  return {"goodput_of_limit", 0.97, 0.985};
}

std::vector<Goal> bulk_goals(const Line& line) {
  std::vector<Goal> goals = {goodput_goal(line)};
  // At 5 % BBR is at odds with itself.
  const bool weak = line.loss >= 0.05 && line.rtt >= 0.1;
  const double must = !weak ? 1.0 : line.rate < 500e6 ? 1.4 : 2.2;
  const double aim = !weak ? 1.03 : line.rate < 500e6 ? 1.5 : 2.4;
  goals.push_back({"goodput_of_bbr", must, aim});
  if (line.rate >= 1e9) goals.push_back({"cpu_of_bbr", 2, 1, true});
  if (line.rtt >= 0.3) goals.push_back({"first_5s_of_link", 0.5, 0.65});
  goals.push_back({"rtt_added_p95_ms", std::max(15.0, line.rtt * 150), 5, true});
  if (line.loss > 0) goals.push_back({"retransmitted_per_lost", 1.1, 1.02, true});
  return goals;
}

std::vector<Goal> amount_goals(double bytes) {
  if (bytes <= 1e6) return {{"seconds", 0.5, 0.4, true}};
  if (bytes <= 10e6) return {{"seconds", 1.0, 0.8, true}};
  return {{"seconds", 1.8, 1.4, true}};
}

}  // namespace

const char* to_string(Kind kind) {
  switch (kind) {
    case Kind::kBulk:
      return "bulk";
    case Kind::kAmount:
      return "amount";
    case Kind::kFile:
      return "file";
    case Kind::kBesideCubic:
      return "beside-cubic";
    case Kind::kTwo:
      return "two-of-ours";
    case Kind::kBackground:
      return "background";
    case Kind::kRealtime:
      return "realtime";
    case Kind::kFec:
      return "realtime-fec";
    case Kind::kBlackout:
      return "blackout";
    case Kind::kShort:
      return "short";
  }
  return "?";
}

std::string Line::name() const {
  if (rate == 0) return "veth";
  std::string out =
      rate >= 1e9 ? fmt::format("{:g} Gb/s", rate * 1e-9) : fmt::format("{:g} Mb/s", rate * 1e-6);
  out += fmt::format(" {:g} ms", rtt * 1e3);
  if (loss > 0) out += fmt::format(" {:g}%", loss * 100);
  if (burst > 1) out += fmt::format(" in bursts of {:g}", burst);
  return out;
}

std::string Row::name() const {
  std::string out = to_string(kind);
  if (bytes > 0) out += fmt::format(" {:g} MB", bytes * 1e-6);
  return out + " " + line.name();
}

std::vector<Goal> Row::goals() const {
  switch (kind) {
    case Kind::kBulk:
      return bulk_goals(line);
    case Kind::kAmount:
      return amount_goals(bytes);
    case Kind::kBesideCubic:
      return {{"ratio_to_cubic", 0.5, 0.7, false, true}};
    case Kind::kTwo:
      return {{"jain_index", 0.95, 0.99}};
    case Kind::kBackground:
      return {{"cubic_keeps", 0.9, 0.97}};
    case Kind::kRealtime:
      return {{"above_base_p99_ms", 15, 5, true}, {"above_base_p999_ms", 30, 10, true}};
    case Kind::kFec:
      return {{"within_20ms", 0.999, 0.9999}};
    case Kind::kBlackout:
      return {{"recovery_s", 3 * line.rtt + 0.3, 3 * line.rtt, true}};
    case Kind::kShort:
      return {{"rate_of_standard", 0.95, 1.05}, {"latency_of_standard", 1 / 0.95, 1 / 1.05, true}};
    case Kind::kFile:
      return {{"rate_of_scp", 3, 3.5}, {"rate_of_rsync", 1.5, 1.8}};
  }
  return {};
}

Result<std::vector<Row>> make_rows(const Plan& plan) {
  if (!(plan.seconds >= 1 && plan.seconds <= 3600)) return invalid("--seconds must be 1 to 3600");
  if (plan.rounds < 1 || plan.rounds > 100) return invalid("--rounds must be 1 to 100");
  std::vector<Row> rows;
  if (plan.quick) {
    rows = quick_rows();
  } else {
    FV_ASSIGN(const auto rates, parse_list("--rate", plan.rate, parse_rate));
    FV_ASSIGN(const auto rtts, parse_list("--rtt", plan.rtt, parse_duration));
    FV_ASSIGN(const auto losses, parse_list("--loss", plan.loss, parse_probability));
    for (const BitRate rate : rates) {
      if (rate.is_zero())
        return invalid("--rate: a line without a bottleneck has no limit to compare with");
      for (const Duration rtt : rtts) {
        for (const double loss : losses) {
          rows.push_back(
              bulk({static_cast<double>(rate.bps()), rtt.to_seconds(), loss, 1}, plan.seconds));
        }
      }
    }
    const std::vector<Row> more = special_rows(plan.seconds);
    rows.insert(rows.end(), more.begin(), more.end());
  }
  try {
    const std::regex only(plan.only);
    rows.erase(std::remove_if(rows.begin(), rows.end(),
                              [&](const Row& row) { return !std::regex_search(row.name(), only); }),
               rows.end());
  } catch (const std::regex_error&) {
    return invalid("--only: '" + plan.only + "' is no regular expression");
  }
  if (rows.empty()) {
    return invalid("--only: no row is called '" + plan.only + "'; --list shows the names");
  }
  return rows;
}

}  // namespace farverbs::tools::compare
