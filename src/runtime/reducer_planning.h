// How the ranks of a reducer come to buckets that hide their communication behind the backward pass. All calls are
// collective and blocking, and end alike on all ranks.
#pragma once

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fusion/plan.h"
#include "fusion/planner.h"
#include "gyre/communicator.h"

namespace gyre::internal {

// What an allreduce costs among these ranks: some of growing sizes are timed, until one takes 10 ms or `scratch` is
// reduced whole (8 MiB at most). `scratch`: zeros, which it stays, in the memory that gradients travel in; equally long
// on all ranks. The slowest rank's times count.
absl::StatusOr<fusion::CostModel> MeasureCost(Communicator& communicator, std::span<float> scratch,
                                              const CallOptions& options);

// When gradients are there and when they are needed (fusion::PlanByNeed), by tensor. All needed at the same time: they
// are waited for together.
struct PlanTimes {
  std::vector<double> ready;
  std::vector<double> need;
};

// The plans by cost, one for each of `grains`, for gradients that are ready when they are so on the last rank, and
// needed as the last rank needs them: fusion::PlanCautiously, or PlanByNeed where that is not at the same time.
// `times`: this rank's; become the last rank's. A call for the times' maximum, and one for each plan as rank 0 has made
// it, so that all have the same whatever they measured.
absl::StatusOr<std::vector<fusion::Plan>> PlanTogether(Communicator& communicator,
                                                       std::span<const fusion::TensorInfo> tensors, PlanTimes& times,
                                                       const fusion::CostModel& cost, std::span<const double> grains,
                                                       const CallOptions& options);

// Rank 0's plan becomes everyone's, in one call. `plan`: as rank 0 has it; elsewhere it does not matter. kDataLoss if
// what comes is no plan for these tensors.
absl::Status AdoptPlan(Communicator& communicator, std::span<const fusion::TensorInfo> tensors, fusion::Plan& plan,
                       const CallOptions& options);

}  // namespace gyre::internal
