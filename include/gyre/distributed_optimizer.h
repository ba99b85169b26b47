// DistributedOptimizer: an Optimizer on every rank, fed with gradients that a GradientReducer has averaged over all of
// them: replicas that start with the same weights keep the same weights, bit by bit.
//
//   ASSIGN_OR_RETURN(auto optimizer, gyre::DistributedOptimizer::Create(runtime->world(), gyre::Momentum{}));
//   for (Parameter& p : parameters) ASSIGN_OR_RETURN(p.index, optimizer->Register(p.name, p.weights));
//   RETURN_IF_ERROR(optimizer->Start());                     // all ranks now have rank 0's weights
//   for (Parameter& p : parameters) p.gradient = optimizer->gradient(p.index);
//   for each step:
//     the backward pass fills gradients, last layer first, and calls optimizer->Ready(p.index) after each
//     RETURN_IF_ERROR(optimizer->Step().status());           // waits for the averages and updates the weights
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gyre/communicator.h"
#include "gyre/export.h"
#include "gyre/optimizer.h"
#include "gyre/options.h"
#include "gyre/parameter_server.h"
#include "gyre/reducer.h"

namespace gyre {

// With Strategy::kParameterServer the same program trains through parameter servers (gyre/parameter_server.h): weights
// are those of the servers, Step pushes and pulls. Of ReducerOptions op, prescale, postscale and timeout count (kSum
// and scales: of a step's gradients in kBsp, of each one otherwise); max_norm, skip_non_finite, accumulate and plan are
// kInvalidArgument. No call is collective then, and what is said below of averages is what servers make of gradients.
struct DistributedOptions {
  std::optional<Strategy> strategy = std::nullopt;  // default: GYRE_STRATEGY, or kAllreduce
  ReducerOptions reducer = {};
  ParameterServerOptions servers = {};  // of kParameterServer
};

// Threads, blocking and errors are GradientReducer's, or ParameterServerClient's, where nothing else is said.
class GYRE_EXPORT DistributedOptimizer {
 public:
  // Collective over `communicator`, which must live until Start has returned.
  static absl::StatusOr<std::unique_ptr<DistributedOptimizer>> Create(Communicator& communicator,
                                                                      const OptimizerConfig& config,
                                                                      const ReducerOptions& options = {});
  static absl::StatusOr<std::unique_ptr<DistributedOptimizer>> Create(Communicator& communicator,
                                                                      const OptimizerConfig& config,
                                                                      const DistributedOptions& options);
  ~DistributedOptimizer();
  DistributedOptimizer(const DistributedOptimizer&) = delete;
  DistributedOptimizer& operator=(const DistributedOptimizer&) = delete;

  Strategy strategy() const { return servers_ == nullptr ? Strategy::kAllreduce : Strategy::kParameterServer; }

  // Before Start. The weights stay the program's, must live as long as this object, and may not move. Returns the
  // index, which is the reducer's.
  absl::StatusOr<int> Register(std::string_view name, std::span<float> weights);

  // Before Start, more can be registered with the reducer itself: it is reduced along with the gradients, and nothing
  // is updated from it. REQUIRES: strategy() is kAllreduce
  GradientReducer& reducer() { return *reducer_; }

  // Collective: agrees on the parameters (GradientReducer::Start) and gives all ranks rank 0's weights.
  // kInvalidArgument also for hyperparameters out of their range (Optimizer::Create).
  absl::Status Start();

  // After Start: where the gradient goes.
  std::span<float> gradient(int index) const;

  // GradientReducer's. `gradient` has as many elements as the weights.
  absl::Status Ready(int index);
  absl::Status Ready(int index, std::span<float> gradient);
  absl::Status Missing(int index);

  // Waits for the averages and updates all weights, unless the step was skipped (ReducerOptions::skip_non_finite) or
  // was only added up (ReducerOptions::accumulate).
  absl::StatusOr<StepSummary> Step();

  // How many steps the weights have had: since Start; with parameter servers in all, whoever made them.
  int64_t step() const;

  // For the steps to come. REQUIRES (these four): Start was OK.
  absl::Status SetLearningRate(float learning_rate);
  float learning_rate() const;

  // The optimizer's state, without weights: Optimizer's Save and Restore, with parameters in the order in which this
  // rank registered them. Local calls; the state is the same on all ranks that register in the same order. With
  // kParameterServer the servers have it: Save gives nothing, Restore is kFailedPrecondition.
  std::vector<std::byte> Save() const;
  absl::Status Restore(std::span<const std::byte> state);

 private:
  struct Parameter {
    std::string name;
    int index = 0;
    std::span<float> weights = {};
  };

  // Which of a step's gradients are there, where servers take them.
  struct Gathered;

  DistributedOptimizer(Communicator& communicator, const OptimizerConfig& config,
                       std::unique_ptr<GradientReducer> reducer);
  static absl::StatusOr<std::unique_ptr<DistributedOptimizer>> CreateForServers(Communicator& communicator,
                                                                                const OptimizerConfig& config,
                                                                                const DistributedOptions& options);
  absl::StatusOr<StepSummary> StepByServers();
  absl::Status BroadcastWeights();

  Communicator* communicator_;
  const OptimizerConfig config_;
  const std::unique_ptr<GradientReducer> reducer_;  // null with parameter servers
  std::unique_ptr<ParameterServerClient> servers_;  // null without
  std::unique_ptr<Gathered> gathered_;              // with servers_
  int registered_ = 0;                              // with servers_
  int64_t steps_ = 0;                               // without
  std::vector<Parameter> parameters_;
  std::optional<Optimizer> optimizer_;
};

}  // namespace gyre
