// `farverbs lab`: two network namespaces on this machine, joined by an emulated wide-area path.
#pragma once

namespace CLI {
class App;
}

namespace farverbs::tools {

// Adds `lab` and its subcommands. Their callbacks set *exit_code, which outlives the parse.
void register_lab(CLI::App& app, int* exit_code);

}  // namespace farverbs::tools
