// `farverbs decode FILE.pcap`: the RDMA packets of a capture, one line each in the words of the
// specification's fields, or as JSON; with --verify also whether each is correct.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace farverbs::tools {

/// Adds the subcommand; see command_line.h.
void register_decode(CLI::App& app, int* exit_code);

struct DecodeOptions {
  std::string file;
  bool verify = false;
  bool json = false;
  bool quiet = false;  // no line per packet
};

/// Writes to stdout, errors and wrong packets to stderr. Returns 0, or 1 if the file could not be
/// read to its end or --verify found something wrong (or nothing to verify).
int decode(const DecodeOptions& options);

}  // namespace farverbs::tools
