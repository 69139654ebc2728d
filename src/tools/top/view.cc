#include "tools/top/view.h"

#include <algorithm>

#include <fmt/format.h>

#include "tools/common/format.h"

namespace farverbs::tools::top {
namespace {

const QpStats* find_before(const std::vector<DeviceStats>& before, const DeviceStats& device,
                           const QpStats& qp, double& seconds) {
  for (const DeviceStats& old : before) {
    if (old.pid != device.pid || old.socket != device.socket) continue;
    seconds = device.seconds - old.seconds;
    for (const QpStats& candidate : old.qps) {
      if (candidate.qpn == qp.qpn) return &candidate;
    }
  }
  return nullptr;
}

double counter(const QpStats& qp, const char* name) {
  const auto found = qp.counters.find(name);
  return found == qp.counters.end() ? 0 : found->second;
}

std::string phase_of(const DeviceStats& device, const QpStats& qp) {
  for (const PathStats& path : device.paths) {
    if (static_cast<int64_t>(path.id) == qp.path && qp.transport == "far") return path.phase;
  }
  return {};
}

std::string duration(double us) {
  return us > 0 ? format_duration(Duration::nanoseconds(static_cast<int64_t>(us * 1e3))) : "-";
}

std::string bytes(double count) {
  return count >= 1e6   ? fmt::format("{:.1f} MB", count * 1e-6)
         : count >= 1e3 ? fmt::format("{:.0f} kB", count * 1e-3)
                        : fmt::format("{:.0f} B", count);
}

std::vector<std::string> cells_of(const Line& line) {
  const QpStats& qp = *line.qp;
  const FlightStats none;
  const FlightStats& flight = line.flight != nullptr ? *line.flight : none;
  const bool has = line.flight != nullptr;
  return {std::to_string(line.pid),
          fmt::format("0x{:06x}", qp.qpn),
          qp.type + (qp.transport == "far" ? " far" : ""),
          qp.state,
          qp.service_class.empty() ? "-" : qp.service_class,
          qp.peer.empty() ? "-" : qp.peer,
          format_bit_rate(line.sent_bits),
          format_bit_rate(line.received_bits),
          duration(flight.rtt_us),
          duration(flight.min_rtt_us),
          has ? bytes(flight.window_bytes) : "-",
          has ? bytes(flight.inflight_bytes) : "-",
          flight.pacing_bits > 0 ? format_bit_rate(flight.pacing_bits) : "-",
          fmt::format("{:.2f}%", line.resent_share * 100),
          fmt::format("{:.0f}", counter(qp, "retransmitted_packets")),
          fmt::format("{:.0f}", counter(qp, "timeouts")),
          line.phase.empty() ? "" : line.phase};
}

}  // namespace

std::vector<Line> make_lines(const std::vector<DeviceStats>& before,
                             const std::vector<DeviceStats>& now) {
  std::vector<Line> lines;
  for (const DeviceStats& device : now) {
    for (const QpStats& qp : device.qps) {
      Line line;
      line.pid = device.pid;
      line.process = device.process;
      line.qp = &qp;
      line.flight = flight_of(device, qp);
      line.phase = phase_of(device, qp);
      double seconds = 0;
      const QpStats* old = find_before(before, device, qp, seconds);
      if (old != nullptr && seconds > 0) {
        const auto grown = [&](const char* name) {
          return std::max(0.0, counter(qp, name) - counter(*old, name));
        };
        line.sent_bits = grown("sent_payload_bytes") * 8 / seconds;
        line.received_bits = grown("received_payload_bytes") * 8 / seconds;
        line.resent_per_second = grown("retransmitted_packets") / seconds;
        const double sent = grown("sent_packets");
        line.resent_share = sent > 0 ? grown("retransmitted_packets") / sent : 0;
      }
      lines.push_back(std::move(line));
    }
  }
  std::stable_sort(lines.begin(), lines.end(), [](const Line& x, const Line& y) {
    return x.sent_bits + x.received_bits > y.sent_bits + y.received_bits;
  });
  return lines;
}

std::string to_text(const std::vector<Line>& lines, size_t most) {
  double sent = 0, received = 0;
  std::vector<std::string> processes;
  for (const Line& line : lines) {
    sent += line.sent_bits;
    received += line.received_bits;
    const std::string name = fmt::format("{} {}", line.pid, line.process);
    if (std::find(processes.begin(), processes.end(), name) == processes.end()) {
      processes.push_back(name);
    }
  }
  std::string out =
      fmt::format("{} queue pair{} in {} process{}, sending {}, receiving {}\n", lines.size(),
                  lines.size() == 1 ? "" : "s", processes.size(), processes.size() == 1 ? "" : "es",
                  format_bit_rate(sent), format_bit_rate(received));
  if (lines.empty()) {
    return out +
           "Nobody to look at: perf, cp and serve show themselves; other programs of this user do "
           "with FARVERBS_STATS=1\n";
  }
  for (size_t i = 0; i < processes.size(); ++i) {
    out += fmt::format("{}{}", i == 0 ? "" : ", ", processes[i]);
  }
  out += "\n\n";
  TextTable table;
  table.row({"PID", "QP", "type", "state", "class", "peer", "sent", "received", "RTT", "least",
             "window", "in flight", "pacing", "resent", "packets", "timeouts", ""});
  const size_t count = most == 0 ? lines.size() : std::min(most, lines.size());
  for (size_t i = 0; i < count; ++i) table.row(cells_of(lines[i]));
  out += table.to_string();
  if (count < lines.size()) out += fmt::format("and {} more\n", lines.size() - count);
  return out;
}

Json to_json(const std::vector<DeviceStats>& devices, const std::vector<Line>& lines) {
  Json list = Json::array();
  for (const DeviceStats& device : devices) {
    Json one = {{"process", device.process}};
    one.update(device.raw);
    one["pid"] = device.pid;
    for (size_t i = 0; i < device.qps.size(); ++i) {
      for (const Line& line : lines) {
        if (line.qp != &device.qps[i]) continue;
        Json& qp = one["qps"][i];
        qp["sent_bits_per_second"] = line.sent_bits;
        qp["received_bits_per_second"] = line.received_bits;
        qp["retransmitted_per_second"] = line.resent_per_second;
        qp["retransmitted_share"] = line.resent_share;
      }
    }
    list.push_back(std::move(one));
  }
  return {{"devices", std::move(list)}};
}

}  // namespace farverbs::tools::top
