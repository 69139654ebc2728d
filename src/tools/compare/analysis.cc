#include "tools/compare/analysis.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace farverbs::tools::compare {
namespace {

// Ethernet header 14, FCS 4, preamble 8, gap 12.
constexpr double kFrameOverhead = 38;

/// Bytes between two moments.
double bytes_between(const TimeLine& line, double from, double to) {
  double sum = 0;
  const auto first = static_cast<size_t>(std::max(0.0, std::floor(from / line.step)));
  for (size_t i = first; i < line.bytes.size(); ++i) {
    const double begin = static_cast<double>(i) * line.step;
    if (begin >= to) break;
    const double inside = std::min(to, begin + line.step) - std::max(from, begin);
    sum += line.bytes[i] * std::clamp(inside / line.step, 0.0, 1.0);
  }
  return sum;
}

}  // namespace

void TimeLine::add(double from, double to, double count) {
  if (to <= from || to <= 0 || count <= 0) return;
  const auto last = static_cast<size_t>(std::ceil(to / step - 1e-9));
  if (bytes.size() < last) bytes.resize(last, 0);
  const auto first = static_cast<size_t>(std::max(0.0, std::floor(from / step + 1e-9)));
  for (size_t i = first; i < last; ++i) {
    const double begin = static_cast<double>(i) * step;
    const double inside = std::min(to, begin + step) - std::max(from, begin);
    bytes[i] += count * std::max(0.0, inside) / (to - from);
  }
}

double TimeLine::total() const { return std::accumulate(bytes.begin(), bytes.end(), 0.0); }

double mean_rate(const TimeLine& line, double from, double to) {
  return to > from ? bytes_between(line, from, to) * 8 / (to - from) : 0;
}

std::optional<double> reached(const TimeLine& line, double rate, double window, double from) {
  // A rate that is met exactly counts, whatever binary fractions make of it.
  const double enough = rate * (1 - 1e-9);
  for (int i = 0;; ++i) {
    const double at = from + i * line.step;
    if (at + window > line.seconds() + 1e-9) return std::nullopt;
    if (mean_rate(line, at, at + window) >= enough) return at + window / 2;
  }
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(q * static_cast<double>(values.size()));
  const auto index = static_cast<size_t>(std::max(rank, 1.0)) - 1;
  return values[std::min(index, values.size() - 1)];
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double jain_index(const std::vector<double>& rates) {
  double sum = 0, squares = 0;
  for (const double rate : rates) {
    sum += rate;
    squares += rate * rate;
  }
  return squares > 0 ? sum * sum / (static_cast<double>(rates.size()) * squares) : 0;
}

double FullPacket::wire() const { return ip + kFrameOverhead; }

double physical_limit(double rate, double loss, const FullPacket& packet) {
  return rate * (1 - loss) * packet.payload_share();
}

}  // namespace farverbs::tools::compare
