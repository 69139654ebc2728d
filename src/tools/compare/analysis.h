// What the figures of a comparison are made of, as pure arithmetic: rates over a time line, how
// long a ramp took, quantiles, fairness, and the most that a line can carry of payload.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace farverbs::tools::compare {

/// Bytes that were confirmed in each step of `step` seconds; the first step begins at 0.
struct TimeLine {
  double step = 0.1;
  std::vector<double> bytes;

  double seconds() const { return step * static_cast<double>(bytes.size()); }
  /// Adds what was confirmed between two moments, spread evenly.
  void add(double from, double to, double count);
  double total() const;
};

/// A round trip seen beside a flow.
struct RttSample {
  double at = 0;  // seconds
  double ms = 0;
};

/// Bits a second between two moments; steps that are cut count in part. 0 if there is nothing
/// between them.
double mean_rate(const TimeLine& line, double from, double to);

/// When a window of `window` seconds first carried `rate` bits a second: the middle of that window.
/// Looks from `from` on; nullopt if it never did.
std::optional<double> reached(const TimeLine& line, double rate, double window, double from = 0);

/// The value that a share `q` (0 to 1) of the values does not exceed; 0 without values.
double quantile(std::vector<double> values, double q);
double median(std::vector<double> values);

/// 1 if all are equal, 1/n if one has everything.
double jain_index(const std::vector<double>& rates);

/// A packet with as much payload as fits, and what it costs an Ethernet link.
struct FullPacket {
  double payload = 0;  // bytes
  double ip = 0;       // bytes, IP header included
  double wire() const;
  double payload_share() const { return payload / wire(); }
};

/// A full segment of TCP with time stamps over an MTU of 1,500 bytes.
inline constexpr FullPacket kTcpPacket{1448, 1500};

/// Bits of payload a second that no program of such packets can exceed: what the line carries,
/// without the packets it loses.
double physical_limit(double rate, double loss, const FullPacket& packet);

}  // namespace farverbs::tools::compare
