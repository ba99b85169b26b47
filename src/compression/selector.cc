#include "compression/selector.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace gyre::compression {

namespace {

// The magnitude's bits: their order is that of magnitudes.
uint32_t Key(float value) {
  return std::bit_cast<uint32_t>(value) & 0x7fffffffu;
}

// How many candidates to aim at: enough that chance leaves fewer than k about never.
double Aim(int64_t k) {
  const auto wanted = static_cast<double>(k);
  return 1.15 * wanted + 4 * std::sqrt(wanted) + 4;
}

}  // namespace

void Selector::Reserve(int64_t capacity, bool momentum) {
  const auto places = static_cast<size_t>(capacity + kCandidateSlack);
  if (indices_.size() < places) {
    indices_.resize(places);
    velocities_.resize(places);
  }
  if (momentum && momenta_.size() < places) momenta_.resize(places);
  found_ = {indices_.data(), velocities_.data(), momenta_.data(), 0, static_cast<int64_t>(indices_.size())};
}

int64_t Selector::Pass(const Accumulation& arrays, int64_t count, int64_t k, float& threshold) {
  int64_t non_finite = 0;
  for (int64_t at = 0; at < count;) {
    const PassResult result = AccumulateAndSelect(arrays, at, count, threshold, found_);
    non_finite += result.non_finite;
    at = result.end;
    if (at < count) threshold = std::max(threshold, Cut(arrays, k));
  }
  return non_finite;
}

// Keeps the k largest candidates, puts the others back, and returns the smallest kept (of equal ones those at lower
// positions are kept; so what comes later, at higher positions, must be larger than it).
float Selector::Cut(const Accumulation& arrays, int64_t k) {
  const auto count = static_cast<size_t>(found_.count), kept = static_cast<size_t>(std::min(k, found_.count));
  if (kept == 0) return 0;
  keys_.resize(count);
  for (size_t i = 0; i < count; ++i) keys_[i] = Key(velocities_[i]);
  const auto kth = keys_.begin() + static_cast<ptrdiff_t>(kept - 1);
  std::ranges::nth_element(keys_, kth, std::greater<>());
  const uint32_t least = *kth;
  auto ties =
      static_cast<int64_t>(kept) - std::count_if(keys_.begin(), kth, [least](uint32_t key) { return key > least; });
  size_t to = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t key = Key(velocities_[i]);
    if (key > least || (key == least && ties-- > 0)) {
      indices_[to] = indices_[i];
      velocities_[to] = velocities_[i];
      if (arrays.momentum != nullptr) momenta_[to] = momenta_[i];
      ++to;
    } else {
      arrays.velocity[indices_[i]] = velocities_[i];
      if (arrays.momentum != nullptr) arrays.momentum[indices_[i]] = momenta_[i];
    }
  }
  found_.count = static_cast<int64_t>(to);
  return std::bit_cast<float>(least);
}

// Adds the `missing` largest of what is left. All of them are smaller than what was found.
void Selector::Rescan(const Accumulation& arrays, int64_t count, int64_t missing) {
  Selector rest;
  Accumulation left = arrays;
  left.gradient = nullptr;
  rest.Reserve(4 * missing + kCandidateSlack, arrays.momentum != nullptr);
  float threshold = 0;
  rest.Pass(left, count, missing, threshold);
  rest.Cut(left, missing);
  const auto had = static_cast<size_t>(found_.count), added = static_cast<size_t>(rest.found_.count);
  Reserve(static_cast<int64_t>(had + added), arrays.momentum != nullptr);
  std::copy_n(rest.indices_.begin(), added, indices_.begin() + static_cast<ptrdiff_t>(had));
  std::copy_n(rest.velocities_.begin(), added, velocities_.begin() + static_cast<ptrdiff_t>(had));
  found_.count = static_cast<int64_t>(had + added);
  SortByPosition(had);
}

// Both parts ascend already. What u was is no longer needed.
void Selector::SortByPosition(size_t first_part) {
  const auto count = static_cast<size_t>(found_.count);
  std::vector<uint32_t> indices(count);
  std::vector<float> velocities(count);
  size_t a = 0, b = first_part;
  for (size_t i = 0; i < count; ++i) {
    const bool first = b == count || (a < first_part && indices_[a] < indices_[b]);
    const size_t from = first ? a++ : b++;
    indices[i] = indices_[from];
    velocities[i] = velocities_[from];
  }
  std::ranges::copy(indices, indices_.begin());
  std::ranges::copy(velocities, velocities_.begin());
}

// The number above a threshold changes about as its -10th power where DGC cuts (a normal distribution at 0.1 %: -12,
// exponential: -7); so its tenth root corrects.
void Selector::Guess(int64_t seen, int64_t k, float kth) {
  const double off = static_cast<double>(std::max<int64_t>(seen, 1)) / Aim(k);
  const double root = std::clamp(std::pow(off, 0.1), 0.8, 1.25);
  correction_ = std::clamp(static_cast<float>(correction_ * root), 0.25f, 1.0f);
  threshold_ = std::isfinite(kth) ? kth * correction_ : 0;
}

Selector::Result Selector::SelectLargest(const Accumulation& arrays, int64_t count, int64_t k) {
  Reserve(4 * k + kCandidateSlack, arrays.momentum != nullptr);
  Result result;
  const float begin = threshold_;
  float threshold = begin;
  result.non_finite = Pass(arrays, count, k, threshold);
  const bool cut = threshold > begin;
  const int64_t seen = cut ? 4 * k : found_.count;
  if (found_.count < k && begin > 0) {
    result.rescanned = true;
    Rescan(arrays, count, k - found_.count);
  }
  const float kth = Cut(arrays, k);
  if (begin > 0) return Guess(seen, k, kth), result;
  Guess(std::llround(Aim(k)), k, kth);
  return result;
}

Selector::Result Selector::SelectAbove(const Accumulation& arrays, int64_t count, int64_t k, float threshold) {
  Reserve(2 * k, arrays.momentum != nullptr);
  Result result;
  result.non_finite = Pass(arrays, count, k, threshold);
  if (found_.count > 2 * k) Cut(arrays, k);
  return result;
}

}  // namespace gyre::compression
