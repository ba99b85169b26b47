#include "gyre/distributed_optimizer.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/process_mark.h"
#include "base/status.h"
#include "runtime/composition.h"
#include "runtime/momentum_correction.h"
#include "runtime/reducer_agreement.h"
#include "runtime/server_training.h"
#include "runtime/weights_on_gpu.h"

namespace gyre {

namespace {

TensorView ViewOf(std::span<float> values, const Device& device) {
  return {values.data(), std::ssize(values), DType::kF32, device};
}

}  // namespace

absl::StatusOr<std::unique_ptr<DistributedOptimizer>> DistributedOptimizer::Create(Communicator& communicator,
                                                                                   const OptimizerConfig& config,
                                                                                   const ReducerOptions& options) {
  return Create(communicator, config, DistributedOptions{.reducer = options});
}

absl::StatusOr<std::unique_ptr<DistributedOptimizer>> DistributedOptimizer::Create(Communicator& communicator,
                                                                                   const OptimizerConfig& config,
                                                                                   const DistributedOptions& options) {
  const Config& environment = communicator.state_->runtime().config();
  const Strategy configured = environment.strategy.strategy;
  const std::chrono::milliseconds timeout = options.reducer.timeout.value_or(environment.operation_timeout);
  std::unique_ptr<GradientReducer> reducer;
  std::unique_ptr<internal::ServerTraining> servers;
  if (options.strategy.value_or(configured) == Strategy::kParameterServer) {
    ASSIGN_OR_RETURN(servers, internal::ServerTraining::Create(communicator, config, options.reducer, options.servers));
  } else {
    ASSIGN_OR_RETURN(reducer, GradientReducer::Create(communicator, options.reducer));
    const Compression compression = reducer->compression();
    if (const auto* dgc = std::get_if<Dgc>(&compression)) RETURN_IF_ERROR(internal::CheckTakesOver(*dgc, config));
  }
  return std::unique_ptr<DistributedOptimizer>(
      new DistributedOptimizer(communicator, config, timeout, std::move(reducer), std::move(servers)));
}

DistributedOptimizer::DistributedOptimizer(Communicator& communicator, const OptimizerConfig& config,
                                           std::chrono::milliseconds timeout, std::unique_ptr<GradientReducer> reducer,
                                           std::unique_ptr<internal::ServerTraining> servers)
    : communicator_(&communicator),
      config_(config),
      timeout_(timeout),
      reducer_(std::move(reducer)),
      servers_(std::move(servers)) {}

// The other members see for themselves whether they are in a forked child.
DistributedOptimizer::~DistributedOptimizer() {
  if (on_gpu_ != nullptr && reducer_->communicator().state_->process().forked()) {
    KeepUntilExit(std::shared_ptr<void>(std::move(on_gpu_)));
  }
}

absl::StatusOr<int> DistributedOptimizer::Register(std::string_view name, std::span<float> weights) {
  const std::array<int64_t, 1> shape = {std::ssize(weights)};
  return Register(name, weights, shape);
}

absl::StatusOr<int> DistributedOptimizer::Register(std::string_view name, std::span<float> weights,
                                                   std::span<const int64_t> shape, const Device& device) {
  const double count = std::accumulate(shape.begin(), shape.end(), 1.0, std::multiplies<>());
  if (count != static_cast<double>(weights.size())) {
    return absl::InvalidArgumentError(absl::StrCat("weights \"", absl::CHexEscape(ToAbsl(name)), "\" are ",
                                                   weights.size(), ", their shape has ", count, " elements"));
  }
  if (servers_ != nullptr) return servers_->Register(name, weights, shape, device);
  ASSIGN_OR_RETURN(const int index, reducer_->Register(name, shape, DType::kF32, device));
  parameters_.push_back({.name = std::string(name), .index = index, .weights = weights, .device = device});
  return index;
}

absl::StatusOr<int> DistributedOptimizer::RegisterRows(std::string_view name, std::span<float> weights, int64_t rows,
                                                       const Device& device) {
  if (servers_ != nullptr) {
    return absl::InvalidArgumentError(
        "parameter servers take no gradients as rows of weights: they have tables, by servers()->RegisterTable");
  }
  const int64_t count = std::ssize(weights);
  if (rows < 0 || (rows == 0 ? count != 0 : count % rows != 0)) {
    return absl::InvalidArgumentError(absl::StrCat("parameter \"", absl::CHexEscape(ToAbsl(name)), "\" has ", count,
                                                   " weights, which are not ", rows, " rows"));
  }
  const std::array<int64_t, 2> shape = {rows, rows > 0 ? count / rows : 0};
  ASSIGN_OR_RETURN(const int index, reducer_->RegisterRows(name, shape, DType::kF32, device));
  parameters_.push_back(
      {.name = std::string(name), .index = index, .weights = weights, .rows = rows, .device = device});
  return index;
}

ParameterServerClient* DistributedOptimizer::servers() {
  return servers_ != nullptr ? &servers_->client() : nullptr;
}

absl::Status DistributedOptimizer::Start() {
  if (servers_ != nullptr) return servers_->Start();
  RETURN_IF_ERROR(Optimizer::Create(config_, {}).status());
  RETURN_IF_ERROR(reducer_->Start());
  RETURN_IF_ERROR(MakeOptimizers());
  return BroadcastWeights();
}

absl::Status DistributedOptimizer::MakeOnGpu() {
  internal::RuntimeState& runtime = communicator_->state_->runtime();
  ASSIGN_OR_RETURN(const internal::OpenedGpu opened, runtime.gpus().Get(parameters_[0].device.gpu));
  std::vector<internal::WeightsOnGpu::Tensor> tensors;
  for (const Parameter& parameter : parameters_) {
    const int64_t rows = parameter.rows.value_or(0);
    tensors.push_back({.weights = ViewOf(parameter.weights, parameter.device),
                       .width = rows > 0 ? std::ssize(parameter.weights) / rows : 0,
                       .velocity = reducer_->carries_momentum(parameter.index)});
  }
  ASSIGN_OR_RETURN(on_gpu_,
                   internal::WeightsOnGpu::Create(opened.gpu, config_, std::move(tensors), timeout_, runtime.logger()));
  return absl::OkStatus();
}

// Which results are velocities is known by now. All ranks' weights are on GPUs or none: the reducer has seen to that.
absl::Status DistributedOptimizer::MakeOptimizers() {
  if (!parameters_.empty() && parameters_[0].device.on_gpu()) {
    return internal::AgreeOnSuccess(*communicator_, MakeOnGpu(), {.timeout = timeout_});
  }
  const internal::MomentumOf rule = internal::MomentumIn(config_);
  std::vector<int64_t> counts, plain;
  bool any = false;
  for (const Parameter& parameter : parameters_) {
    const bool velocity = reducer_->carries_momentum(parameter.index);
    const int64_t count = std::ssize(parameter.weights);
    any = any || velocity;
    counts.push_back(velocity && rule.weight_decay == 0 ? 0 : count);
    plain.push_back(velocity ? count : 0);
  }
  ASSIGN_OR_RETURN(optimizer_, Optimizer::Create(config_, counts));
  if (!any) return absl::OkStatus();
  ASSIGN_OR_RETURN(plain_, Optimizer::Create(Sgd{.learning_rate = optimizer_->learning_rate()}, plain));
  if (rule.weight_decay != 0) zeros_.resize(static_cast<size_t>(*std::ranges::max_element(plain)));
  return absl::OkStatus();
}

absl::Status DistributedOptimizer::SetLearningRate(float learning_rate) {
  if (servers_ != nullptr) return servers_->client().SetLearningRate(learning_rate);
  if (on_gpu_ != nullptr) return on_gpu_->SetLearningRate(learning_rate);
  RETURN_IF_ERROR(optimizer_->SetLearningRate(learning_rate));
  return plain_ ? plain_->SetLearningRate(learning_rate) : absl::OkStatus();
}

// In the order of names, on which all ranks agree by now. By the reducer's communicator, which takes tensors on GPUs
// under every GYRE_BACKEND, and has one of NCCL's for its steps anyway.
absl::Status DistributedOptimizer::BroadcastWeights() {
  std::vector<const Parameter*> by_name;
  for (const Parameter& parameter : parameters_) by_name.push_back(&parameter);
  std::ranges::sort(by_name, {}, [](const Parameter* parameter) { return parameter->name; });
  for (const Parameter* parameter : by_name) {
    RETURN_IF_ERROR(reducer_->communicator().Broadcast(ViewOf(parameter->weights, parameter->device), 0));
  }
  return absl::OkStatus();
}

std::span<float> DistributedOptimizer::gradient(int index) const {
  if (servers_ != nullptr) return servers_->client().gradient(index);
  const TensorView view = reducer_->gradient(index);
  return {static_cast<float*>(view.data), static_cast<size_t>(view.count)};
}

absl::Status DistributedOptimizer::Ready(int index) {
  return servers_ != nullptr ? servers_->Ready(index) : reducer_->Ready(index);
}

absl::Status DistributedOptimizer::Ready(int index, std::span<float> gradient, const Device& device) {
  return servers_ != nullptr ? servers_->ReadyCopy(index, gradient, device)
                             : reducer_->Ready(index, ViewOf(gradient, device));
}

absl::Status DistributedOptimizer::ReadyRows(int index, std::span<const int64_t> rows, ConstTensorView values) {
  if (servers_ != nullptr) return absl::InvalidArgumentError("parameter servers take no gradients as rows");
  return reducer_->ReadyRows(index, rows, values);
}

absl::Status DistributedOptimizer::Missing(int index) {
  return servers_ != nullptr ? servers_->Missing(index) : reducer_->Missing(index);
}

int64_t DistributedOptimizer::step() const {
  return servers_ != nullptr ? servers_->client().step() : steps_;
}

float DistributedOptimizer::learning_rate() const {
  if (servers_ != nullptr) return servers_->client().learning_rate();
  return on_gpu_ != nullptr ? on_gpu_->learning_rate() : optimizer_->learning_rate();
}

std::vector<std::byte> DistributedOptimizer::Save() const {
  if (servers_ != nullptr) return {};
  return on_gpu_ != nullptr ? on_gpu_->Save() : optimizer_->Save();
}

absl::Status DistributedOptimizer::Restore(std::span<const std::byte> state) {
  if (on_gpu_ != nullptr) return on_gpu_->Restore(state);
  if (servers_ == nullptr) return optimizer_->Restore(state);
  return absl::FailedPreconditionError("the parameter servers hold the optimizer's state");
}

absl::StatusOr<StepSummary> DistributedOptimizer::Step() {
  if (servers_ != nullptr) return servers_->Step();
  ASSIGN_OR_RETURN(const StepSummary summary, reducer_->Wait());
  if (!summary.reduced || summary.skipped) return summary;
  ++steps_;
  std::vector<size_t> rest;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!std::exchange(parameters_[i].updated, false)) rest.push_back(i);
  }
  RETURN_IF_ERROR(Update(rest));
  return summary;
}

absl::StatusOr<bool> DistributedOptimizer::StepOne(int index) {
  if (servers_ != nullptr) return absl::FailedPreconditionError("parameter servers update all weights: call Step");
  const std::optional<size_t> parameter = Find(index);
  if (!parameter && index >= 0 && index < reducer_->size()) {
    return absl::FailedPreconditionError(absl::StrCat("gradient ", index, " has no weights here"));
  }
  ASSIGN_OR_RETURN(const bool update, reducer_->WaitFor(index));
  if (!update || parameters_[*parameter].updated) return false;
  RETURN_IF_ERROR(Update(std::span(&*parameter, 1)));
  parameters_[*parameter].updated = true;
  return true;
}

// Indices rise in the order of registration.
std::optional<size_t> DistributedOptimizer::Find(int index) const {
  const auto found = std::ranges::lower_bound(parameters_, index, {}, &Parameter::index);
  if (found == parameters_.end() || found->index != index) return std::nullopt;
  return static_cast<size_t>(found - parameters_.begin());
}

absl::Status DistributedOptimizer::Update(std::span<const size_t> parameters) {
  if (on_gpu_ == nullptr) {
    for (const size_t i : parameters) RETURN_IF_ERROR(UpdateOnHost(i));
    return absl::OkStatus();
  }
  std::vector<internal::WeightsOnGpu::Result> results;
  for (const size_t i : parameters) {
    const Parameter& parameter = parameters_[i];
    if (parameter.rows) {
      const RowsView result = reducer_->result_rows(parameter.index);
      results.push_back({i, result.values, result.rows});
    } else {
      results.push_back({i, reducer_->result(parameter.index)});
    }
  }
  return on_gpu_->Update(results);
}

absl::Status DistributedOptimizer::UpdateOnHost(size_t i) {
  const Parameter& parameter = parameters_[i];
  const auto buffer = static_cast<int>(i);
  if (parameter.rows) {
    return optimizer_->StepRows(buffer, parameter.weights, *parameter.rows, reducer_->result_rows(parameter.index));
  }
  const TensorView result = reducer_->result(parameter.index);
  const std::span<const float> given(static_cast<const float*>(result.data), static_cast<size_t>(result.count));
  if (!plain_ || !reducer_->carries_momentum(parameter.index)) {
    return optimizer_->Step(buffer, parameter.weights, given);
  }
  // The rules are linear in gradient and weight decay: the velocity has the one, here is the other.
  if (!zeros_.empty()) {
    RETURN_IF_ERROR(optimizer_->Step(buffer, parameter.weights, std::span(zeros_).first(given.size())));
  }
  return plain_->Step(buffer, parameter.weights, given);
}

}  // namespace gyre
