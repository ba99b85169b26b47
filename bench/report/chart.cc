#include "report/chart.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace gyre::bench {

namespace {

constexpr std::array<const char*, 8> kColours = {"#0072B2", "#56B4E9", "#009E73", "#000000",
                                                 "#E69F00", "#D55E00", "#CC79A7", "#8C6D31"};

const char* Colour(int number) {
  return kColours[static_cast<size_t>(number) % kColours.size()];
}

// "1.2k", "0.05", "64".
std::string Short(double value) {
  if (value >= 1e6) return absl::StrFormat("%gM", value / 1e6);
  if (value >= 1e4) return absl::StrFormat("%gk", value / 1e3);
  return absl::StrFormat("%g", value);
}

// 1, 2 or 5 of a power of ten: some five steps to `most`.
double NiceStep(double most) {
  const double raw = most / 5, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10 * power;
}

// From values to places on the paper.
class Axis {
 public:
  // Linear ones begin at 0. `base`: of a logarithmic one.
  Axis(double least, double most, std::optional<double> base, double from, double to)
      : base_(base), from_(from), to_(to) {
    if (base) {
      low_ = std::floor(std::log(least) / std::log(*base) + 1e-9);
      high_ = std::max(low_ + 1, std::ceil(std::log(most) / std::log(*base) - 1e-9));
    } else {
      step_ = NiceStep(most);
      high_ = std::ceil(most / step_ - 1e-9) * step_;
    }
  }

  bool Shows(double value) const { return !base_ || value > 0; }
  double Place(double value) const {
    const double at = base_ ? std::log(value) / std::log(*base_) : value;
    return from_ + (to_ - from_) * std::clamp((at - low_) / (high_ - low_), 0.0, 1.02);
  }
  std::vector<double> Ticks() const {
    std::vector<double> ticks;
    const double step = base_ ? std::max(1.0, std::ceil((high_ - low_) / 6)) : step_;
    const auto count = static_cast<int>((high_ - low_) / step + 1e-6);
    for (int i = 0; i <= count; ++i) {
      const double at = low_ + step * i;
      ticks.push_back(base_ ? std::pow(*base_, at) : at);
    }
    return ticks;
  }

 private:
  std::optional<double> base_;
  double from_, to_, low_ = 0, high_ = 1, step_ = 1;
};

std::string Text(double x, double y, const std::string& anchor, const std::string& text, const std::string& more = "") {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" %s>%s</text>\n", x, y, anchor, more,
                         Escaped(text));
}

std::string Line(double x1, double y1, double x2, double y2, const std::string& style) {
  return absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2, style);
}

std::string Begin(double width, double height, const std::string& title) {
  return absl::StrFormat(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" height=\"%g\" role=\"img\" "
             "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"%g\" height=\"%g\" fill=\"white\"/>\n",
             width, height, width, height, width, height) +
         Text(width / 2, 18, "middle", title, "font-size=\"13\" font-weight=\"bold\"");
}

constexpr char kGrid[] = "stroke=\"#ddd\"", kFrame[] = "stroke=\"#444\"";

// The frame of a chart: where its axes are.
struct Frame {
  double left = 62, top = 30, right = 0, bottom = 0;
};

std::string Axes(const Chart& chart, const Frame& frame, const Axis& x, const Axis& y) {
  std::string svg;
  for (const double tick : x.Ticks()) {
    svg += Line(x.Place(tick), frame.top, x.Place(tick), frame.bottom, kGrid);
    svg += Text(x.Place(tick), frame.bottom + 14, "middle", Short(tick));
  }
  for (const double tick : y.Ticks()) {
    svg += Line(frame.left, y.Place(tick), frame.right, y.Place(tick), kGrid);
    svg += Text(frame.left - 5, y.Place(tick) + 4, "end", Short(tick));
  }
  svg += Line(frame.left, frame.bottom, frame.right, frame.bottom, kFrame);
  svg += Line(frame.left, frame.top, frame.left, frame.bottom, kFrame);
  svg += Text((frame.left + frame.right) / 2, frame.bottom + 30, "middle", chart.x_label);
  const double middle = (frame.top + frame.bottom) / 2;
  return svg + Text(14, middle, "middle", chart.y_label, absl::StrFormat("transform=\"rotate(-90 14 %.1f)\"", middle));
}

std::string Stroke(const Series& series) {
  return absl::StrFormat("stroke=\"%s\" stroke-width=\"2\" fill=\"none\"%s", Colour(series.colour),
                         series.dashed ? " stroke-dasharray=\"6 4\"" : "");
}

std::string Drawn(const Series& series, const Axis& x, const Axis& y) {
  std::string path, marks;
  for (size_t i = 0; i < series.points.size(); ++i) {
    const auto& [at, value] = series.points[i];
    if (!x.Shows(at) || !y.Shows(value)) continue;
    const double left = x.Place(at), top = y.Place(value);
    absl::StrAppendFormat(&path, "%s%.1f %.1f", path.empty() ? "M" : "L", left, top);
    absl::StrAppendFormat(&marks, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%g\" fill=\"%s\"/>\n", left, top,
                          series.line ? 2.5 : 4.5, Colour(series.colour));
    if (i >= series.labels.size()) continue;
    const bool right = i % 2 == 0;  // by turns, for neighbours' sake
    marks += Text(left + (right ? 7 : -7), top + 4, right ? "start" : "end", series.labels[i]);
  }
  return (series.line ? absl::StrFormat("<path d=\"%s\" %s/>\n", path, Stroke(series)) : "") + marks;
}

constexpr double kLegendRow = 16;

std::string Legend(const std::vector<Series>& series, double top) {
  std::string svg;
  for (size_t i = 0; i < series.size(); ++i) {
    const double x = i % 2 == 0 ? 40 : 240, y = top + kLegendRow * std::floor(static_cast<double>(i) / 2);
    if (series[i].line) {
      svg += Line(x, y, x + 26, y, Stroke(series[i]));
    } else {
      absl::StrAppendFormat(&svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\" fill=\"%s\"/>\n", x + 13, y,
                            Colour(series[i].colour));
    }
    svg += Text(x + 32, y + 4, "start", series[i].name);
  }
  return svg;
}

}  // namespace

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string ToSvg(const Chart& chart) {
  constexpr double kWidth = 440, kPlot = 250;
  const Frame frame{.right = kWidth - 18, .bottom = 30 + kPlot};
  double x_least = 1e300, x_most = 0, y_least = 1e300, y_most = 0;
  for (const Series& series : chart.series) {
    for (const auto& [x, y] : series.points) {
      if (x > 0) x_least = std::min(x_least, x);
      if (y > 0) y_least = std::min(y_least, y);
      x_most = std::max(x_most, x);
      y_most = std::max(y_most, y);
    }
  }
  if (x_most <= 0 || y_most <= 0) x_most = y_most = x_least = y_least = 1;  // nothing to show
  const Axis x(x_least, x_most, chart.log_x ? std::optional<double>(2) : std::nullopt, frame.left, frame.right);
  const Axis y(y_least, chart.y_most.value_or(y_most), chart.log_y ? std::optional<double>(10) : std::nullopt,
               frame.bottom, frame.top);
  const double rows = std::ceil(static_cast<double>(chart.series.size()) / 2);
  std::string svg = Begin(kWidth, frame.bottom + 44 + kLegendRow * rows, chart.title) + Axes(chart, frame, x, y);
  for (const Series& series : chart.series) svg += Drawn(series, x, y);
  return svg + Legend(chart.series, frame.bottom + 48) + "</svg>\n";
}

std::string ToSvg(const Bars& bars) {
  constexpr double kWidth = 600, kRow = 20;
  const Frame frame{.left = 190, .right = kWidth - 110, .bottom = 30 + kRow * static_cast<double>(bars.bars.size())};
  double most = 0;
  for (const Bar& bar : bars.bars) most = std::max({most, bar.measured, bar.predicted.value_or(0)});
  const Axis x(0, most > 0 ? most : 1, std::nullopt, frame.left, frame.right);
  std::string svg = Begin(kWidth, frame.bottom + 62, bars.title);
  for (const double tick : x.Ticks()) {
    svg += Line(x.Place(tick), frame.top, x.Place(tick), frame.bottom, kGrid);
    svg += Text(x.Place(tick), frame.bottom + 14, "middle", Short(tick));
  }
  double top = frame.top;
  for (const Bar& bar : bars.bars) {
    absl::StrAppendFormat(&svg, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%g\" fill=\"%s\"/>\n", frame.left,
                          top + 3, x.Place(bar.measured) - frame.left, kRow - 7, Colour(bar.colour));
    svg += Text(frame.left - 6, top + 14, "end", bar.label);
    const double end = x.Place(std::max(bar.measured, bar.predicted.value_or(0)));
    const std::string number = bar.predicted ? absl::StrFormat("%.1f (%.1f)", bar.measured, *bar.predicted)
                                             : absl::StrFormat("%.1f", bar.measured);
    svg += Text(end + 6, top + 14, "start", number);
    if (bar.predicted) {
      const double at = x.Place(*bar.predicted);
      svg += Line(at, top + 1, at, top + kRow - 2, "stroke=\"#c00\" stroke-width=\"2.5\"");
    }
    top += kRow;
  }
  svg += Line(frame.left, frame.top, frame.left, frame.bottom, kFrame);
  svg += Text((frame.left + frame.right) / 2, frame.bottom + 32, "middle", bars.x_label);
  svg += Line(frame.left + 40, frame.bottom + 42, frame.left + 40, frame.bottom + 56,
              "stroke=\"#c00\" stroke-width=\"2.5\"");
  svg += Text(frame.left + 48, frame.bottom + 53, "start", "predicted, also in brackets; bars: measured");
  return svg + "</svg>\n";
}

}  // namespace gyre::bench
