#include "runtime/host_gradients.h"

#include <algorithm>
#include <numeric>

namespace gyre::internal {

void HostGradients::Begin(const ExchangePart& part) {
  part_ = &part;
  stage_ = Stage::kAgree;
}

std::optional<Call> HostGradients::Next() {
  if (stage_ == Stage::kAgree) {
    stage_ = Stage::kTakeOver;
    if (!agreed_) {
      agreed_ = true;
      any_handed_ = handed_.empty() ? 0.0f : 1.0f;
      const TensorView flag{&any_handed_, 1, DType::kF32};
      return Call{.kind = CallKind::kAllReduce, .in = flag, .out = flag, .op = ReduceOp::kMax};
    }
  }
  if (stage_ == Stage::kTakeOver) {
    if (any_handed_ > 0) AddHanded();
    if (auto call = reduction_.Next()) return call;
    TakeOver();
    AddGradients();
    stage_ = Stage::kReduce;
  }
  return reduction_.Next();
}

void HostGradients::AddHanded() {
  any_handed_ = 0;
  HandOver();
  for (auto& arrays : handed_) {
    for (auto& array : arrays) reduction_.Add(array.span());
  }
}

// Nothing, if nothing was handed over.
void HostGradients::TakeOver() {
  for (size_t i = 0; i < handed_.size(); ++i) {
    const auto own = encoder_.ArraysOf(static_cast<int>(i));
    for (size_t k = 0; k < handed_[i].size(); ++k) {
      const std::span<float> whole = handed_[i][k].span();
      const auto piece = pieces_.Of(std::ssize(whole), pieces_.local(settings_.rank));
      std::ranges::copy(piece.of(whole), own[k].begin());
    }
  }
  handed_.clear();
}

void HostGradients::AddGradients() {
  packed_.clear();
  for (int piece = 0; piece < pieces_.pieces(); ++piece) {
    encoder_.ForEachPlain(*part_, piece, [this](size_t, std::span<float> values) {
      packed_.insert(packed_.end(), values.begin(), values.end());
    });
  }
  if (!packed_.empty()) reduction_.Add(packed_, encoder_.PlainTotals(*part_));
  for (size_t i = 0; i < part_->tensors.size(); ++i) {
    if (!encoder_.goes_plain(*part_, i)) reduction_.Add(part_->values[i]);
  }
}

std::vector<float> HostGradients::TakePlain() {
  const std::vector<int64_t> totals = encoder_.PlainTotals(*part_);
  const auto local = pieces_.local(settings_.rank);
  if (local >= std::ssize(totals)) return {};
  const auto begin = packed_.begin() + std::accumulate(totals.begin(), totals.begin() + local, int64_t{0});
  return {begin, begin + totals[static_cast<size_t>(local)]};
}

std::vector<compression::StateArrays> HostGradients::HandOver() {
  const size_t tensors = settings_.tensors.size();
  const bool before = !handed_.empty();
  handed_.resize(tensors);
  std::vector<compression::StateArrays> all;
  for (size_t i = 0; i < tensors; ++i) {
    const int64_t count = settings_.tensors[i].count;
    for (const std::span<float> own : encoder_.ArraysOf(static_cast<int>(i))) {
      if (before) break;
      const std::span<float> whole = handed_[i].emplace_back(count).span();
      std::ranges::copy(own, pieces_.Of(count, pieces_.local(settings_.rank)).of(whole).begin());
      std::ranges::fill(own, 0.0f);
    }
    if (handed_[i].empty()) continue;
    all.emplace_back();
    for (auto& array : handed_[i]) all.back().push_back(array.span());
  }
  return all;
}

}  // namespace gyre::internal
