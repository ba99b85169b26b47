// How the ranks of a reducer come to the same view of what they do. All calls are collective and blocking.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gyre/communicator.h"

namespace gyre::internal {

// OK if all ranks' texts (fusion::Registry::Describe) are equal. If not, kInvalidArgument on all of them, with the
// first difference between rank 0 and the first rank that differs from it.
absl::Status AgreeOnGradients(Communicator& communicator, const std::string& text, const CallOptions& options);

// Rank 0's order becomes everyone's. Orders are permutations of one length; kDataLoss if what comes is not.
absl::Status AdoptOrder(Communicator& communicator, std::vector<int>& order, const CallOptions& options);

// The first rank on which it did not; none: it did so on all of them.
absl::StatusOr<std::optional<int>> FirstToFail(Communicator& communicator, bool own, const CallOptions& options);

// Whether it did so on all ranks.
absl::StatusOr<bool> AllSucceeded(Communicator& communicator, bool own, const CallOptions& options);

// OK if it is on all ranks. `own` where it is not OK; kAborted on a rank that only hears of another's failure.
absl::Status AgreeOnSuccess(Communicator& communicator, const absl::Status& own, const CallOptions& options);

}  // namespace gyre::internal
