// cudnn_cnn: what a CUDA program has to do to train on several ranks: give its gradients' shapes and its stream to a
// GradientReducer, let the backward pass write gradients where the reducer has them, say when each is queued, and wait
// before the update.
#include <cstdio>

#include "exit_code.h"
#include "gpu.h"
#include "options.h"
#include "train.h"

int main(int argc, char** argv) {
  cudnn_cnn::Options options;
  if (const auto exit_code = cudnn_cnn::ParseOptions(argc, argv, options)) return *exit_code;
  // Before ranks meet: none of them waits for one that has none.
  const absl::StatusOr<int> gpus = cudnn_cnn::CountGpus();
  const absl::Status status = gpus.ok() ? cudnn_cnn::Train(options) : gpus.status();
  if (status.ok()) return 0;
  std::fprintf(stderr, "cudnn_cnn: %s\n", status.ToString().c_str());
  if (!gpus.ok()) return cudnn_cnn::kExitNoGpu;
  return absl::IsInvalidArgument(status) ? cudnn_cnn::kExitUsage : cudnn_cnn::kExitFailed;
}
