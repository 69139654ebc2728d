// `farverbs run`: starts a program with the drop-in libraries in front of the system's, without
// root.
#pragma once

namespace CLI {
class App;
}

namespace farverbs::tools {

void register_run(CLI::App& app, int* exit_code);

}  // namespace farverbs::tools
