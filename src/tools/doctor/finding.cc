#include "tools/doctor/finding.h"

#include <algorithm>

#include <fmt/format.h>

namespace farverbs::tools::doctor {

const char* to_string(Status status) {
  switch (status) {
    case Status::kOk:
      return "ok";
    case Status::kWarn:
      return "warn";
    case Status::kFail:
      return "fail";
  }
  return "?";
}

bool is_fit(const std::vector<Finding>& findings) {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& f) { return f.status == Status::kFail; });
}

std::string to_text(const std::vector<Finding>& findings) {
  size_t width = 0;
  for (const Finding& f : findings) width = std::max(width, f.check.size());
  std::string text;
  size_t warnings = 0;
  for (const Finding& f : findings) {
    text += fmt::format("{:<4}  {:<{}}  {}\n", to_string(f.status), f.check, width, f.found);
    if (!f.advice.empty()) text += fmt::format("{:<4}  {:<{}}  -> {}\n", "", "", width, f.advice);
    warnings += f.status == Status::kWarn ? 1 : 0;
  }
  if (!is_fit(findings)) {
    text += "\nSomething essential is missing: see the lines that say fail.\n";
  } else if (warnings > 0) {
    text += fmt::format("\nFarverbs works here; {} thing{} could be better.\n", warnings,
                        warnings == 1 ? "" : "s");
  } else {
    text += "\nFarverbs works here, and nothing is missing.\n";
  }
  return text;
}

Json to_json(const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Finding& f : findings) {
    list.push_back({{"check", f.check},
                    {"status", to_string(f.status)},
                    {"found", f.found},
                    {"advice", f.advice}});
  }
  return {{"tool", "doctor"}, {"fit", is_fit(findings)}, {"findings", std::move(list)}};
}

}  // namespace farverbs::tools::doctor
