// The picture that gyrerun recommend --plot draws: SVG, without a library.
#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launch/recommend.h"

namespace gyre::launch {

namespace {

constexpr double kLeft = 70;  // of the curves, in pixels
constexpr double kWidth = 820;
constexpr double kHeight = 180;
constexpr std::array<const char*, 4> kBands = {"#e8f1fa", "#fdf0dc", "#e6f4e6", "#f6e6f2"};

// One of the two charts.
struct Chart {
  double top;
  const char* title;
  double unit;  // what the values are divided by
  double most;  // of the values
  double begin, end;

  double X(double time) const { return kLeft + kWidth * (time - begin) / std::max(end - begin, 1e-9); }
  double Y(double value) const { return top + kHeight * (1 - value / std::max(most, 1e-9)); }
};

std::string Bands(const Chart& chart, const std::vector<UsagePhase>& phases) {
  std::string text;
  for (size_t i = 0; i < phases.size(); ++i) {
    const double x = chart.X(phases[i].begin);
    absl::StrAppendFormat(&text, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.0f\" fill=\"%s\"/>\n", x,
                          chart.top, chart.X(phases[i].end) - x, kHeight, kBands[i % kBands.size()]);
    // An activity has nothing that XML would take for something else (IsActivity).
    absl::StrAppendFormat(&text, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + 3, chart.top + 12, phases[i].activity);
  }
  return text;
}

std::string Curve(const Chart& chart, const std::vector<UsagePhase>& phases, bool cpus) {
  std::string points;
  for (const UsagePhase& phase : phases) {
    for (const UsageSample& sample : phase.samples) {
      const double y = chart.Y(cpus ? sample.cpus : sample.memory);
      absl::StrAppendFormat(&points, "%.1f,%.1f %.1f,%.1f ", chart.X(sample.begin), y, chart.X(sample.end), y);
    }
  }
  return absl::StrCat("<polyline fill=\"none\" stroke=\"#1f5fa8\" points=\"", points, "\"/>\n");
}

std::string ChartFrame(const Chart& chart, double requested) {
  return absl::StrFormat(
      "<rect x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\" fill=\"none\" stroke=\"#888\"/>\n"
      "<text x=\"%.0f\" y=\"%.0f\">%s</text>\n<text x=\"5\" y=\"%.1f\">%.4g</text>\n<text x=\"5\" y=\"%.1f\">0</text>\n"
      "<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#b03030\" stroke-dasharray=\"5 4\"/>\n"
      "<text x=\"5\" y=\"%.1f\" fill=\"#b03030\">%.4g</text>\n",
      kLeft, chart.top, kWidth, kHeight, kLeft, chart.top - 6, chart.title, chart.top + 10, chart.most / chart.unit,
      chart.top + kHeight, kLeft, kLeft + kWidth, chart.Y(requested), chart.Y(requested), chart.Y(requested) + 4,
      requested / chart.unit);
}

}  // namespace

std::string UsagePlot(const std::vector<UsagePhase>& phases, double requested_cpus, double requested_memory) {
  const double begin = phases.empty() ? 0 : phases.front().begin;
  const double end = phases.empty() ? 1 : phases.back().end;
  Chart cpus{30, "CPUs (dashed: requested)", 1, requested_cpus * 1.1, begin, end};
  Chart memory{270, "memory, MiB (dashed: requested)", kMiB, requested_memory * 1.1, begin, end};
  for (const UsagePhase& phase : phases) {
    cpus.most = std::max(cpus.most, SummarizeCpus(phase.samples).peak * 1.1);
    memory.most = std::max(memory.most, SummarizeMemory(phase.samples).peak * 1.1);
  }
  std::string text =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"910\" height=\"490\" font-family=\"sans-serif\" "
      "font-size=\"11\">\n<rect width=\"910\" height=\"490\" fill=\"white\"/>\n";
  absl::StrAppend(&text, Bands(cpus, phases), Curve(cpus, phases, true), ChartFrame(cpus, requested_cpus));
  absl::StrAppend(&text, Bands(memory, phases), Curve(memory, phases, false), ChartFrame(memory, requested_memory));
  absl::StrAppendFormat(&text,
                        "<text x=\"%.0f\" y=\"470\">%.1f s</text>\n<text x=\"%.0f\" y=\"470\">%.1f s</text>\n</svg>\n",
                        kLeft, begin, kLeft + kWidth - 40, end);
  return text;
}

}  // namespace gyre::launch
