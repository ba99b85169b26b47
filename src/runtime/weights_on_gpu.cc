#include "runtime/weights_on_gpu.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/momentum_correction.h"

namespace gyre::internal {

absl::StatusOr<std::unique_ptr<WeightsOnGpu>> WeightsOnGpu::Create(std::shared_ptr<device::Gpu> gpu,
                                                                   const OptimizerConfig& config,
                                                                   std::vector<Tensor> tensors,
                                                                   std::chrono::milliseconds timeout, Logger logger) {
  std::unique_ptr<WeightsOnGpu> weights(
      new WeightsOnGpu(std::move(gpu), std::move(tensors), timeout, std::move(logger)));
  RETURN_IF_ERROR(weights->Open(config));
  return weights;
}

WeightsOnGpu::WeightsOnGpu(std::shared_ptr<device::Gpu> gpu, std::vector<Tensor> tensors,
                           std::chrono::milliseconds timeout, Logger logger)
    : gpu_(std::move(gpu)), tensors_(std::move(tensors)), timeout_(timeout), logger_(std::move(logger)) {}

WeightsOnGpu::~WeightsOnGpu() {
  if (read_ != nullptr) gpu_->DestroyEvent(read_);
}

TimePoint WeightsOnGpu::deadline() const {
  return DeadlineAfter(std::chrono::steady_clock::now(), timeout_);
}

absl::Status WeightsOnGpu::Open(const OptimizerConfig& config) {
  ASSIGN_OR_RETURN(read_, gpu_->CreateEvent());
  decays_ = MomentumIn(config).weight_decay != 0;
  std::vector<OptimizerOnGpu::Buffer> own, plain;
  bool any = false;
  for (const auto& [weights, width, velocity] : tensors_) {
    any = any || velocity;
    own.push_back({.count = velocity && !decays_ ? 0 : weights.count, .stream = weights.device.stream});
    plain.push_back({.count = velocity ? weights.count : 0, .stream = weights.device.stream});
  }
  ASSIGN_OR_RETURN(own_, OptimizerOnGpu::Create(gpu_, config, own, deadline()));
  if (!any) return absl::OkStatus();
  const Sgd without{.learning_rate = own_->learning_rate()};
  ASSIGN_OR_RETURN(plain_, OptimizerOnGpu::Create(gpu_, without, plain, deadline()));
  return absl::OkStatus();
}

// The rules are linear in gradient and weight decay: a velocity has the one, and the other is added here.
absl::Status WeightsOnGpu::Update(std::span<const Result> results) {
  std::vector<OptimizerOnGpu::Update> own, plain;
  for (const auto& [number, gradient, rows] : results) {
    const Tensor& tensor = tensors_[number];
    auto* const weights = static_cast<float*>(tensor.weights.data);
    const auto* const given = static_cast<const float*>(gradient.data);
    if (!tensor.velocity || decays_) {
      own.push_back({number, weights, tensor.velocity ? nullptr : given, rows, tensor.width});
    }
    if (tensor.velocity) plain.push_back({number, weights, given, rows, tensor.width});
  }
  RETURN_IF_ERROR(own_->Step(own));
  if (plain_ != nullptr) RETURN_IF_ERROR(plain_->Step(plain));
  return LetGo(results);
}

// A gradient may have been given on another stream than its weights', on which it is written anew.
absl::Status WeightsOnGpu::LetGo(std::span<const Result> results) {
  std::set<std::pair<device::Gpu::Stream, device::Gpu::Stream>> pairs;
  for (const Result& result : results) {
    device::Gpu::Stream const reads = tensors_[result.tensor].weights.device.stream;
    device::Gpu::Stream const writes = result.gradient.device.stream;
    if (writes != reads) pairs.emplace(reads, writes);
  }
  for (const auto& [reads, writes] : pairs) {
    RETURN_IF_ERROR(gpu_->Record(read_, reads));
    RETURN_IF_ERROR(gpu_->Wait(writes, read_));
  }
  return absl::OkStatus();
}

absl::Status WeightsOnGpu::SetLearningRate(float learning_rate) {
  RETURN_IF_ERROR(own_->SetLearningRate(learning_rate));
  return plain_ != nullptr ? plain_->SetLearningRate(learning_rate) : absl::OkStatus();
}

std::vector<std::byte> WeightsOnGpu::Save() {
  auto saved = own_->Save(deadline());
  if (saved.ok()) return *std::move(saved);
  logger_.Error(absl::StrCat("the optimizer's state was not saved: ", saved.status().ToString()));
  return {};
}

absl::Status WeightsOnGpu::Restore(std::span<const std::byte> state) {
  return own_->Restore(state, deadline());
}

}  // namespace gyre::internal
