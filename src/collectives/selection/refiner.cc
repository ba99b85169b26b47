#include "collectives/selection/refiner.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace gyre::internal {

namespace {

constexpr uint64_t kFirst = 16, kPeriod = 4096;  // calls

// A transfer teaches about what makes up so much of its time.
constexpr double kNearlyAll = 0.8;

// What is right within this factor stays; and no more than this is corrected at once.
constexpr double kRight = 2, kMostCorrection = 16;

enum Kind : size_t { kLatency, kBandwidth };

// Whether all ranks are through at about the same time, which is the one predicted.
bool IsEven(Algorithm algorithm, int hosts) {
  if (algorithm == Algorithm::kRing || algorithm == Algorithm::kCirculant) return true;
  const bool folds = algorithm == Algorithm::kRecursiveDoubling || algorithm == Algorithm::kHalvingDoubling;
  return folds && std::has_single_bit(static_cast<unsigned>(hosts));
}

}  // namespace

Refiner::Refiner(std::shared_ptr<Selector> start) : on_(start->may_be_refined()), selector_(std::move(start)) {}

bool Refiner::Due(uint64_t call) const {
  return on_ && call >= kFirst && (std::has_single_bit(call) || call % kPeriod == 0);
}

void Refiner::Record(const Transfer& transfer, double seconds) {
  if (!IsEven(transfer.algorithm, transfer.hosts)) return;
  ++looks_;
  const auto predict = [&](int64_t bytes) {
    return selector_->Predict(transfer.operation, transfer.algorithm, bytes, transfer.hosts, transfer.rails);
  };
  const double whole = predict(transfer.bytes), latency = predict(0);
  if (!std::isfinite(whole) || latency <= 0 || latency > whole) return;
  if (latency >= kNearlyAll * whole && ratios_[kLatency].size() < kMost) {
    ratios_[kLatency].push_back((seconds - (whole - latency)) / latency);
  }
  if (latency <= (1 - kNearlyAll) * whole && ratios_[kBandwidth].size() < kMost) {
    ratios_[kBandwidth].push_back((seconds - latency) / (whole - latency));
  }
}

Refiner::Lessons Refiner::Offer() const {
  Lessons lessons = {kNothing, kNothing};
  for (size_t kind = 0; kind < lessons.size(); ++kind) {
    if (ratios_[kind].size() < kFewest) continue;
    std::array<double, kMost> sorted{};
    const auto end = std::ranges::copy(ratios_[kind], sorted.begin()).out;
    std::sort(sorted.begin(), end);
    const auto quartile = sorted.begin() + static_cast<int64_t>(ratios_[kind].size() / 4);
    lessons[kind] = std::clamp(*quartile, 1 / kMostCorrection, kMostCorrection);
  }
  return lessons;
}

void Refiner::Adopt(const Lessons& agreed) {
  PathModel model = selector_->model();
  const auto wrong = [&](Kind kind) {
    return agreed[kind] != kNothing && (agreed[kind] > kRight || agreed[kind] < 1 / kRight);
  };
  if (wrong(kLatency)) model.latency *= agreed[kLatency];
  if (wrong(kBandwidth)) model.bytes_per_second /= agreed[kBandwidth];
  if (wrong(kLatency) || wrong(kBandwidth)) selector_ = std::make_shared<Selector>(model);
  for (std::vector<double>& ratios : ratios_) ratios.clear();
  looks_ = 0;
}

}  // namespace gyre::internal
