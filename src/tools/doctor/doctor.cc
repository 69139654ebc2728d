#include "tools/doctor/doctor.h"

#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "tools/command_line.h"
#include "tools/doctor/finding.h"

namespace farverbs::tools {

void register_doctor(CLI::App& app, int* exit_code) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("doctor", "What this machine can do, found by trying.");
  command->footer("Exits with 1 only when something essential is missing.");
  command->add_flag("--json", *json, "Print the findings as JSON.");
  command->callback([json, exit_code] {
    std::vector<doctor::Finding> findings = doctor::probe_sockets();
    for (doctor::Finding& f : doctor::probe_privileges()) findings.push_back(std::move(f));
    for (doctor::Finding& f : doctor::probe_machine()) findings.push_back(std::move(f));
    fmt::print("{}", *json ? doctor::to_json(findings).dump(2) + "\n" : doctor::to_text(findings));
    *exit_code = doctor::is_fit(findings) ? kExitOk : kExitFailed;
  });
}

}  // namespace farverbs::tools
