// `farverbs perf`: how fast the network and both machines move memory by RDMA.
#pragma once

namespace CLI {
class App;
}

namespace farverbs::tools {

void register_perf(CLI::App& app, int* exit_code);

}  // namespace farverbs::tools
