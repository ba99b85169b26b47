#include "compression/global_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

namespace gyre::compression {

namespace {

// How many sums of an owner are at least as large as each of its points.
std::array<int64_t, kTailPoints> TailRanks(int64_t wanted, int owners) {
  const double first = std::max(1.0, static_cast<double>(wanted) / (4.0 * owners));
  const double step = std::pow(std::max(1.0, static_cast<double>(wanted) / first), 1.0 / (kTailPoints - 1));
  std::array<int64_t, kTailPoints> ranks;
  for (int i = 0; i < kTailPoints; ++i) {
    ranks[static_cast<size_t>(i)] = std::min<int64_t>(wanted, std::llround(first * std::pow(step, i)));
  }
  ranks.back() = wanted;
  return ranks;
}

}  // namespace

std::vector<float> TailPoints(std::span<float> magnitudes, int64_t wanted, int owners) {
  std::vector<float> points(kTailPoints, 0.0f);
  const auto ranks = TailRanks(wanted, owners);
  // From the last point on: those before it are among what is larger.
  for (size_t i = points.size(); i-- > 0;) {
    if (ranks[i] > std::ssize(magnitudes)) continue;
    const auto at = magnitudes.begin() + (ranks[i] - 1);
    std::ranges::nth_element(magnitudes, at, std::greater<>());
    points[i] = *at;
    magnitudes = magnitudes.first(static_cast<size_t>(ranks[i]));
  }
  return points;
}

// Between two points of an owner half of its sums are taken for as large as the one, half as the other. Numbers of sums
// are counted twice, so that they are whole.
float GlobalThreshold(std::span<const float> points, int64_t wanted) {
  const auto owners = static_cast<int>(points.size() / kTailPoints);
  const auto ranks = TailRanks(wanted, std::max(owners, 1));
  std::vector<std::pair<float, int64_t>> sums;
  for (; points.size() >= kTailPoints; points = points.subspan(kTailPoints)) {
    int64_t counted = 0;
    for (size_t i = 0; i < kTailPoints && points[i] > 0; ++i) {
      const bool more = i + 1 < kTailPoints && points[i + 1] > 0;
      const int64_t up_to = ranks[i] + (more ? ranks[i + 1] : ranks[i]);
      sums.emplace_back(points[i], up_to - counted);
      counted = up_to;
    }
  }
  std::ranges::sort(sums, std::greater<>());
  int64_t larger = 0;
  for (const auto& [magnitude, twice] : sums) {
    larger += twice;
    if (larger >= 2 * wanted) return std::nextafter(magnitude, 0.0f);  // itself included
  }
  return 0;
}

}  // namespace gyre::compression
