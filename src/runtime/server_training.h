// ServerTraining: what a DistributedOptimizer does whose weights are with parameter servers.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gyre/communicator.h"
#include "gyre/parameter_server.h"
#include "gyre/reducer.h"
#include "gyre/tensor.h"

namespace gyre::internal {

// Ready, ReadyCopy and Missing may be called from any thread; everything else by one thread at a time.
class ServerTraining {
 public:
  // kInvalidArgument for what servers cannot do of `reduction`.
  static absl::StatusOr<std::unique_ptr<ServerTraining>> Create(Communicator& world, const OptimizerConfig& rule,
                                                                const ReducerOptions& reduction,
                                                                ParameterServerOptions servers);

  ParameterServerClient& client() { return *client_; }

  absl::StatusOr<int> Register(std::string_view name, std::span<float> weights, std::span<const int64_t> shape,
                               const Device& device);
  absl::Status Start();

  // kFailedPrecondition: before Start, or for the second time in a step; the gradient is then what it was.
  // kInvalidArgument also for a gradient that is elsewhere than the weights.
  absl::Status Ready(int index);
  absl::Status ReadyCopy(int index, std::span<const float> gradient, const Device& device);
  absl::Status Missing(int index);

  // Pushes the gradients, all of which must be ready or missing, and pulls the weights of the next step.
  absl::StatusOr<StepSummary> Step();

 private:
  ServerTraining(std::unique_ptr<ParameterServerClient> client, double scale)
      : client_(std::move(client)), scale_(scale) {}
  absl::Status TakeAllReady();
  absl::Status CheckAwaited(int index);
  absl::Status CheckAwaitedLocked(int index) const;  // REQUIRES: mutex_

  const std::unique_ptr<ParameterServerClient> client_;
  const double scale_;                    // of gradients that are pushed
  int64_t pushed_ = 0, pushed_rows_ = 0;  // bytes of all steps before
  std::mutex mutex_;
  bool started_ = false;
  std::vector<bool> ready_;  // by index, in this step
};

}  // namespace gyre::internal
