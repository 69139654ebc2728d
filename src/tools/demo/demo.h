// `farverbs demo`: the main job, seen. A file crosses an emulated home line by Farverbs and by
// kernel TCP (CUBIC and BBR), each copy is compared with the original, and a table and a picture
// tell what happened.
#pragma once

namespace CLI {
class App;
}

namespace farverbs::tools {

/// Adds `demo`, and the hidden `demo-end` that runs inside the line's namespaces.
void register_demo(CLI::App& app, int* exit_code);

}  // namespace farverbs::tools
