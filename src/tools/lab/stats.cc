#include "tools/lab/stats.h"

#include <cstdlib>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace farverbs::tools::lab {
namespace {

using nlohmann::json;

double milliseconds(int64_t ns) { return static_cast<double>(ns) * 1e-6; }

double megabits_per_second(uint64_t bytes, int64_t ns) {
  return ns <= 0 ? 0 : static_cast<double>(bytes) * 8e3 / static_cast<double>(ns);
}

double share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

uint64_t passed_queue(const DirectionStats& d) {
  return d.packets_in - d.queue_drops - d.memory_drops;
}

double mean_queued_ms(const DirectionStats& d) {
  const uint64_t packets = passed_queue(d);
  return packets == 0 ? 0 : milliseconds(d.queued_ns_total) / static_cast<double>(packets);
}

double mean_error_us(const DirectionStats& d) {
  const uint64_t packets = d.error.total();
  return packets == 0 ? 0
                      : static_cast<double>(d.error_ns_total) * 1e-3 / static_cast<double>(packets);
}

std::string line(const char* name, const DirectionStats& d, int64_t elapsed_ns) {
  std::string out =
      fmt::format("  {}  in {} packets, {:.1f} MB ({:.1f} Mb/s); out {} packets ({:.1f} Mb/s)\n",
                  name, d.packets_in, static_cast<double>(d.bytes_in) * 1e-6,
                  megabits_per_second(d.bytes_in, elapsed_ns), d.packets_out,
                  megabits_per_second(d.bytes_out, elapsed_ns));
  out += fmt::format("          queue dropped {} ({:.3f}%), delay mean {:.2f} ms, max {:.2f} ms\n",
                     d.queue_drops, 100 * share(d.queue_drops, d.packets_in), mean_queued_ms(d),
                     milliseconds(d.queued_ns_max));
  out += fmt::format(
      "          lost {} ({:.3f}%), late {}, duplicated {}, corrupted {}, CE marked {}\n", d.lost,
      100 * share(d.lost, passed_queue(d)), d.late, d.duplicated, d.corrupted, d.marked);
  out += fmt::format("          delay error p50 {:.0f} us, p99 {:.0f} us, bias {:+.0f} us\n",
                     d.error.quantile(0.5).to_microseconds(),
                     d.error.quantile(0.99).to_microseconds(), mean_error_us(d));
  return out;
}

json direction_json(const DirectionStats& d, int64_t elapsed_ns) {
  return {{"packets_in", d.packets_in},
          {"bytes_in", d.bytes_in},
          {"bits_per_second_in", megabits_per_second(d.bytes_in, elapsed_ns) * 1e6},
          {"packets_out", d.packets_out},
          {"bytes_out", d.bytes_out},
          {"bits_per_second_out", megabits_per_second(d.bytes_out, elapsed_ns) * 1e6},
          {"queue_dropped", d.queue_drops},
          {"queue_delay_mean_ms", mean_queued_ms(d)},
          {"queue_delay_max_ms", milliseconds(d.queued_ns_max)},
          {"lost", d.lost},
          {"loss_rate", share(d.lost, passed_queue(d))},
          {"dropped_bytes", d.dropped_bytes},
          {"late", d.late},
          {"duplicated", d.duplicated},
          {"corrupted", d.corrupted},
          {"ce_marked", d.marked},
          {"device_dropped", d.device_drops},
          {"memory_dropped", d.memory_drops},
          {"write_errors", d.write_errors},
          {"malformed", d.malformed},
          {"reads", d.reads},
          {"writes", d.writes},
          {"delay_error_p50_us", d.error.quantile(0.5).to_microseconds()},
          {"delay_error_p99_us", d.error.quantile(0.99).to_microseconds()},
          {"delay_error_mean_us", mean_error_us(d)}};
}

void warn_direction(const char* name, const DirectionStats& d, std::vector<std::string>& out) {
  if (d.device_drops > 0) {
    out.push_back(fmt::format(
        "{}: the kernel dropped {} packets before the emulator read them: it was too busy; the "
        "measured loss is not the one asked for",
        name, d.device_drops));
  }
  if (d.memory_drops > 0) {
    out.push_back(
        fmt::format("{}: {} packets found no room in the emulator's memory", name, d.memory_drops));
  }
  if (d.write_errors > 0) {
    out.push_back(fmt::format("{}: the receiving device refused {} packets", name, d.write_errors));
  }
  if (d.error.total() > 100 && d.error.quantile(0.99) > Duration::milliseconds(1)) {
    out.push_back(
        fmt::format("{}: 1% of the packets left {:.1f} ms or more late: this machine is "
                    "too busy for exact delays",
                    name, d.error.quantile(0.99).to_seconds() * 1e3));
  }
}

}  // namespace

void SharedStats::publish(const LabStats& stats) {
  version_.fetch_add(1, std::memory_order_acq_rel);
  std::memcpy(&stats_, &stats, sizeof stats_);
  version_.fetch_add(1, std::memory_order_release);
}

bool SharedStats::read(LabStats& stats) const {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const uint32_t before = version_.load(std::memory_order_acquire);
    std::memcpy(&stats, &stats_, sizeof stats);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0 && version_.load(std::memory_order_relaxed) == before) return true;
  }
  return false;
}

std::vector<std::string> overload_warnings(const LabStats& stats) {
  std::vector<std::string> out;
  warn_direction("A > B", stats.a_to_b, out);
  warn_direction("B > A", stats.b_to_a, out);
  return out;
}

std::string to_text(const LabStats& stats) {
  const double seconds = static_cast<double>(stats.elapsed_ns) * 1e-9;
  std::string out = fmt::format(
      "lab: {:.1f} s, emulator used {:.2f} of a core", seconds,
      share(static_cast<uint64_t>(stats.cpu_ns), static_cast<uint64_t>(stats.elapsed_ns)));
  if (stats.stalls > 0) {
    out += fmt::format(", {} wake-ups over 1 ms late (at most {:.1f} ms)", stats.stalls,
                       milliseconds(stats.stall_ns_max));
  }
  out += "\n" + line("A > B", stats.a_to_b, stats.elapsed_ns) +
         line("B > A", stats.b_to_a, stats.elapsed_ns);
  for (const std::string& warning : overload_warnings(stats))
    out += "lab: WARNING: " + warning + "\n";
  return out;
}

json to_json(const LabStats& stats) {
  return {{"seconds", static_cast<double>(stats.elapsed_ns) * 1e-9},
          {"complete", stats.final},
          {"emulator_cores",
           share(static_cast<uint64_t>(stats.cpu_ns), static_cast<uint64_t>(stats.elapsed_ns))},
          {"stalls", stats.stalls},
          {"stall_max_ms", milliseconds(stats.stall_ns_max)},
          {"a_to_b", direction_json(stats.a_to_b, stats.elapsed_ns)},
          {"b_to_a", direction_json(stats.b_to_a, stats.elapsed_ns)},
          {"warnings", overload_warnings(stats)}};
}

}  // namespace farverbs::tools::lab
