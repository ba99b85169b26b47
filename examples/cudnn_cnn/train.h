// Training on several ranks: each takes its share of every batch, and a GradientReducer averages the gradients, which
// stay on the GPUs.
#pragma once

#include "absl/status/status.h"
#include "options.h"

namespace cudnn_cnn {

// REQUIRES: there is a GPU. kInternal if the ranks' weights differ at the end. Rank 0 prints.
absl::Status Train(const Options& options);

}  // namespace cudnn_cnn
