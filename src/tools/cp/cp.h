// `farverbs cp` and `farverbs serve`: files between machines by RDMA writes into the pages of the
// receiver's files.
#pragma once

namespace CLI {
class App;
}

namespace farverbs::tools {

void register_serve(CLI::App& app, int* exit_code);
// Adds `serve` as well: the two are one tool.
void register_cp(CLI::App& app, int* exit_code);

}  // namespace farverbs::tools
