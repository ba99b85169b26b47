// WeightsOnGpu: what a DistributedOptimizer does with weights that are on a GPU. Updates are queued on the streams that
// weights were registered with; nothing waits for the GPU.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/log.h"
#include "device/gpu.h"
#include "gyre/optimizer.h"
#include "gyre/tensor.h"
#include "optimizer/optimizer_on_gpu.h"

namespace gyre::internal {

// Not thread-safe.
class WeightsOnGpu {
 public:
  struct Tensor {
    TensorView weights{};
    int64_t width = 0;      // of a row, where its results are rows
    bool velocity = false;  // its results are velocities: GradientReducer::carries_momentum
  };

  // The result of a step for a tensor, by its number: where the gradient was given.
  struct Result {
    size_t tensor = 0;
    ConstTensorView gradient{};
    std::optional<std::span<const int64_t>> rows = std::nullopt;  // those that `gradient` is of
  };

  // `timeout`: how long what has to wait for the GPU waits for it. Errors: OptimizerOnGpu::Create's.
  static absl::StatusOr<std::unique_ptr<WeightsOnGpu>> Create(std::shared_ptr<device::Gpu> gpu,
                                                              const OptimizerConfig& config,
                                                              std::vector<Tensor> tensors,
                                                              std::chrono::milliseconds timeout, Logger logger);
  ~WeightsOnGpu();
  WeightsOnGpu(const WeightsOnGpu&) = delete;
  WeightsOnGpu& operator=(const WeightsOnGpu&) = delete;

  // Results are read before what is queued from now on, on the streams that they were given on.
  absl::Status Update(std::span<const Result> results);

  absl::Status SetLearningRate(float learning_rate);
  float learning_rate() const { return own_->learning_rate(); }
  std::vector<std::byte> Save();  // nothing where that fails, which the log tells
  absl::Status Restore(std::span<const std::byte> state);

 private:
  WeightsOnGpu(std::shared_ptr<device::Gpu> gpu, std::vector<Tensor> tensors, std::chrono::milliseconds timeout,
               Logger logger);
  absl::Status Open(const OptimizerConfig& config);
  absl::Status LetGo(std::span<const Result> results);
  TimePoint deadline() const;

  const std::shared_ptr<device::Gpu> gpu_;
  const std::vector<Tensor> tensors_;
  const std::chrono::milliseconds timeout_;
  const Logger logger_;
  bool decays_ = false;
  std::unique_ptr<OptimizerOnGpu> own_;    // the config's; of velocities, their weight decay
  std::unique_ptr<OptimizerOnGpu> plain_;  // of velocities, if there are any: without momentum
  device::Gpu::Event read_ = nullptr;
};

}  // namespace gyre::internal
