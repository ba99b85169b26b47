#include "gyre/distributed_optimizer.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre {

absl::StatusOr<std::unique_ptr<DistributedOptimizer>> DistributedOptimizer::Create(Communicator& communicator,
                                                                                   const OptimizerConfig& config,
                                                                                   const ReducerOptions& options) {
  ASSIGN_OR_RETURN(auto reducer, GradientReducer::Create(communicator, options));
  return std::unique_ptr<DistributedOptimizer>(new DistributedOptimizer(communicator, config, std::move(reducer)));
}

DistributedOptimizer::DistributedOptimizer(Communicator& communicator, const OptimizerConfig& config,
                                           std::unique_ptr<GradientReducer> reducer)
    : communicator_(&communicator), config_(config), reducer_(std::move(reducer)) {}

absl::StatusOr<int> DistributedOptimizer::Register(std::string_view name, std::span<float> weights) {
  const std::array<int64_t, 1> shape = {std::ssize(weights)};
  ASSIGN_OR_RETURN(const int index, reducer_->Register(name, shape));
  parameters_.push_back({.name = std::string(name), .index = index, .weights = weights});
  return index;
}

absl::StatusOr<int> DistributedOptimizer::RegisterRows(std::string_view name, std::span<float> weights, int64_t rows) {
  const int64_t count = std::ssize(weights);
  if (rows < 0 || (rows == 0 ? count != 0 : count % rows != 0)) {
    return absl::InvalidArgumentError(absl::StrCat("parameter \"", absl::CHexEscape(ToAbsl(name)), "\" has ", count,
                                                   " weights, which are not ", rows, " rows"));
  }
  const std::array<int64_t, 2> shape = {rows, rows > 0 ? count / rows : 0};
  ASSIGN_OR_RETURN(const int index, reducer_->RegisterRows(name, shape));
  parameters_.push_back({.name = std::string(name), .index = index, .weights = weights, .rows = rows});
  return index;
}

absl::Status DistributedOptimizer::Start() {
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
  const TensorView view = reducer_->gradient(index);
  return {static_cast<float*>(view.data), static_cast<size_t>(view.count)};
}

absl::StatusOr<StepSummary> DistributedOptimizer::Step() {
  ASSIGN_OR_RETURN(const StepSummary summary, reducer_->Wait());
  if (!summary.reduced || summary.skipped) return summary;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    if (parameter.rows) {
      RETURN_IF_ERROR(optimizer_->StepRows(static_cast<int>(i), parameter.weights, *parameter.rows,
                                           reducer_->result_rows(parameter.index)));
      continue;
    }
    const TensorView result = reducer_->result(parameter.index);
    const std::span<const float> gradient(static_cast<const float*>(result.data), static_cast<size_t>(result.count));
    RETURN_IF_ERROR(optimizer_->Step(static_cast<int>(i), parameter.weights, gradient));
  }
  return summary;
}

}  // namespace gyre
