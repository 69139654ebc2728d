// Small plots as SVG text: bars that compare, lines over time. No script; hovering shows a mark's
// value by its title element, and print shows the same picture.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace farverbs::tools::compare {

/// For text and attributes of HTML and SVG.
std::string escape(const std::string& text);

/// The colour of a program, the same in every plot: a CSS class, "c0" to "c4".
std::string color_class(const std::string& program);

struct Bar {
  std::string program;
  double value = 0;
  std::string label;  // as people read it
};
/// Horizontal bars; `full` is the value that fills the width, with a mark at `goal` if it is not 0.
std::string bars(const std::vector<Bar>& bars, double full, double goal);

struct Curve {
  std::string program;
  std::vector<std::pair<double, double>> points;  // seconds, value; in order
};
struct Axis {
  std::string title;  // with its unit
  double most = 0;    // 0: as the curves need
  double mark = 0;    // a dashed line at this value; 0: none
};
/// Values over seconds.
std::string lines(const std::vector<Curve>& curves, const Axis& axis);

/// At most `most` points: of each span of time the greatest value.
std::vector<std::pair<double, double>> thin(const std::vector<std::pair<double, double>>& points,
                                            size_t most);
/// A number with few digits that is not below `value`, and not much above.
double round_up(double value);

}  // namespace farverbs::tools::compare
