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

#include <chrono>
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
#include "gyre/tensor.h"

namespace gyre {

namespace internal {
class ServerTraining;
class WeightsOnGpu;
}  // namespace internal

// With Strategy::kParameterServer the same program trains through parameter servers (gyre/parameter_server.h): weights
// are those of the servers, Step pushes and pulls. Of ReducerOptions op, prescale, postscale and timeout count (kSum
// and scales: of a step's gradients in kBsp, of each one otherwise), and compression, where ParameterServerOptions has
// none; max_norm, skip_non_finite, accumulate, plan and rows are kInvalidArgument. No call is collective then, and what
// is said below of averages is what servers make of gradients. Of weights on a GPU Step waits there for the gradients,
// and for rows that were pushed from there, and for nothing else.
struct DistributedOptions {
  std::optional<Strategy> strategy = std::nullopt;  // default: GYRE_STRATEGY, or kAllreduce
  ReducerOptions reducer = {};
  ParameterServerOptions servers = {};  // of kParameterServer
};

// With a Dgc (ReducerOptions::compression), momentum is accumulated before it, on each rank (momentum correction): the
// config must be Momentum with the same momentum and Nesterov's form or not, or Sgd for a Dgc without momentum, so that
// the same training goes on where gradients travel dense (GradientReducer::carries_momentum). Weights whose results are
// velocities are updated without momentum of their own; weight decay stays outside of the compression.
//
// Threads, blocking and errors are GradientReducer's, or ParameterServerClient's, where nothing else is said.
class GYRE_EXPORT DistributedOptimizer {
 public:
  // Collective over `communicator`, which must live until Start has returned. kInvalidArgument for a Dgc with another
  // momentum than the config's, or with a rule that has none (Adam, Adagrad).
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

  // The same with a shape, of as many elements: compression is of gradients of two dimensions or more. `device`: where
  // the weights are, and on a GPU, on which stream they are used; their gradient is on the same GPU and stream, and so
  // is the optimizer's state (GradientReducer::Register). All weights of a rank are on one device; where one rank's are
  // on a GPU, all ranks' are. With parameter servers, which have the state, each may be on the host or on the rank's
  // GPU (ParameterServerClient::Register).
  absl::StatusOr<int> Register(std::string_view name, std::span<float> weights, std::span<const int64_t> shape,
                               const Device& device = {});

  // The same for weights that are `rows` rows one after the other, whose gradient is given as some of them (ReadyRows).
  // Only rows that some rank gave are updated: Optimizer::StepRows says what that means for each rule.
  // kInvalidArgument also for weights that are not so many rows.
  absl::StatusOr<int> RegisterRows(std::string_view name, std::span<float> weights, int64_t rows,
                                   const Device& device = {});

  // Before Start, more can be registered with the reducer itself: it is reduced along with the gradients, and nothing
  // is updated from it. REQUIRES: strategy() is kAllreduce
  GradientReducer& reducer() { return *reducer_; }

  // Likewise with kParameterServer: the client of the servers, null otherwise. For tables of embeddings: RegisterTable
  // before Start, then PullRows, and PushRows for the next Step, which takes rows as they are given: without op,
  // prescale and postscale. A Step that fails to push forgets them, as it does which gradients were ready: give them
  // again. What else the client does is for this object to call.
  ParameterServerClient* servers();

  // Collective: agrees on the parameters (GradientReducer::Start) and gives all ranks rank 0's weights.
  // kInvalidArgument also for hyperparameters out of their range (Optimizer::Create).
  absl::Status Start();

  // After Start: where the gradient goes. Of weights on a GPU it is memory there, not the host's to touch.
  std::span<float> gradient(int index) const;

  // GradientReducer's. `gradient` has as many elements as the weights; `device`: where it is, and was written.
  absl::Status Ready(int index);
  absl::Status Ready(int index, std::span<float> gradient, const Device& device = {});
  absl::Status ReadyRows(int index, std::span<const int64_t> rows, ConstTensorView values);
  absl::Status Missing(int index);

  // Waits for the averages and updates all weights, unless the step was skipped (ReducerOptions::skip_non_finite) or
  // was only added up (ReducerOptions::accumulate). On a GPU the updates are queued on the streams that weights were
  // registered with, which nobody waits for, and give the same bits as on the host.
  absl::StatusOr<StepSummary> Step();

  // Waits for one average and updates its weights alone, so that its layer's forward pass can begin while others still
  // travel (GradientReducer::WaitFor); Step then updates the rest, and ends the step. As with WaitFor, all gradients of
  // the step must have been given, or be given by other threads meanwhile. False: it updates nothing, for the reasons
  // of WaitFor, or because it has done so in this step. kFailedPrecondition with parameter servers, and, without a
  // wait, for what was registered with the reducer itself; other errors are WaitFor's.
  absl::StatusOr<bool> StepOne(int index);

  // How many steps the weights have had: since Start; with parameter servers in all, whoever made them.
  int64_t step() const;

  // For the steps to come. REQUIRES (these four): Start was OK.
  absl::Status SetLearningRate(float learning_rate);
  float learning_rate() const;

  // The optimizer's state, without weights: Optimizer's Save and Restore, with parameters in the order in which this
  // rank registered them. Local calls; the state is the same on all ranks that register in the same order. What
  // compression keeps is not, and so is no part of it: GradientReducer::SaveCompression, by reducer(). Of weights whose
  // results are velocities, the state has weight decay's part only: it goes on where they are velocities again. With
  // kParameterServer the servers have it: Save gives nothing, Restore is kFailedPrecondition. Of weights on a GPU both
  // wait for the GPU, and what one saved goes on on the other, or on the host; Save gives nothing where the GPU fails
  // or does not get there within ReducerOptions::timeout (the log says why), Restore is kDeadlineExceeded then.
  std::vector<std::byte> Save() const;
  absl::Status Restore(std::span<const std::byte> state);

 private:
  struct Parameter {
    std::string name;
    int index = 0;
    std::span<float> weights = {};
    std::optional<int64_t> rows = std::nullopt;  // of those that are given as rows
    bool updated = false;                        // in this step, by StepOne
    Device device = {};
  };

  DistributedOptimizer(Communicator& communicator, const OptimizerConfig& config, std::chrono::milliseconds timeout,
                       std::unique_ptr<GradientReducer> reducer, std::unique_ptr<internal::ServerTraining> servers);
  absl::Status BroadcastWeights();
  absl::Status MakeOptimizers();
  absl::Status MakeOnGpu();
  absl::Status Update(std::span<const size_t> parameters);
  absl::Status UpdateOnHost(size_t parameter);
  std::optional<size_t> Find(int index) const;

  Communicator* communicator_;
  const OptimizerConfig config_;
  const std::chrono::milliseconds timeout_;                  // of what waits for a GPU
  const std::unique_ptr<GradientReducer> reducer_;           // null with parameter servers
  const std::unique_ptr<internal::ServerTraining> servers_;  // null without
  int64_t steps_ = 0;                                        // without
  std::vector<Parameter> parameters_;
  std::optional<Optimizer> optimizer_;  // the config's; of velocities, their weight decay
  std::optional<Optimizer> plain_;      // of velocities, if there are any: without momentum
  std::vector<float> zeros_;            // gradients, where there is weight decay alone

  std::unique_ptr<internal::WeightsOnGpu> on_gpu_;  // in place of these three
};

}  // namespace gyre
