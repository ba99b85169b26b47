// A program that trains on a GPU, as tests of reducers have it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/gpu_fixture.h"
#include "runtime/reducer_fixture.h"

namespace gyre::support {

inline std::vector<Parameter> SomeParameters() {
  return {{{3, 5}}, {{0}}, {{}}, {{1000}, DType::kBF16}, {{20, 71}}, {{17}, DType::kF64}, {{33}, DType::kF16}};
}

// A program that has two streams: every other parameter is registered on each, and given on the other one where it is
// given in memory of the program's own.
class GpuTrainer {
 public:
  GpuTrainer(GpuRank& rank, std::vector<Parameter> parameters) : rank_(rank), parameters_(std::move(parameters)) {
    other_ = *rank_.gpu->CreateStream();
  }
  ~GpuTrainer() {
    reducer.reset();
    own_.clear();
    rank_.gpu->DestroyStream(other_);
  }
  GpuTrainer(const GpuTrainer&) = delete;
  GpuTrainer& operator=(const GpuTrainer&) = delete;

  absl::Status Start(const ReducerOptions& options) {
    auto created = GradientReducer::Create(rank_.world(), options);
    if (!created.ok()) return created.status();
    reducer = *std::move(created);
    for (size_t p = 0; p < parameters_.size(); ++p) {
      const Parameter& parameter = parameters_[p];
      const auto added = reducer->Register(absl::StrCat("p", p), parameter.shape, parameter.dtype, device(p));
      if (!added.ok()) return added.status();
      own_.push_back(rank_.Tensor(parameter.dtype, parameter.count(), device(p + 1).stream));
    }
    return reducer->Start();
  }

  size_t size() const { return parameters_.size(); }
  const Parameter& parameter(size_t p) const { return parameters_[p]; }
  Device device(size_t p) const { return rank_.on(p % 2 == 0 ? rank_.stream : other_); }
  TensorView own(size_t p) const { return own_[p].view; }
  TensorView home(size_t p) const { return reducer->gradient(static_cast<int>(p)); }

  // The step's gradient, as a kernel would write it, given in memory of the program's own or at home.
  absl::Status Give(size_t p, int64_t step, bool in_own) {
    if (in_own) return GiveIn(p, step, own(p));
    Write(p, step, home(p));
    return reducer->Ready(static_cast<int>(p));
  }

  // Some at home, some in memory of the program's own.
  absl::Status GiveAll(int64_t step) {
    for (size_t p = size(); p-- > 0;) {
      if (absl::Status given = Give(p, step, p % 3 != 1); !given.ok()) return given;
    }
    return absl::OkStatus();
  }

  // The error of the first step that does not end well: ranks on other hosts have to hear of it first.
  absl::Status FirstFailure(int64_t step) {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    absl::Status status;
    for (; status.ok() && std::chrono::steady_clock::now() < patience; ++step) {
      status = GiveAll(step);
      if (status.ok()) status = reducer->Wait().status();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return status;
  }

  absl::Status GiveIn(size_t p, int64_t step, const TensorView& view) {
    Write(p, step, view);
    return reducer->Ready(static_cast<int>(p), view);
  }

  // Queues a copy of the result, as an optimizer would read it; compared by Compare.
  void Expect(size_t p, double scale, const std::vector<int64_t>& steps) {
    const TensorView result = reducer->result(static_cast<int>(p));
    std::vector<std::byte>& bytes = NewBytes(result.bytes());
    rank_.Get(result, bytes.data());
    expected_.push_back({p, scale, steps, {bytes.data(), result.count, result.dtype}});
  }

  void Compare() {
    rank_.Settle(rank_.stream);
    rank_.Settle(other_);
    for (const Expected& each : expected_) {
      for (int64_t i = 0; i < each.got.count; ++i) {
        double sum = 0;
        for (int r = 0; r < rank_.rank.size; ++r) {
          for (const int64_t step : each.steps) sum += ValueOf(r, each.parameter, i, step);
        }
        ASSERT_EQ(Load(each.got, i), sum * each.scale) << "parameter " << each.parameter << ", element " << i;
      }
    }
    expected_.clear();
  }

  std::unique_ptr<GradientReducer> reducer;

 private:
  struct Expected {
    size_t parameter;
    double scale;
    std::vector<int64_t> steps;
    TensorView got;
  };

  void Write(size_t p, int64_t step, const TensorView& view) {
    std::vector<std::byte>& bytes = NewBytes(view.bytes());
    const TensorView host(bytes.data(), view.count, view.dtype);
    for (int64_t i = 0; i < view.count; ++i) Store(host, i, ValueOf(rank_.rank.rank, p, i, step));
    rank_.Put(view, bytes.data());
  }

  std::vector<std::byte>& NewBytes(int64_t bytes) {
    return *kept_.emplace_back(std::make_unique<std::vector<std::byte>>(static_cast<size_t>(bytes)));
  }

  GpuRank& rank_;
  const std::vector<Parameter> parameters_;
  void* other_ = nullptr;
  std::vector<GpuRank::Memory> own_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> kept_;
  std::vector<Expected> expected_;
};

}  // namespace gyre::support
