// `farverbs ping`: does RDMA get through to a host, how long does it take, how much is lost.
#pragma once

namespace CLI {
class App;
}

namespace farverbs::tools {

void register_ping(CLI::App& app, int* exit_code);

}  // namespace farverbs::tools
