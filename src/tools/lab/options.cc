#include "tools/lab/options.h"

#include <algorithm>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "tools/common/units_parse.h"

namespace farverbs::tools::lab {
namespace {

constexpr uint64_t kLeastQueuePackets = 64;

struct Reorder {
  double probability = 0;
  Duration by = Duration::milliseconds(10);
};

Result<Reorder> parse_reorder(std::string_view text) {
  Reorder reorder;
  const size_t colon = text.find(':');
  FV_ASSIGN(reorder.probability, parse_probability(text.substr(0, colon)));
  if (colon != std::string_view::npos) {
    FV_ASSIGN(reorder.by, parse_duration(text.substr(colon + 1)));
  }
  return reorder;
}

template <typename Parse>
auto parse_option(const char* name, const std::string& text, Parse parse)
    -> decltype(parse_pair(text, parse)) {
  auto pair = parse_pair(text, parse);
  if (!pair.ok()) return invalid(std::string(name) + ": " + pair.error().message);
  return pair;
}

// A burst that is longer than the whole loss allows cannot have that mean.
Result<void> check_loss(const LinkConfig& link) {
  if (link.burst < 1) return invalid("--burst-loss: a burst has 1 packet or more");
  if (link.burst > 1 && link.loss < 1 && link.loss / link.burst / (1 - link.loss) > 1 + 1e-9) {
    return invalid("--loss: with bursts this short no more than " +
                   fmt::format("{:.0f}%", 100 * link.burst / (1 + link.burst)) + " can be lost");
  }
  return {};
}

}  // namespace

void PathOptions::add_to(CLI::App& command) {
  const auto add = [&](const char* name, std::string& value, const char* help) {
    command.add_option(name, value, help)->group("Path (x/y gives A > B / B > A)");
  };
  add("--rate", rate,
      "Bottleneck: 200mbit, 1gbit, unlimited (the default). A 1500-byte packet costs 1538 bytes, "
      "as on Ethernet");
  add("--rtt", rtt,
      "Round trip time, half of it each way: 100ms. A pair gives the one-way delays: 80ms/20ms");
  add("--jitter", jitter, "The delay of each way wanders up by as much as this, keeping order");
  add("--loss", loss, "Packets lost after the bottleneck: 1%");
  add("--burst-loss", burst_loss,
      "Mean length of a run of losses in packets (Gilbert-Elliott); --loss stays the mean");
  add("--reorder", reorder, "Packets that are late, and by how long: 1%:10ms");
  add("--duplicate", duplicate, "Packets that arrive twice");
  add("--corrupt", corrupt,
      "Packets with 1 to 3 bits flipped after the IP header. Their UDP or TCP checksum counts as "
      "checked, so that the damage reaches the application");
  add("--queue", queue,
      "Room of the drop-tail queue before the bottleneck: 1bdp, 500kB, 20ms. Default: 1bdp, but "
      "at least 64 packets");
  add("--ecn", ecn, "Marks ECN-capable packets that find more than this queued: 0.1bdp, 5ms");
  command.add_option("--seed", seed, "Chance: the same seed gives the same losses")
      ->group("Path (x/y gives A > B / B > A)");
  command.add_option("--mtu", mtu, "Of both ends' device, in bytes")
      ->check(CLI::Range(576, 65'535))
      ->capture_default_str()
      ->group("Path (x/y gives A > B / B > A)");
  command.add_flag("--ipv6", ipv6, "Give IPv6 addresses too, and use them in FARVERBS_LAB_SELF")
      ->group("Path (x/y gives A > B / B > A)");
  command.add_option("--tick", tick, "The emulator's step: 20us to 1ms")
      ->capture_default_str()
      ->group("Path (x/y gives A > B / B > A)");
}

Result<EmulatorConfig> PathOptions::emulator() const {
  EmulatorConfig config;
  LinkConfig& ab = config.a_to_b;
  LinkConfig& ba = config.b_to_a;
  FV_ASSIGN((std::tie(ab.rate, ba.rate)), parse_option("--rate", rate, parse_rate));
  FV_ASSIGN((std::tie(ab.delay, ba.delay)), parse_option("--rtt", rtt, parse_duration));
  if (rtt.find('/') == std::string::npos) ab.delay = ba.delay = ab.delay / 2;
  FV_ASSIGN((std::tie(ab.jitter, ba.jitter)), parse_option("--jitter", jitter, parse_duration));
  FV_ASSIGN((std::tie(ab.loss, ba.loss)), parse_option("--loss", loss, parse_probability));
  FV_ASSIGN((std::tie(ab.burst, ba.burst)), parse_option("--burst-loss", burst_loss, parse_number));
  FV_ASSIGN((std::tie(ab.duplicate, ba.duplicate)),
            parse_option("--duplicate", duplicate, parse_probability));
  FV_ASSIGN((std::tie(ab.corrupt, ba.corrupt)),
            parse_option("--corrupt", corrupt, parse_probability));
  FV_ASSIGN(const auto late, parse_option("--reorder", reorder, parse_reorder));
  ab.reorder = late.first.probability;
  ba.reorder = late.second.probability;
  ab.reorder_by = late.first.by;
  ba.reorder_by = late.second.by;

  const Duration round_trip = ab.delay + ba.delay;
  FV_ASSIGN(const auto marks, parse_option("--ecn", ecn, parse_queue_size));
  ab.ecn_bytes = marks.first.bytes(ab.rate, round_trip);
  ba.ecn_bytes = marks.second.bytes(ba.rate, round_trip);
  FV_ASSIGN(const auto room,
            parse_option("--queue", queue.empty() ? "1bdp" : queue, parse_queue_size));
  ab.queue_bytes = room.first.bytes(ab.rate, round_trip);
  ba.queue_bytes = room.second.bytes(ba.rate, round_trip);
  if (queue.empty()) {
    const uint64_t least = kLeastQueuePackets * (mtu + kFrameOverhead);
    ab.queue_bytes = std::max(ab.queue_bytes, least);
    ba.queue_bytes = std::max(ba.queue_bytes, least);
  }
  FV_TRY(check_loss(ab));
  FV_TRY(check_loss(ba));
  // Distinct sequences of chance for the two ways.
  ab.seed = seed * 2;
  ba.seed = seed * 2 + 1;
  const auto step = parse_duration(tick);
  if (!step.ok()) return invalid("--tick: " + step.error().message);
  if (*step < Duration::microseconds(20) || *step > Duration::milliseconds(1)) {
    return invalid("--tick: '" + tick + "' is outside 20us to 1ms");
  }
  config.tick = *step;
  return config;
}

Result<NetOptions> PathOptions::net() const {
  if (ipv6 && mtu < 1280) return invalid("--mtu: IPv6 needs 1280 bytes or more");
  return NetOptions{mtu, ipv6};
}

void ChangeOptions::add_to(CLI::App& command) {
  const auto add = [&](const char* name, std::string& value, const char* help) {
    command.add_option(name, value, help)->group("Path (x/y gives A > B / B > A)");
  };
  add("--rate", rate, "Of the bottleneck; its queue keeps its bytes unless --queue says otherwise");
  add("--rtt", rtt, "Round trip time");
  add("--jitter", jitter, "As of `lab up`");
  add("--loss", loss, "As of `lab up`");
  add("--burst-loss", burst_loss, "As of `lab up`");
  add("--queue", queue, "As of `lab up`");
  command.add_flag("--down", down, "Nothing passes either way, until --up");
  command.add_flag("--up", up, "Packets pass again")->excludes("--down");
}

Result<void> ChangeOptions::apply(EmulatorConfig& config) const {
  LinkConfig& ab = config.a_to_b;
  LinkConfig& ba = config.b_to_a;
  const auto set = [](const char* name, const std::string& text, auto parse, auto& x,
                      auto& y) -> Result<void> {
    if (text.empty()) return {};
    FV_ASSIGN((std::tie(x, y)), parse_option(name, text, parse));
    return {};
  };
  FV_TRY(set("--rate", rate, parse_rate, ab.rate, ba.rate));
  FV_TRY(set("--rtt", rtt, parse_duration, ab.delay, ba.delay));
  if (!rtt.empty() && rtt.find('/') == std::string::npos) ab.delay = ba.delay = ab.delay / 2;
  FV_TRY(set("--jitter", jitter, parse_duration, ab.jitter, ba.jitter));
  FV_TRY(set("--loss", loss, parse_probability, ab.loss, ba.loss));
  FV_TRY(set("--burst-loss", burst_loss, parse_number, ab.burst, ba.burst));
  if (!queue.empty()) {
    FV_ASSIGN(const auto room, parse_option("--queue", queue, parse_queue_size));
    ab.queue_bytes = room.first.bytes(ab.rate, ab.delay + ba.delay);
    ba.queue_bytes = room.second.bytes(ba.rate, ab.delay + ba.delay);
  }
  FV_TRY(check_loss(ab));
  FV_TRY(check_loss(ba));
  if (down || up) ab.down = ba.down = down;
  return {};
}

std::string describe(const EmulatorConfig& config) {
  const LinkConfig& ab = config.a_to_b;
  const LinkConfig& ba = config.b_to_a;
  const auto each = [](auto format, const auto& x, const auto& y) {
    const std::string first = format(x), second = format(y);
    return first == second ? first : first + " / " + second;
  };
  const auto rate = [](const LinkConfig& l) {
    return l.rate.is_zero() ? std::string("unlimited")
                            : fmt::format("{:g} Mb/s", static_cast<double>(l.rate.bps()) * 1e-6);
  };
  std::string out = ab.down || ba.down ? "down, " : "";
  out += each(rate, ab, ba);
  out += fmt::format(", RTT {:g} ms", (ab.delay + ba.delay).to_seconds() * 1e3);
  const auto jitter = [](const LinkConfig& l) {
    return fmt::format("{:g} ms", l.jitter.to_seconds() * 1e3);
  };
  if (ab.jitter > Duration() || ba.jitter > Duration()) out += ", jitter " + each(jitter, ab, ba);
  const auto chance = [&](const char* name, double LinkConfig::*member) {
    const auto percent = [&](const LinkConfig& l) { return fmt::format("{:g}%", l.*member * 100); };
    if (ab.*member > 0 || ba.*member > 0) {
      out += fmt::format(", {} {}", name, each(percent, ab, ba));
    }
  };
  chance("loss", &LinkConfig::loss);
  const auto burst = [](const LinkConfig& l) { return fmt::format("{:g}", l.burst); };
  if (ab.burst > 1 || ba.burst > 1) out += ", in bursts of " + each(burst, ab, ba);
  chance("reordered", &LinkConfig::reorder);
  chance("duplicated", &LinkConfig::duplicate);
  chance("corrupted", &LinkConfig::corrupt);
  const auto queue = [](const LinkConfig& l) {
    return l.rate.is_zero() ? std::string("none")
                            : fmt::format("{:.0f} kB", static_cast<double>(l.queue_bytes) * 1e-3);
  };
  out += ", queue " + each(queue, ab, ba);
  const auto marks = [](const LinkConfig& l) {
    return fmt::format("{:.0f} kB", static_cast<double>(l.ecn_bytes) * 1e-3);
  };
  if (ab.ecn_bytes > 0 || ba.ecn_bytes > 0) out += ", CE above " + each(marks, ab, ba);
  return out;
}

}  // namespace farverbs::tools::lab
