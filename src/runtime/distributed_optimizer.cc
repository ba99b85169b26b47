#include "gyre/distributed_optimizer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/composition.h"

namespace gyre {

namespace {

absl::Status CheckForServers(const ReducerOptions& options) {
  const bool summed = options.op == ReduceOp::kSum || options.op == ReduceOp::kAverage;
  if (!summed || options.max_norm || options.skip_non_finite || options.accumulate != 1 || !options.plan.empty()) {
    return absl::InvalidArgumentError(
        "parameter servers take sums and averages, without max_norm, skip_non_finite, accumulate or plan");
  }
  return absl::OkStatus();
}

}  // namespace

struct DistributedOptimizer::Gathered {
  double scale = 1;  // of what is pushed
  std::mutex mutex;
  std::vector<bool> ready{};  // by index
};

absl::StatusOr<std::unique_ptr<DistributedOptimizer>> DistributedOptimizer::Create(Communicator& communicator,
                                                                                   const OptimizerConfig& config,
                                                                                   const ReducerOptions& options) {
  return Create(communicator, config, DistributedOptions{.reducer = options});
}

absl::StatusOr<std::unique_ptr<DistributedOptimizer>> DistributedOptimizer::Create(Communicator& communicator,
                                                                                   const OptimizerConfig& config,
                                                                                   const DistributedOptions& options) {
  const Strategy configured = communicator.state_->runtime().config().strategy.strategy;
  if (options.strategy.value_or(configured) == Strategy::kParameterServer) {
    return CreateForServers(communicator, config, options);
  }
  ASSIGN_OR_RETURN(auto reducer, GradientReducer::Create(communicator, options.reducer));
  return std::unique_ptr<DistributedOptimizer>(new DistributedOptimizer(communicator, config, std::move(reducer)));
}

DistributedOptimizer::DistributedOptimizer(Communicator& communicator, const OptimizerConfig& config,
                                           std::unique_ptr<GradientReducer> reducer)
    : communicator_(&communicator), config_(config), reducer_(std::move(reducer)) {}

DistributedOptimizer::~DistributedOptimizer() = default;

absl::StatusOr<std::unique_ptr<DistributedOptimizer>> DistributedOptimizer::CreateForServers(
    Communicator& communicator, const OptimizerConfig& config, const DistributedOptions& options) {
  RETURN_IF_ERROR(CheckForServers(options.reducer));
  ParameterServerOptions servers = options.servers;
  if (!servers.timeout) servers.timeout = options.reducer.timeout;
  std::unique_ptr<DistributedOptimizer> self(new DistributedOptimizer(communicator, config, nullptr));
  ASSIGN_OR_RETURN(self->servers_, ParameterServerClient::Create(communicator, config, servers));
  self->gathered_ = std::make_unique<Gathered>();
  self->gathered_->scale = options.reducer.prescale * options.reducer.postscale;
  // In kBsp servers average what is meant to be a sum.
  const bool averaged = self->servers_->consistency() == Consistency::kBsp;
  if (averaged && options.reducer.op == ReduceOp::kSum) self->gathered_->scale *= communicator.size();
  return self;
}

absl::StatusOr<int> DistributedOptimizer::Register(std::string_view name, std::span<float> weights) {
  if (servers_ != nullptr) {
    ASSIGN_OR_RETURN(const int index, servers_->Register(name, weights));
    registered_ = index + 1;
    return index;
  }
  const std::array<int64_t, 1> shape = {std::ssize(weights)};
  ASSIGN_OR_RETURN(const int index, reducer_->Register(name, shape));
  parameters_.push_back({.name = std::string(name), .index = index, .weights = weights});
  return index;
}

absl::Status DistributedOptimizer::Start() {
  if (servers_ != nullptr) return servers_->Start();
  std::vector<int64_t> counts;
  for (const Parameter& parameter : parameters_) counts.push_back(std::ssize(parameter.weights));
  ASSIGN_OR_RETURN(optimizer_, Optimizer::Create(config_, counts));
  RETURN_IF_ERROR(reducer_->Start());
  return BroadcastWeights();
}

// In the order of names, on which all ranks agree by now.
absl::Status DistributedOptimizer::BroadcastWeights() {
  std::vector<const Parameter*> by_name;
  for (const Parameter& parameter : parameters_) by_name.push_back(&parameter);
  std::ranges::sort(by_name, {}, [](const Parameter* parameter) { return parameter->name; });
  for (const Parameter* parameter : by_name) RETURN_IF_ERROR(communicator_->Broadcast(parameter->weights, 0));
  return absl::OkStatus();
}

std::span<float> DistributedOptimizer::gradient(int index) const {
  if (servers_ != nullptr) return servers_->gradient(index);
  const TensorView view = reducer_->gradient(index);
  return {static_cast<float*>(view.data), static_cast<size_t>(view.count)};
}

absl::Status DistributedOptimizer::Ready(int index) {
  if (servers_ == nullptr) return reducer_->Ready(index);
  std::lock_guard lock(gathered_->mutex);
  std::vector<bool>& ready = gathered_->ready;
  const auto place = static_cast<size_t>(index);
  if (index < 0) return absl::InvalidArgumentError(absl::StrCat("there is no parameter ", index));
  if (place >= ready.size()) ready.resize(place + 1);
  if (ready[place]) return absl::FailedPreconditionError(absl::StrCat("parameter ", index, " is ready already"));
  ready[place] = true;
  return absl::OkStatus();
}

absl::Status DistributedOptimizer::Ready(int index, std::span<float> gradient) {
  if (servers_ == nullptr) return reducer_->Ready(index, gradient);
  const std::span<float> own = servers_->gradient(index);
  if (own.size() != gradient.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a gradient of ", gradient.size(), " elements for parameter ", index, ", which has ", own.size()));
  }
  std::ranges::copy(gradient, own.begin());
  return Ready(index);
}

absl::Status DistributedOptimizer::Missing(int index) {
  if (servers_ == nullptr) return reducer_->Missing(index);
  std::ranges::fill(servers_->gradient(index), 0.0f);
  return Ready(index);
}

int64_t DistributedOptimizer::step() const {
  return servers_ != nullptr ? servers_->step() : steps_;
}

absl::Status DistributedOptimizer::SetLearningRate(float learning_rate) {
  return servers_ != nullptr ? servers_->SetLearningRate(learning_rate) : optimizer_->SetLearningRate(learning_rate);
}

float DistributedOptimizer::learning_rate() const {
  return servers_ != nullptr ? servers_->learning_rate() : optimizer_->learning_rate();
}

std::vector<std::byte> DistributedOptimizer::Save() const {
  return servers_ != nullptr ? std::vector<std::byte>() : optimizer_->Save();
}

absl::Status DistributedOptimizer::Restore(std::span<const std::byte> state) {
  if (servers_ == nullptr) return optimizer_->Restore(state);
  return absl::FailedPreconditionError("the parameter servers hold the optimizer's state");
}

absl::StatusOr<StepSummary> DistributedOptimizer::StepByServers() {
  const auto begin = std::chrono::steady_clock::now();
  StepSummary summary;
  {
    std::lock_guard lock(gathered_->mutex);
    gathered_->ready.resize(static_cast<size_t>(registered_));
    const auto absent = std::ranges::find(gathered_->ready, false);
    if (absent != gathered_->ready.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("parameter ", absent - gathered_->ready.begin(), " is neither ready nor missing"));
    }
    gathered_->ready.assign(gathered_->ready.size(), false);
  }
  const auto scale = static_cast<float>(gathered_->scale);
  for (int index = 0; index < registered_; ++index) {
    const std::span<float> gradient = servers_->gradient(index);
    summary.bytes += static_cast<int64_t>(gradient.size_bytes());
    if (scale == 1) continue;
    for (float& value : gradient) value *= scale;
  }
  RETURN_IF_ERROR(servers_->PushPull());
  summary.step = servers_->step();
  summary.exposed_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return summary;
}

absl::StatusOr<StepSummary> DistributedOptimizer::Step() {
  if (servers_ != nullptr) return StepByServers();
  ASSIGN_OR_RETURN(const StepSummary summary, reducer_->Wait());
  if (!summary.reduced || summary.skipped) return summary;
  ++steps_;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    const TensorView result = reducer_->result(parameter.index);
    const std::span<const float> gradient(static_cast<const float*>(result.data), static_cast<size_t>(result.count));
    RETURN_IF_ERROR(optimizer_->Step(static_cast<int>(i), parameter.weights, gradient));
  }
  return summary;
}

}  // namespace gyre
