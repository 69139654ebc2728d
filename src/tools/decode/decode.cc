#include "tools/decode/decode.h"

#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "tools/decode/describe.h"
#include "tools/decode/examine.h"

namespace farverbs::tools {
namespace {

struct Counts {
  uint64_t packets = 0;
  uint64_t rdma = 0;
  uint64_t wrong = 0;
  uint64_t other() const { return packets - rdma; }
};

// Writes packets as they come, so that a capture of any length needs no memory.
class Output {
 public:
  explicit Output(const DecodeOptions& options) : options_(options) {
    if (!options_.json) return;
    fmt::print("{{\"file\": {},\n\"packets\": [", json_text(options_.file));
  }

  void packet(const Examined& e, Time start) {
    if (options_.quiet) return;
    if (!options_.json) {
      fmt::print("{}\n", describe_line(e, start));
      return;
    }
    fmt::print("{}{}", first_ ? "\n" : ",\n", describe_json(e, options_.verify).dump());
    first_ = false;
  }

  void finish(const Counts& counts, const std::string& error) {
    if (!options_.json) {
      fmt::print("{} packets: {} RDMA, {} other", counts.packets, counts.rdma, counts.other());
      if (options_.verify || counts.wrong != 0) fmt::print(", {} wrong", counts.wrong);
      fmt::print("\n");
      return;
    }
    const nlohmann::ordered_json summary = {{"packets", counts.packets},
                                            {"rdma", counts.rdma},
                                            {"other", counts.other()},
                                            {"wrong", counts.wrong},
                                            {"verified", options_.verify}};
    fmt::print("\n],\n\"summary\": {}", summary.dump());
    if (!error.empty()) fmt::print(",\n\"error\": {}", json_text(error));
    fmt::print("}}\n");
  }

 private:
  // File names need not be UTF-8.
  static std::string json_text(const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  const DecodeOptions& options_;
  bool first_ = true;
};

}  // namespace

int decode(const DecodeOptions& options) {
  Result<wire::PcapReader> reader = wire::PcapReader::open(options.file);
  if (!reader.ok()) {
    fmt::print(stderr, "farverbs decode: {}\n", reader.error().message);
    return 1;
  }
  Output output(options);
  Counts counts;
  std::string error;
  std::optional<Time> start;
  while (error.empty()) {
    const Result<std::optional<wire::CapturedPacket>> next = reader->next();
    if (!next.ok()) {
      error = next.error().message;
      break;
    }
    if (!next->has_value()) break;
    const wire::CapturedPacket& captured = **next;
    ++counts.packets;
    if (!start) start = captured.time;
    const Examined e = examine(captured, options.verify);
    if (!e.is_rdma()) continue;
    ++counts.rdma;
    if (!e.problems.empty()) ++counts.wrong;
    output.packet(e, *start);
    if (!options.verify) continue;
    for (const std::string& problem : e.problems) {
      fmt::print(stderr, "farverbs decode: packet {}: {}\n", captured.number, problem);
    }
  }
  output.finish(counts, error);
  if (error.empty() && options.verify && counts.rdma == 0) {
    error = options.file + " holds no RDMA packet: there is nothing to verify";
  }
  if (!error.empty()) fmt::print(stderr, "farverbs decode: {}\n", error);
  return !error.empty() || (options.verify && counts.wrong != 0) ? 1 : 0;
}

void register_decode(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "decode", "Print the RDMA packets of a capture, one line each, and check them.");
  const auto options = std::make_shared<DecodeOptions>();
  command
      ->add_option("FILE", options->file,
                   "Capture file, pcap or pcapng, as `tcpdump -s 0 -w FILE` writes; - is stdin.")
      ->required();
  command->add_flag("--verify", options->verify,
                    "Check lengths, ICRCs, and that emitting what was parsed gives the same bytes; "
                    "name each wrong packet and exit 1 if there is one.");
  command->add_flag("--json", options->json, "One JSON document instead of lines.");
  command->add_flag("--quiet,-q", options->quiet, "No packets, only the summary.");
  command->footer(
      "RoCEv2 (UDP port 4791) and RoCEv1 (EtherType 0x8915) packets are shown, others counted.\n"
      "Times are seconds since the capture's first packet.");
  command->callback([options, exit_code] { *exit_code = decode(*options); });
}

}  // namespace farverbs::tools
