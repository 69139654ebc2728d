// `farverbs compare wan`: Farverbs against kernel TCP, scp and rsync on emulated long and lossy
// lines, in one run, with the limit that physics sets beside.
#pragma once

namespace CLI {
class App;
}

namespace farverbs::tools {

/// Adds `compare`, and the hidden `compare-end` that runs inside a line's namespaces.
void register_compare(CLI::App& app, int* exit_code);

}  // namespace farverbs::tools
