// A training step's gradients through a GradientReducer whose gradients are on GPUs.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace gyre::bench::gpu {

struct StepOptions {
  std::vector<std::string> models = {"resnet50"};
  std::vector<std::string> dtypes = {"f32", "bf16"};
  std::vector<std::string> compression{};  // also compressed, where they are f32: as ParseCompression reads them
  int steps = 30;
  std::string json{};  // a file; empty: none
};

// Without computation: all gradients are ready at once. In the reducer's own memory, in memory of the program's, there
// by graphs as one bucket (where each rank has a GPU of its own: of others nothing is captured), and in the reducer's
// compressed, even where that is slower, by turns. Checks the sums of one step, before anything goes by graphs, and of
// one after all, and of compressed ones that all ranks have the same; kDataLoss if any is wrong. `command`: as it was
// typed.
absl::Status RunStep(const StepOptions& options, const std::string& command);

}  // namespace gyre::bench::gpu
