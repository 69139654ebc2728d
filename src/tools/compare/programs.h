// The programs that are compared: whether this machine has them, how they are called, and what
// their reports say.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "farverbs/base/result.h"
#include "tools/compare/analysis.h"
#include "tools/compare/cells.h"

namespace farverbs::tools::compare {

/// What this machine offers. Each string says why not and what to do, or is empty.
struct Offer {
  std::string iperf3;
  std::string cubic;
  std::string bbr;
  std::string scp;  // with sshd
  std::string rsync;
  std::string classes;     // `perf --class`
  std::string transports;  // `perf --transport`
  std::string correction;  // `perf --fec`
};
Offer find_offer();

/// The path of this program.
std::string own_path();
/// The first of `names` that is an executable file in $PATH or a system folder, or empty.
std::string find_program(const std::string& name);

/// One flow of a comparison.
struct Flow {
  std::string program = "Farverbs";  // result.h's names
  double start = 0;                  // seconds after the first
  double seconds = 0;
  std::vector<std::string> more;  // options of our `perf client`
};

std::vector<std::string> server_words(const Flow& flow, uint16_t port);
std::vector<std::string> client_words(const Flow& flow, const Line& line, const std::string& peer,
                                      uint16_t port);
/// The word for the kernel, "cubic" or "bbr"; empty for ours.
std::string congestion_of(const std::string& program);

struct FlowReport {
  TimeLine rate;  // from the connection on
  double retransmitted_bytes = 0;
  FullPacket packet;
  double payload = 0;      // bytes confirmed altogether
  double cpu_seconds = 0;  // of both sides' processes while they measured, their start left out
};
/// Errors: not the report that the program is to write.
Result<FlowReport> read_flow(const Flow& flow, const std::string& client_output,
                             const std::string& server_output);

/// Of our own: EPROTO if it is no JSON object.
Result<nlohmann::json> read_json(const std::string& text);

}  // namespace farverbs::tools::compare
