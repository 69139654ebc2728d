// Rows whose programs are no plain flows: amounts, files, messages by the clock, the short path.
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "farverbs/base/prng.h"
#include "tools/common/process_usage.h"
#include "tools/compare/field.h"
#include "tools/compare/measure.h"

namespace farverbs::tools::compare {
namespace {

namespace fs = std::filesystem;

constexpr uint16_t kPort = 7480;
constexpr Duration kLimit = Duration::seconds(60);
constexpr const char* kShellWritesCongestion =
    "echo bbr > /proc/sys/net/ipv4/tcp_congestion_control";

uint64_t seed_of(const Run& run) { return static_cast<uint64_t>(run.round) + 1; }

Result<void> expect_success(const Child& child) {
  if (child.exit_code == 0) return {};
  return Error{EIO, fmt::format("{}: {}", child.name, last_words(child))};
}

// Runs a command at an end and waits for it.
Result<Child*> run_at(Field& field, char side, const std::string& name,
                      const std::vector<std::string>& words, Duration limit = kLimit) {
  FV_ASSIGN(Child* const child, field.start(side, name, words));
  FV_TRY(field.wait(*child, limit));
  FV_TRY(expect_success(*child));
  return child;
}

/// Random, so that nothing on the way can compress it.
Result<void> write_random_file(const std::string& path, double bytes) {
  Prng prng(0x6661727665726273);
  std::ofstream file(path, std::ios::binary);
  std::vector<uint64_t> block(8192);
  for (auto left = static_cast<uint64_t>(bytes); left > 0 && file;) {
    for (uint64_t& word : block) word = prng.next();
    const uint64_t part = std::min<uint64_t>(left, block.size() * sizeof(uint64_t));
    file.write(reinterpret_cast<const char*>(block.data()), static_cast<std::streamsize>(part));
    left -= part;
  }
  file.close();
  if (!file) return Error{ENOSPC, fmt::format("cannot write {:.0f} bytes to {}", bytes, path)};
  return {};
}

bool same_contents(const std::string& x, const std::string& y) {
  std::ifstream first(x, std::ios::binary), second(y, std::ios::binary);
  std::vector<char> a(1 << 16), b(1 << 16);
  while (first && second) {
    first.read(a.data(), static_cast<std::streamsize>(a.size()));
    second.read(b.data(), static_cast<std::streamsize>(b.size()));
    if (first.gcount() != second.gcount()) return false;
    if (!std::equal(a.begin(), a.begin() + first.gcount(), b.begin())) return false;
  }
  return first.eof() && second.eof();
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
}

// A server at A and the command at B that fetches `original` to `copy`.
struct Copying {
  std::vector<std::string> server;
  uint16_t port = 0;
  std::vector<std::string> client;
};

Result<Copying> copy_by_scp(Field& field, const std::string& original, const std::string& copy) {
  const std::string key = field.file("key"), host_key = field.file("host_key");
  for (const std::string& file : {key, host_key}) {
    FV_TRY(run_at(field, 'a', "ssh-keygen",
                  {"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file}));
  }
  std::error_code ignored;
  fs::create_directories("/run/sshd", ignored);
  write_text(field.file("sshd_config"),
             fmt::format("Port 2222\nHostKey {}\nAuthorizedKeysFile {}.pub\nStrictModes no\n"
                         "UsePAM no\nPidFile none\nPermitRootLogin yes\nUseDNS no\n"
                         "Subsystem sftp internal-sftp\n",
                         host_key, key));
  return Copying{{find_program("sshd"), "-D", "-e", "-f", field.file("sshd_config")},
                 2222,
                 {"scp", "-q", "-P", "2222", "-i", key, "-o", "StrictHostKeyChecking=no", "-o",
                  "UserKnownHostsFile=/dev/null", "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes",
                  fmt::format("{}:{}", field.address('a'), original), copy}};
}

Result<Copying> copy_by_rsync(Field& field, const std::string& original, const std::string& copy) {
  const fs::path path(original);
  write_text(
      field.file("rsyncd.conf"),
      fmt::format("use chroot = no\nport = 8730\n[files]\npath = {}\nread only = yes\n{}",
                  path.parent_path().string(), ::geteuid() == 0 ? "uid = root\ngid = root\n" : ""));
  return Copying{
      {"rsync", "--daemon", "--no-detach", "--config", field.file("rsyncd.conf")},
      8730,
      {"rsync",
       fmt::format("rsync://{}:8730/files/{}", field.address('a'), path.filename().string()),
       copy}};
}

Copying copy_by_us(Field& field, const std::string& original, const std::string& copy) {
  const fs::path path(original);
  return {{own_path(), "serve", "--root", path.parent_path().string(), "--bind", field.address('a'),
           "--insecure-listen"},
          7471,
          {own_path(), "cp",
           fmt::format("farverbs://{}/{}", field.address('a'), path.filename().string()), copy}};
}

// Samples of the messages in a report of `perf --rate-messages`, in milliseconds.
Result<std::vector<double>> read_samples(const std::string& output, double from, double rate) {
  FV_ASSIGN(const nlohmann::json report, read_json(output));
  if (!report.contains("samples_us")) return Error{EPROTO, "perf told no samples"};
  std::vector<double> samples;
  const auto skip = static_cast<size_t>(from * rate);
  for (const nlohmann::json& sample : report["samples_us"]) {
    samples.push_back(sample.get<double>() * 1e-3);
  }
  samples.erase(samples.begin(),
                samples.begin() + static_cast<long>(std::min(skip, samples.size())));
  if (samples.empty()) return Error{EPROTO, "perf measured no messages"};
  return samples;
}

// Throughput, latency and CPU of one transport over a veth pair.
struct Short {
  double bits = 0;
  double latency_us = 0;
  double cpu = 0;
};

Result<nlohmann::json> perf_once(Field& field, const std::vector<std::string>& more) {
  FV_ASSIGN(Child* const server,
            field.start('b', "server",
                        {own_path(), "perf", "server", "--once", "--port", std::to_string(kPort)}));
  FV_TRY(field.await_listening(*server, kPort));
  std::vector<std::string> words = {
      own_path(), "perf", "client", field.address('b'), "--port", std::to_string(kPort), "--json"};
  words.insert(words.end(), more.begin(), more.end());
  FV_ASSIGN(Child* const client, run_at(field, 'a', "client", words));
  FV_TRY(field.wait(*server, kLimit));
  return read_json(contents_of(client->output));
}

Result<Short> measure_transport(const Context& context, const Row& row,
                                std::vector<std::string> transport) {
  FV_ASSIGN(const auto field, Field::open(row.line, context.folder, 1));
  Short out;
  std::vector<std::string> words = transport;
  words.insert(words.end(),
               {"--mode", "latency", "--op", "send", "--wait", "block", "--seconds", "1"});
  FV_ASSIGN(const nlohmann::json latency, perf_once(*field, words));
  out.latency_us = latency.at("latency_us").at("p50").get<double>();
  words = std::move(transport);
  words.insert(words.end(), {"--seconds", fmt::format("{:g}", row.seconds)});
  FV_ASSIGN(const nlohmann::json bandwidth, perf_once(*field, words));
  out.bits = bandwidth.at("bits_per_second").get<double>();
  out.cpu = bandwidth.at("cpu").at("seconds_per_gb").get<double>();
  return out;
}

}  // namespace

Result<void> measure_amount(const Context& context, const Row& row, Run& run) {
  FV_ASSIGN(const auto field, Field::open(row.line, context.folder, seed_of(run)));
  const std::string bytes = fmt::format("{:.0f}", row.bytes);
  const std::string port = std::to_string(kPort);
  const std::string congestion = congestion_of(run.program);
  const bool ours = congestion.empty();
  FV_ASSIGN(
      Child* const server,
      ours ? field->start('b', "server", {own_path(), "perf", "server", "--once", "--port", port})
           : field->start('b', "sink",
                          {own_path(), "compare-end", "sink", "--port", port, "--bytes", bytes}));
  FV_TRY(field->await_listening(*server, kPort));
  const std::string report = field->file("source.json");
  FV_ASSIGN(
      Child* const client,
      ours ? run_at(*field, 'a', "client",
                    {own_path(), "perf", "client", field->address('b'), "--port", port, "--bytes",
                     bytes, "--json"})
           : run_at(*field, 'a', "source",
                    {own_path(), "compare-end", "source", "--peer", field->address('b'), "--port",
                     port, "--bytes", bytes, "--congestion", congestion, "--report", report}));
  FV_ASSIGN(const nlohmann::json found, read_json(contents_of(ours ? client->output : report)));
  const double seconds = (ours ? found.at("transfer") : found).at("seconds").get<double>();
  const FullPacket packet =
      ours ? FullPacket{found.at("full_packet").at("payload_bytes").get<double>(),
                        found.at("full_packet").at("ip_bytes").get<double>()}
           : kTcpPacket;
  run.figures["seconds"] = seconds;
  run.figures["setup_s"] = found.at("setup_seconds").get<double>();
  run.figures["goodput_mbps"] = row.bytes * 8e-6 / seconds;
  // One round trip to connect, one for the data and its confirmation, and the line's time.
  run.figures["floor_s"] =
      2 * row.line.rtt + row.bytes * 8 / physical_limit(row.line.rate, row.line.loss, packet);
  FV_ASSIGN(const lab::LabStats stats, field->close());
  run.warnings = lab::overload_warnings(stats);
  return {};
}

Result<void> measure_file(const Context& context, const Row& row, Run& run) {
  FV_ASSIGN(const auto field, Field::open(row.line, context.folder, seed_of(run)));
  const std::string folder = field->file("served"), original = folder + "/file";
  const std::string copy = field->file("copy");
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  for (const char* left : {"copy", "key", "key.pub", "host_key", "host_key.pub"}) {
    fs::remove(field->file(left), ignored);
  }
  if (!fs::exists(original)) FV_TRY(write_random_file(original, row.bytes));
  for (const char side : {'a', 'b'}) {
    if (run.program == kOurs) break;
    FV_TRY(run_at(*field, side, "congestion", {"sh", "-c", kShellWritesCongestion}));
  }
  Copying copying = copy_by_us(*field, original, copy);
  if (run.program.rfind("scp", 0) == 0) {
    FV_ASSIGN(copying, copy_by_scp(*field, original, copy));
  } else if (run.program.rfind("rsync", 0) == 0) {
    FV_ASSIGN(copying, copy_by_rsync(*field, original, copy));
  }
  FV_ASSIGN(Child* const server, field->start('a', "server", copying.server));
  FV_TRY(field->await_listening(*server, copying.port));
  const Time began = clock_now();
  FV_TRY(run_at(*field, 'b', "client", copying.client));
  const double seconds = (clock_now() - began).to_seconds();
  if (!same_contents(original, copy)) return Error{EIO, "the copy differs from the original"};
  run.figures["seconds"] = seconds;
  run.figures["goodput_mbps"] = row.bytes * 8e-6 / seconds;
  FV_ASSIGN(const lab::LabStats stats, field->close());
  run.warnings = lab::overload_warnings(stats);
  return {};
}

// Messages of a cloud desktop: 60 pictures a second, of 30 Mb/s together.
Result<void> measure_messages(const Context& context, const Row& row, Run& run) {
  constexpr double kRate = 60;
  const bool with = run.program == kOurs;
  Flow messages{
      kOurs, 0, row.seconds, {"--rate-messages", fmt::format("{:g}", kRate), "--size", "62000"}};
  if (with) messages.more.insert(messages.more.end(), {"--class", "realtime"});
  if (with && row.kind == Kind::kFec) messages.more.push_back("--fec");
  // Alone on a line that loses nothing: what a message costs at least.
  Flow alone = messages;
  alone.seconds = 2;
  Line clean = row.line;
  clean.loss = 0;
  FV_ASSIGN(const Together quiet, run_flows(context, clean, {alone}, seed_of(run)));
  FV_ASSIGN(const std::vector<double> least, read_samples(quiet.outputs[0], 0.5, kRate));
  const double base = median(least);
  std::vector<Flow> flows = {messages};
  if (row.kind == Kind::kRealtime) {
    flows.push_back({kOurs, 0, row.seconds, {}});
    if (with) flows.back().more = {"--class", "bulk"};
  }
  FV_ASSIGN(Together together, run_flows(context, row.line, flows, seed_of(run)));
  FV_ASSIGN(std::vector<double> samples, read_samples(together.outputs[0], row.settle, kRate));
  double within = 0;
  for (double& sample : samples) {
    sample -= base;
    within += sample <= 20;
  }
  auto& f = run.figures;
  f["base_ms"] = base;
  f["above_base_p50_ms"] = quantile(samples, 0.5);
  f["above_base_p99_ms"] = quantile(samples, 0.99);
  f["above_base_p999_ms"] = quantile(samples, 0.999);
  f["above_base_max_ms"] = quantile(samples, 1);
  f["within_20ms"] = within / static_cast<double>(samples.size());
  if (flows.size() > 1) {
    f["bulk_mbps"] = mean_rate(together.flows[1].rate, row.settle, row.seconds) * 1e-6;
    run.rate = together.flows[1].rate;
  }
  run.rtt = std::move(together.rtt);
  run.warnings = std::move(together.warnings);
  return {};
}

Result<void> measure_short(const Context& context, const Row& row, Run& run) {
  const bool can_choose = context.offer.transports.empty();
  std::vector<std::string> standard;
  if (can_choose) standard = {"--transport", "standard"};
  FV_ASSIGN(const Short yardstick, measure_transport(context, row, standard));
  Short found = yardstick;
  if (run.program == kOurs) {
    FV_ASSIGN(found, measure_transport(context, row, {"--transport", "far"}));
    run.figures["rate_of_standard"] = found.bits / yardstick.bits;
    run.figures["latency_of_standard"] = found.latency_us / yardstick.latency_us;
  }
  run.figures["goodput_mbps"] = found.bits * 1e-6;
  run.figures["latency_us"] = found.latency_us;
  run.figures["cpu_s_per_gb"] = found.cpu;
  return {};
}

}  // namespace farverbs::tools::compare
