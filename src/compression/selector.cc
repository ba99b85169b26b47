#include "compression/selector.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
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
  return 1.25 * wanted + 4 * std::sqrt(wanted) + 4;
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
  cut_ = false;
  for (int64_t at = 0; at < count;) {
    const PassResult result = AccumulateAndSelect(arrays, at, count, threshold, found_);
    non_finite += result.non_finite;
    at = result.end;
    if (at == count) break;
    cut_ = true;
    threshold = std::max(threshold, Cut(arrays, k));
  }
  return non_finite;
}

// The key of the k-th largest candidate: a histogram finds its bin, and a partial sort its place there. Candidates lie
// mostly within a factor of two above the smallest, which the bins divide by 2048.
uint32_t Selector::KthKey(int64_t k) {
  constexpr uint32_t kBins = 8192, kShift = 12;
  const auto count = static_cast<size_t>(found_.count);
  uint32_t least = UINT32_MAX;
  for (size_t i = 0; i < count; ++i) least = std::min(least, Key(velocities_[i]));
  const auto bin_of = [least](float value) { return std::min((Key(value) - least) >> kShift, kBins - 1); };
  bins_.assign(kBins, 0);
  for (size_t i = 0; i < count; ++i) ++bins_[bin_of(velocities_[i])];
  uint32_t bin = kBins - 1;
  int64_t larger = 0;
  while (larger + bins_[bin] < k) larger += bins_[bin--];
  keys_.clear();
  for (size_t i = 0; i < count; ++i) {
    if (bin_of(velocities_[i]) == bin) keys_.push_back(Key(velocities_[i]));
  }
  const auto kth = keys_.begin() + static_cast<ptrdiff_t>(k - larger - 1);
  std::ranges::nth_element(keys_, kth, std::greater<>());
  return *kth;
}

// Keeps the k largest candidates, puts the others back, and returns the smallest kept (of equal ones those at lower
// positions are kept; so what comes later, at higher positions, must be larger than it).
float Selector::Cut(const Accumulation& arrays, int64_t k) {
  const auto count = static_cast<size_t>(found_.count);
  if (count == 0) return 0;
  const uint32_t least = KthKey(std::min(k, found_.count));
  int64_t larger = 0;
  for (size_t i = 0; i < count; ++i) larger += Key(velocities_[i]) > least ? 1 : 0;
  int64_t ties = std::min(k, found_.count) - larger;
  rejected_.resize(count);
  size_t kept = 0, rejected = 0;
  for (size_t i = 0; i < count; ++i) {  // without branches: which it is, is anyone's guess
    const uint32_t key = Key(velocities_[i]);
    const bool tie = key == least, keep = key > least || (tie && ties > 0);
    ties -= tie ? 1 : 0;
    rejected_[rejected] = {indices_[i], velocities_[i], momenta_.empty() ? 0 : momenta_[i]};
    rejected += keep ? 0 : 1;
    indices_[kept] = indices_[i];
    velocities_[kept] = velocities_[i];
    if (!momenta_.empty()) momenta_[kept] = momenta_[i];
    kept += keep ? 1 : 0;
  }
  for (size_t i = 0; i < rejected; ++i) {
    arrays.velocity[rejected_[i].index] = rejected_[i].velocity;
    if (arrays.momentum != nullptr) arrays.momentum[rejected_[i].index] = rejected_[i].momentum;
  }
  found_.count = static_cast<int64_t>(kept);
  return std::bit_cast<float>(least);
}

// Adds the `missing` largest of what is left. All of them are smaller than what was found.
void Selector::Rescan(const Accumulation& arrays, int64_t count, int64_t missing) {
  Selector rest;
  Accumulation left = arrays;
  left.gradient = nullptr;
  rest.Reserve(4 * missing + kCandidateSlack, arrays.momentum != nullptr);
  for (float threshold = 0.5f * threshold_;; threshold *= 0.25f) {
    if (threshold < 0.01f * threshold_) threshold = 0;
    const float begin = threshold;
    rest.Pass(left, count, missing, threshold);
    rest.Cut(left, missing);
    if (begin == 0 || rest.found_.count == missing) break;
    rest.PutBack(left);
  }
  const auto had = static_cast<size_t>(found_.count), added = static_cast<size_t>(rest.found_.count);
  Reserve(static_cast<int64_t>(had + added), arrays.momentum != nullptr);
  std::copy_n(rest.indices_.begin(), added, indices_.begin() + static_cast<ptrdiff_t>(had));
  std::copy_n(rest.velocities_.begin(), added, velocities_.begin() + static_cast<ptrdiff_t>(had));
  if (!momenta_.empty()) std::copy_n(rest.momenta_.begin(), added, momenta_.begin() + static_cast<ptrdiff_t>(had));
  found_.count = static_cast<int64_t>(had + added);
  SortByPosition(had);
}

// So that nothing was picked out.
void Selector::PutBack(const Accumulation& arrays) {
  for (int64_t i = 0; i < found_.count; ++i) {
    arrays.velocity[indices_[static_cast<size_t>(i)]] = velocities_[static_cast<size_t>(i)];
    if (arrays.momentum != nullptr) {
      arrays.momentum[indices_[static_cast<size_t>(i)]] = momenta_[static_cast<size_t>(i)];
    }
  }
  found_.count = 0;
}

// Both parts ascend already.
void Selector::SortByPosition(size_t first_part) {
  const auto count = static_cast<size_t>(found_.count);
  std::vector<uint32_t> indices(count);
  std::vector<float> velocities(count), momenta(momenta_.empty() ? 0 : count);
  size_t a = 0, b = first_part;
  for (size_t i = 0; i < count; ++i) {
    const bool first = b == count || (a < first_part && indices_[a] < indices_[b]);
    const size_t from = first ? a++ : b++;
    indices[i] = indices_[from];
    velocities[i] = velocities_[from];
    if (!momenta.empty()) momenta[i] = momenta_[from];
  }
  std::ranges::copy(indices, indices_.begin());
  std::ranges::copy(momenta, momenta_.begin());
  std::ranges::copy(velocities, velocities_.begin());
}

// The number of elements above x falls about as a power of x near the k-th value; its exponent shows in how many were
// above the last threshold. And the k-th value moves on as it has just moved, or less (at first v grows from step to
// step, ever more slowly). After a threshold that was too high the next ones keep more distance.
void Selector::Guess(int64_t seen, int64_t k, float kth) {
  if (!(kth > 0) || !std::isfinite(kth)) {
    threshold_ = previous_ = 0;
    return;
  }
  double growth = previous_ > 0 ? std::clamp(kth / static_cast<double>(previous_), 0.5, 2.0) : 1;
  if (growth > 1) growth = 1 + 0.8 * (growth - 1);
  const double more = std::log(static_cast<double>(std::max<int64_t>(seen, 1)) / static_cast<double>(k));
  if (threshold_ > 0) {
    const double farther = std::log(kth / static_cast<double>(threshold_));
    if (more * farther > 0) exponent_ += 0.3 * (std::clamp(more / farther, 2.0, 100.0) - exponent_);
    caution_ = seen < k ? std::min(1.5 * caution_, 2.0) : std::max(0.98 * caution_, 1.0);
  }
  previous_ = kth;
  const double guess = kth * growth * std::pow(static_cast<double>(k) / (caution_ * Aim(k)), 1 / exponent_);
  // Finite: a rescan's thresholds could not fall from infinity.
  threshold_ = static_cast<float>(std::min<double>(std::numeric_limits<float>::max(), guess));
}

Selector::Result Selector::SelectLargest(const Accumulation& arrays, int64_t count, int64_t k) {
  Reserve(4 * k + kCandidateSlack, arrays.momentum != nullptr);
  Result result;
  float threshold = threshold_;
  result.non_finite = Pass(arrays, count, k, threshold);
  // Where candidates were cut on the way, nobody counted how many there were.
  const int64_t seen = threshold > threshold_ ? 4 * k : found_.count;
  if (found_.count < k && threshold_ > 0) {
    result.rescanned = true;
    Rescan(arrays, count, k - found_.count);
  }
  const float kth = Cut(arrays, k);
  if (found_.count < k) {  // all that is not 0 was picked
    threshold_ = previous_ = 0;
    return result;
  }
  Guess(seen, k, kth);
  return result;
}

Selector::Result Selector::SelectAbove(const Accumulation& arrays, int64_t count, int64_t k, float threshold) {
  Reserve(2 * k, arrays.momentum != nullptr);
  Result result;
  result.non_finite = Pass(arrays, count, k, threshold);
  if (cut_ || found_.count > 2 * k) Cut(arrays, k);
  return result;
}

}  // namespace gyre::compression
