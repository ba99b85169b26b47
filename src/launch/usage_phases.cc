#include "launch/usage_phases.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <utility>

namespace gyre::launch {

namespace {

constexpr size_t kShortestPhase = 3;   // samples of a phase
constexpr size_t kMostSamples = 4000;  // samples that are looked at one by one; of more, neighbours are taken together
constexpr double kParameters = 4;      // of a stretch: a mean, a line, and where it begins
constexpr double kCpuNoise = 0.05;     // processors: what is less is no change that matters
constexpr double kMemoryNoise = 0.01;  // of what is used at most, likewise
constexpr double kMadToDeviation = 1.4826;  // of a normal distribution

// One rank's, as sums since the start, at the ends of its rows.
struct Course {
  std::vector<double> times;
  std::vector<double> cpu_seconds;
  std::vector<double> memory;
  std::vector<double> gpu_seconds;
  std::vector<double> gpu_memory;
  std::vector<std::string> activities;
  double begin = 0;

  // Of `sums`: cpu_seconds or gpu_seconds.
  double SecondsAt(const std::vector<double>& sums, double time) const {
    const auto after = std::ranges::upper_bound(times, time);
    const auto i = static_cast<size_t>(after - times.begin());
    const double t0 = i == 0 ? begin : times[i - 1];
    const double c0 = i == 0 ? 0 : sums[i - 1];
    if (i == times.size() || time <= t0) return c0;
    return c0 + (sums[i] - c0) * (time - t0) / (times[i] - t0);
  }
  // As of the look that is nearest to `time`; nothing if its looks had ended by `since`, or have not begun at `time`.
  double MemoryAt(const std::vector<double>& bytes, double since, double time) const {
    if (time < begin || times.back() <= since) return 0;
    const auto after = std::ranges::lower_bound(times, time);
    const auto i = static_cast<size_t>(after - times.begin());
    if (i == times.size() || (i > 0 && time - times[i - 1] < times[i] - time)) return bytes[i - 1];
    return bytes[i];
  }
};

std::map<int, Course> Courses(std::span<const UsageRow> rows, int first, int last) {
  std::map<int, Course> courses;
  for (const UsageRow& row : rows) {
    if (row.rank < first || row.rank >= last) continue;
    // Nothing began before the job: what a first row says of that time is the guess at a host's clock. Nor can a rate
    // be told of a first row whose interval is lost in the rounding.
    const double begin = row.seconds - row.interval;
    if (!courses.contains(row.rank) && (begin < 0 || begin >= row.seconds)) continue;
    Course& course = courses[row.rank];
    if (course.times.empty()) course.begin = begin;
    if (!course.times.empty() && row.seconds <= course.times.back()) continue;  // clocks of hosts are guessed
    const double before = course.cpu_seconds.empty() ? 0 : course.cpu_seconds.back();
    course.times.push_back(row.seconds);
    course.cpu_seconds.push_back(before + row.cpus * row.interval);
    course.memory.push_back(row.memory);
    const double gpu_before = course.gpu_seconds.empty() ? 0 : course.gpu_seconds.back();
    course.gpu_seconds.push_back(gpu_before + row.gpus * row.interval);
    course.gpu_memory.push_back(row.gpu_memory);
    course.activities.push_back(row.activity);
  }
  return courses;
}

std::vector<UsageSample> Coarser(std::span<const UsageSample> samples, size_t together) {
  std::vector<UsageSample> coarse;
  for (size_t i = 0; i < samples.size(); i += together) {
    UsageSample sum = samples[i];
    double cpu_seconds = sum.cpus * sum.seconds();
    for (size_t j = i + 1; j < std::min(samples.size(), i + together); ++j) {
      cpu_seconds += samples[j].cpus * samples[j].seconds();
      sum.end = samples[j].end;
      sum.memory = samples[j].memory;
    }
    sum.cpus = cpu_seconds / std::max(sum.seconds(), 1e-9);
    coarse.push_back(sum);
  }
  return coarse;
}

// The standard deviation of the noise, from the median size of a difference of neighbours: steps hardly move that.
double Noise(const std::vector<double>& values) {
  std::vector<double> differences;
  for (size_t i = 1; i < values.size(); ++i) differences.push_back(std::abs(values[i] - values[i - 1]));
  const auto middle = differences.begin() + static_cast<ptrdiff_t>(differences.size() / 2);
  std::ranges::nth_element(differences, middle);
  return kMadToDeviation * *middle / std::numbers::sqrt2;
}

// Squared errors of any stretch in constant time, from sums since the beginning.
class Errors {
 public:
  explicit Errors(std::span<const UsageSample> samples) {
    std::vector<double> cpus;
    std::vector<double> memory;
    for (const UsageSample& sample : samples) {
      cpus.push_back(sample.cpus);
      memory.push_back(sample.memory);
    }
    const double most = std::ranges::max(memory);
    Normalise(cpus, std::max(Noise(cpus), kCpuNoise));
    Normalise(memory, std::max({Noise(memory), kMemoryNoise * most, 1.0}));
    for (size_t i = 0; i < samples.size(); ++i) {
      const auto x = static_cast<double>(i);
      const Sums& s = sums_.back();
      sums_.push_back({s.n + 1, s.c + cpus[i], s.cc + cpus[i] * cpus[i], s.m + memory[i], s.mm + memory[i] * memory[i],
                       s.xm + x * memory[i], s.x + x, s.xx + x * x});
    }
  }

  // Of the samples from `begin` to before `end`, of unit noise. The first one, in which the change lies, belongs to
  // what is before it as well, and counts for neither.
  double Of(size_t begin, size_t end) const { return Of(sums_[end] - sums_[First(begin)]); }

  // Of both stretches as one, still without the sample in which the second begins.
  double OfBoth(size_t begin, size_t middle, size_t end) const {
    return Of(sums_[middle] - sums_[First(begin)] + (sums_[end] - sums_[First(middle)]));
  }

 private:
  struct Sums {
    double n = 0, c = 0, cc = 0, m = 0, mm = 0, xm = 0, x = 0, xx = 0;

    Sums Plus(const Sums& o, double sign) const {
      return {n + sign * o.n,   c + sign * o.c,   cc + sign * o.cc, m + sign * o.m,
              mm + sign * o.mm, xm + sign * o.xm, x + sign * o.x,   xx + sign * o.xx};
    }
    Sums operator-(const Sums& o) const { return Plus(o, -1); }
    Sums operator+(const Sums& o) const { return Plus(o, 1); }
  };

  static size_t First(size_t begin) { return begin == 0 ? 0 : begin + 1; }

  static double Of(const Sums& s) {
    const double cpu = s.cc - s.c * s.c / s.n;
    const double sxx = s.xx - s.x * s.x / s.n;
    const double sxm = s.xm - s.x * s.m / s.n;
    const double smm = s.mm - s.m * s.m / s.n;
    const double line = sxx > 0 ? smm - sxm * sxm / sxx : smm;
    return std::max(0.0, cpu) + std::max(0.0, line);
  }

  static void Normalise(std::vector<double>& values, double unit) {
    double mean = 0;
    for (const double value : values) mean += value / static_cast<double>(values.size());
    for (double& value : values) value = (value - mean) / unit;
  }

  std::vector<Sums> sums_ = {{}};
};

// Takes away the points that only served to pass over a sample that is unlike its neighbours.
std::vector<size_t> WithoutSpikes(const Errors& errors, std::vector<size_t> points, size_t count, double penalty) {
  for (size_t i = 0; i < points.size();) {
    const size_t begin = i == 0 ? 0 : points[i - 1];
    const size_t end = i + 1 < points.size() ? points[i + 1] : count;
    const double apart = errors.Of(begin, points[i]) + errors.Of(points[i], end) + penalty;
    if (errors.OfBoth(begin, points[i], end) <= apart) {
      points.erase(points.begin() + static_cast<ptrdiff_t>(i));
      if (i > 0) --i;  // its neighbour has another stretch behind it now
    } else {
      ++i;
    }
  }
  return points;
}

std::vector<size_t> Pelt(const Errors& errors, size_t count) {
  const double penalty = kParameters * std::log(static_cast<double>(count));
  std::vector<double> best(count + 1, std::numeric_limits<double>::infinity());
  std::vector<size_t> from(count + 1, 0);
  std::vector<size_t> candidates = {0};
  best[0] = -penalty;
  for (size_t end = kShortestPhase; end <= count; ++end) {
    for (const size_t begin : candidates) {
      const double cost = best[begin] + errors.Of(begin, end) + penalty;
      if (cost < best[end]) best[end] = cost, from[end] = begin;
    }
    std::erase_if(candidates, [&](size_t begin) { return best[begin] + errors.Of(begin, end) > best[end]; });
    // Long enough from the next end on.
    if (end + 1 >= 2 * kShortestPhase) candidates.push_back(end + 1 - kShortestPhase);
  }
  std::vector<size_t> points;
  for (size_t end = from[count]; end > 0; end = from[end]) points.push_back(end);
  std::ranges::reverse(points);
  return WithoutSpikes(errors, std::move(points), count, penalty);
}

}  // namespace

std::vector<UsageSample> SumOfRanks(std::span<const UsageRow> rows, int first, int last) {
  const std::map<int, Course> courses = Courses(rows, first, last);
  std::vector<UsageSample> samples;
  if (courses.empty()) return samples;
  const Course& lead = courses.begin()->second;
  double begin = lead.begin;
  for (size_t i = 0; i < lead.times.size(); ++i) {
    UsageSample sample{.begin = begin, .end = lead.times[i], .activity = lead.activities[i]};
    for (const auto& [rank, course] : courses) {
      const auto busy = [&, &of = course](const std::vector<double>& sums) {
        return (of.SecondsAt(sums, sample.end) - of.SecondsAt(sums, begin)) / sample.seconds();
      };
      sample.cpus += busy(course.cpu_seconds);
      sample.gpus += busy(course.gpu_seconds);
      sample.memory += course.MemoryAt(course.memory, begin, sample.end);
      sample.gpu_memory += course.MemoryAt(course.gpu_memory, begin, sample.end);
    }
    begin = sample.end;
    samples.push_back(sample);
  }
  return samples;
}

std::vector<size_t> ChangePoints(std::span<const UsageSample> samples) {
  const size_t together = (samples.size() + kMostSamples - 1) / kMostSamples;
  if (samples.size() < 2 * kShortestPhase) return {};
  if (together <= 1) return Pelt(Errors(samples), samples.size());
  const std::vector<UsageSample> coarse = Coarser(samples, together);
  std::vector<size_t> points = ChangePoints(coarse);
  for (size_t& point : points) point *= together;
  return points;
}

std::vector<UsagePhase> FindPhases(std::span<const UsageSample> samples) {
  std::vector<UsagePhase> phases;
  const auto add = [&](size_t begin, size_t end) {
    phases.push_back(
        {samples[begin].begin,
         samples[end - 1].end,
         samples[begin].activity,
         {samples.begin() + static_cast<ptrdiff_t>(begin), samples.begin() + static_cast<ptrdiff_t>(end)}});
  };
  for (size_t begin = 0; begin < samples.size();) {
    size_t end = begin + 1;
    while (end < samples.size() && samples[end].activity == samples[begin].activity) ++end;
    if (samples[begin].activity.empty()) {
      const size_t stretch = begin;
      for (const size_t point : ChangePoints(samples.subspan(stretch, end - stretch))) {
        add(begin, stretch + point);
        begin = stretch + point;
      }
    }
    add(begin, end);
    begin = end;
  }
  return phases;
}

}  // namespace gyre::launch
