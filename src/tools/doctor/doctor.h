// `farverbs doctor`: what this machine can do, found out by trying, and what to do about the rest.
#pragma once

namespace CLI {
class App;
}

namespace farverbs::tools {

void register_doctor(CLI::App& app, int* exit_code);

}  // namespace farverbs::tools
