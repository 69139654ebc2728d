// The options that describe an emulated path, shared by `lab up`, `lab run` and `lab bench`.
#pragma once

#include <cstdint>
#include <string>

#include "farverbs/base/result.h"
#include "tools/lab/emulator.h"
#include "tools/lab/netdev.h"

namespace CLI {
class App;
}

namespace farverbs::tools::lab {

// As written on the command line; "x/y" gives the directions A > B and B > A.
struct PathOptions {
  std::string rate = "unlimited";
  std::string rtt = "0";
  std::string jitter = "0";
  std::string loss = "0";
  std::string burst_loss = "1";
  std::string reorder = "0";
  std::string duplicate = "0";
  std::string corrupt = "0";
  std::string queue;
  std::string ecn = "0";
  std::string tick = "100us";
  uint64_t seed = 1;
  uint32_t mtu = 1500;
  bool ipv6 = false;

  // Adds the options to a subcommand, in a group of its own. The object outlives the parse.
  void add_to(CLI::App& command);
  // Errors name the option.
  Result<EmulatorConfig> emulator() const;
  Result<NetOptions> net() const;
};

// What `lab set` changes of a path that is up, as written; empty: stays as it is.
struct ChangeOptions {
  std::string rate;
  std::string rtt;
  std::string jitter;
  std::string loss;
  std::string burst_loss;
  std::string queue;
  bool down = false;
  bool up = false;

  void add_to(CLI::App& command);
  // A queue that is not given keeps its bytes. Errors name the option.
  Result<void> apply(EmulatorConfig& config) const;
};

// One line for people: "200 Mb/s, RTT 100 ms, loss 1%, queue 2.50 MB".
std::string describe(const EmulatorConfig& config);

}  // namespace farverbs::tools::lab
