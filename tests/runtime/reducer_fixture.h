// What the tests of GradientReducer train on: made-up gradients whose sums are exact in every dtype.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fusion/plan.h"
#include "gtest/gtest.h"
#include "gyre/reducer.h"
#include "gyre/runtime.h"
#include "support/job.h"
#include "support/ranks.h"
#include "support/status_matchers.h"

namespace gyre::support {

struct Parameter {
  std::vector<int64_t> shape;
  DType dtype = DType::kF32;

  int64_t count() const {
    int64_t count = 1;
    for (const int64_t dimension : shape) count *= dimension;
    return count;
  }
};

// Odd sizes, none and one element, several dtypes, some small and some with a call of their own.
inline std::vector<Parameter> MixedParameters() {
  return {{{3, 5}}, {{0}},        {{}},        {{1000}, DType::kBF16}, {{200, 701}}, {{17}, DType::kF64},
          {{129}},  {{4097, 31}}, {{2, 0, 3}}, {{33}, DType::kF16},    {{262'147}},  {{1}, DType::kBF16}};
}

// A small integer that depends on everything.
inline double ValueOf(int rank, size_t parameter, int64_t element, int64_t step) {
  return static_cast<double>((rank * 7 + static_cast<int64_t>(parameter) * 3 + element * 5 + step * 11) % 13 - 6);
}

inline double Load(const TensorView& view, int64_t i) {
  switch (view.dtype) {
    case DType::kF64: return static_cast<double*>(view.data)[i];
    case DType::kF16: return static_cast<float>(static_cast<Float16*>(view.data)[i]);
    case DType::kBF16: return static_cast<float>(static_cast<BFloat16*>(view.data)[i]);
    default: return static_cast<float*>(view.data)[i];
  }
}

inline void Store(const TensorView& view, int64_t i, double value) {
  switch (view.dtype) {
    case DType::kF64: static_cast<double*>(view.data)[i] = value; break;
    case DType::kF16: static_cast<Float16*>(view.data)[i] = Float16(static_cast<float>(value)); break;
    case DType::kBF16: static_cast<BFloat16*>(view.data)[i] = BFloat16(static_cast<float>(value)); break;
    default: static_cast<float*>(view.data)[i] = static_cast<float>(value); break;
  }
}

// In the order of parameters, in buckets of so many bytes, or one tensor.
inline fusion::SavedPlan PlanOf(const std::vector<Parameter>& parameters, int64_t bytes) {
  std::vector<fusion::TensorInfo> tensors;
  std::vector<int> order;
  for (const Parameter& each : parameters) {
    order.push_back(static_cast<int>(tensors.size()));
    tensors.push_back({absl::StrCat("layer", order.back()), each.count(), each.dtype});
  }
  return {tensors, PlanBySize(tensors, order, bytes)};
}

// Of three parameters, in buckets of their own, the first one, of more than 64,032 elements, in three slices around the
// others; the last one has no elements.
inline fusion::SavedPlan Sliced(const std::vector<Parameter>& parameters) {
  fusion::SavedPlan saved = PlanOf(parameters, 1);
  saved.plan.turns = {{0, 0, 32}, {1, 0, saved.plan.buckets[1].count}, {0, 32, 64'000}, {2, 0, 0}};
  saved.plan.turns.push_back({0, 64'032, saved.plan.buckets[0].count - 64'032});
  return saved;
}

// A rank with a runtime, a reducer, and parameters registered in an order of its own.
struct Trainer {
  Rank rank;
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<GradientReducer> reducer;
  std::vector<Parameter> parameters;
  std::vector<int> index;                      // by parameter: the reducer's
  std::vector<std::vector<std::byte>> memory;  // by parameter: the program's own
  std::mt19937_64 random;

  Trainer(const Rank& which, std::vector<Parameter> what) : rank(which), parameters(std::move(what)) {
    random.seed(static_cast<uint64_t>(rank.rank) + 1);
  }

  // In memory of its own, which is not aligned to more than its dtype.
  TensorView own(size_t p) {
    const auto element = static_cast<size_t>(DTypeSize(parameters[p].dtype));
    return {memory[p].data() + element, parameters[p].count(), parameters[p].dtype};
  }
  TensorView shared(size_t p) const { return reducer->gradient(index[p]); }

  absl::Status Start(const ReducerOptions& options) { return StartIn(JoinJob(rank), options); }

  absl::Status StartIn(std::unique_ptr<Runtime> joined, const ReducerOptions& options) {
    runtime = std::move(joined);
    if (runtime == nullptr) return absl::InternalError("no runtime");
    auto created = GradientReducer::Create(runtime->world(), options);
    if (!created.ok()) return created.status();
    reducer = *std::move(created);
    index.resize(parameters.size());
    for (const size_t p : Shuffled()) {
      const auto added = reducer->Register(absl::StrCat("layer", p), parameters[p].shape, parameters[p].dtype);
      if (!added.ok()) return added.status();
      index[p] = *added;
    }
    for (const Parameter& p : parameters) {
      memory.emplace_back(static_cast<size_t>((p.count() + 1) * DTypeSize(p.dtype)));
    }
    return reducer->Start();
  }

  std::vector<size_t> Shuffled() {
    std::vector<size_t> order(parameters.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    return order;
  }

  void Fill(const TensorView& view, size_t p, int64_t step) const {
    for (int64_t i = 0; i < view.count; ++i) Store(view, i, ValueOf(rank, p, i, step));
  }

  // Makes a gradient ready: in shared memory, or in its own.
  absl::Status Give(size_t p, int64_t step, bool in_own) {
    Fill(in_own ? own(p) : shared(p), p, step);
    return in_own ? reducer->Ready(index[p], own(p)) : reducer->Ready(index[p]);
  }

  // The result is the sum over ranks times `scale`; ranks for which `gave` is false contributed nothing.
  template <typename Gave>
  void ExpectSum(const TensorView& view, size_t p, int64_t step, double scale, Gave&& gave) const {
    for (int64_t i = 0; i < view.count; ++i) {
      double sum = 0;
      for (int r = 0; r < rank.size; ++r) sum += gave(r) ? ValueOf(r, p, i, step) : 0;
      ASSERT_EQ(Load(view, i), sum * scale) << "parameter " << p << ", element " << i << ", step " << step;
    }
  }
  void ExpectSum(const TensorView& view, size_t p, int64_t step, double scale) const {
    ExpectSum(view, p, step, scale, [](int) { return true; });
  }
};

}  // namespace gyre::support
