#include "tools/compare/plot.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace farverbs::tools::compare {
namespace {

constexpr double kWidth = 520, kHeight = 180;
constexpr double kLeft = 52, kRight = 10, kTop = 14, kBottom = 28;

std::string number(double value) { return fmt::format("{:g}", std::round(value * 1e6) / 1e6); }

double scale(double value, double most, double length) {
  return most > 0 ? std::clamp(value / most, 0.0, 1.05) * length : 0;
}

}  // namespace

std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string color_class(const std::string& program) {
  if (program == "Farverbs") return "c0";
  if (program.rfind("Farverbs", 0) == 0) return "c4";
  if (program.find("rsync") != std::string::npos) return "c2";
  if (program.find("CUBIC") != std::string::npos || program.find("scp") != std::string::npos) {
    return "c1";
  }
  if (program.find("BBR") != std::string::npos) return "c2";
  return "c3";
}

std::string bars(const std::vector<Bar>& all, double full, double goal) {
  constexpr double kRow = 20, kNames = 170, kLength = 240;
  const double height = kRow * static_cast<double>(all.size()) + 4;
  std::string out = fmt::format("<svg class='bars' viewBox='0 0 {} {}' role='img'>",
                                kNames + kLength + 110, height);
  double y = 2;
  for (const Bar& bar : all) {
    const std::string name = escape(bar.program), label = escape(bar.label);
    out += fmt::format("<g><title>{}: {}</title><text x='{}' y='{}' text-anchor='end'>{}</text>",
                       name, label, kNames - 8, y + 13, name);
    out += fmt::format("<rect class='{}' x='{}' y='{}' width='{:.1f}' height='{}'/>",
                       color_class(bar.program), kNames, y + 2,
                       std::max(1.0, scale(bar.value, full, kLength)), kRow - 5);
    out += fmt::format("<text x='{:.1f}' y='{}'>{}</text></g>",
                       kNames + scale(bar.value, full, kLength) + 6, y + 13, label);
    y += kRow;
  }
  if (goal > 0 && goal <= full * 1.05) {
    const double x = kNames + scale(goal, full, kLength);
    out += fmt::format(
        "<line class='mark' x1='{0:.1f}' x2='{0:.1f}' y1='0' y2='{1}'><title>goal {2}"
        "</title></line>",
        x, height, number(goal));
  }
  return out + "</svg>";
}

std::string lines(const std::vector<Curve>& curves, const Axis& axis) {
  double end = 0, most = axis.mark;
  for (const Curve& curve : curves) {
    for (const auto& [x, y] : curve.points) {
      end = std::max(end, x);
      most = std::max(most, y);
    }
  }
  most = axis.most > 0 ? axis.most : round_up(most);
  end = std::max(end, 0.1);
  const double w = kWidth - kLeft - kRight, h = kHeight - kTop - kBottom;
  const auto at = [&](double x, double y) {
    return fmt::format("{:.1f},{:.1f}", kLeft + x / end * w, kTop + h - scale(y, most, h));
  };
  std::string out =
      fmt::format("<svg class='lines' viewBox='0 0 {} {}' role='img'>", kWidth, kHeight);
  for (int i = 0; i <= 4; ++i) {
    const double y = kTop + h - h * i / 4;
    out += fmt::format("<line class='grid' x1='{}' x2='{}' y1='{:.1f}' y2='{:.1f}'/>", kLeft,
                       kLeft + w, y, y);
    out += fmt::format("<text x='{}' y='{:.1f}' text-anchor='end'>{}</text>", kLeft - 5, y + 4,
                       number(most * i / 4));
  }
  const double step = std::max(1.0, std::round(round_up(end / 8)));
  for (double x = 0; x <= end + 1e-9; x += step) {
    out += fmt::format("<text x='{:.1f}' y='{}' text-anchor='middle'>{}</text>",
                       kLeft + x / end * w, kTop + h + 14, number(x));
  }
  out += fmt::format("<text class='axis' x='{}' y='10'>{}</text>", kLeft, escape(axis.title));
  out += fmt::format("<text class='axis' x='{}' y='{}' text-anchor='end'>seconds</text>", kLeft + w,
                     kHeight - 2);
  if (axis.mark > 0) {
    const double y = kTop + h - scale(axis.mark, most, h);
    out += fmt::format(
        "<line class='mark' x1='{}' x2='{}' y1='{:.1f}' y2='{:.1f}'><title>{}</title>"
        "</line>",
        kLeft, kLeft + w, y, y, number(axis.mark));
  }
  for (const Curve& curve : curves) {
    out += fmt::format("<polyline class='{}' points='", color_class(curve.program));
    for (const auto& [x, y] : curve.points) out += at(x, y) + " ";
    out += fmt::format("'><title>{}</title></polyline>", escape(curve.program));
  }
  return out + "</svg>";
}

std::vector<std::pair<double, double>> thin(const std::vector<std::pair<double, double>>& points,
                                            size_t most) {
  if (points.size() <= most || most == 0) return points;
  const double begin = points.front().first;
  const double span = (points.back().first - begin) / static_cast<double>(most);
  std::vector<std::pair<double, double>> out;
  for (const auto& point : points) {
    const double slot = begin + std::floor((point.first - begin) / span) * span;
    if (out.empty() || out.back().first < slot) {
      if (out.size() < most || out.back().first < slot) out.emplace_back(point);
    } else if (point.second > out.back().second) {
      out.back() = point;
    }
  }
  return out;
}

double round_up(double value) {
  if (!(value > 0)) return 1;
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double factor : {1.0, 1.2, 1.6, 2.0, 2.4, 3.0, 4.0, 5.0, 6.0, 8.0}) {
    if (value <= factor * power * (1 + 1e-9)) return factor * power;
  }
  return 10 * power;
}

}  // namespace farverbs::tools::compare
