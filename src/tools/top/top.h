// `farverbs top`: what the queue pairs of this user's processes are doing, live.
#pragma once

namespace CLI {
class App;
}

namespace farverbs::tools {

void register_top(CLI::App& app, int* exit_code);

}  // namespace farverbs::tools
