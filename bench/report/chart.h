// Charts as inline SVG, for pages that stand alone: axes with labels, a legend, colours that the colour-blind can tell
// apart (Okabe and Ito, "Color Universal Design", 2008). Pure.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gyre::bench {

struct Series {
  std::string name;
  int colour = 0;       // 0 to 7
  bool dashed = false;  //
  bool line = true;     // else points alone
  std::vector<std::pair<double, double>> points{};
  std::vector<std::string> labels{};  // of points, beside them; or empty
};

struct Chart {
  std::string title;
  std::string x_label{}, y_label{};  // with units
  bool log_x = false;                // powers of two
  bool log_y = false;                // powers of ten
  std::optional<double> y_most{};    // of the axis; else from the points
  std::vector<Series> series{};
};

// What is measured, as a bar, and what was predicted of it, as a mark.
struct Bar {
  std::string label;
  int colour = 0;
  double measured = 0;
  std::optional<double> predicted{};
};

struct Bars {
  std::string title;
  std::string x_label{};  // with its unit
  std::vector<Bar> bars{};
};

// An <svg> element. Points that an axis cannot show (0 on a logarithmic one) are left out.
std::string ToSvg(const Chart& chart);
std::string ToSvg(const Bars& bars);

// With <, >, & and quotes as entities.
std::string Escaped(const std::string& text);

}  // namespace gyre::bench
