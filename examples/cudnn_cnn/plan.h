// How cuDNN does an operation: one of its engines with its settings, chosen once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "descriptor.h"

namespace cudnn_cnn {

class Plan {
 public:
  // The first that cuDNN's heuristics name (mode A, then the fallback, which lists what should always work), that can
  // be built on this GPU and that needs at most `most_workspace` bytes; of an engine that cuDNN says gives the same
  // bits every time, or, where none of these will do, of the others. `what`: the operation, for messages of Run.
  // Blocks while cuDNN builds, which may be a compilation. kUnimplemented, with what stood against the last one that
  // was tried, where there is none.
  static absl::StatusOr<Plan> Make(cudnnHandle_t dnn, const Descriptor& operation, int64_t most_workspace,
                                   std::string what);

  // Bytes of scratch memory that Run needs.
  int64_t workspace() const { return workspace_; }

  // Queues the operation on the handle's stream. `tensors[i]` is where the tensor whose unique id is `ids[i]` lies.
  absl::Status Run(cudnnHandle_t dnn, std::span<const int64_t> ids, std::span<void* const> tensors,
                   void* workspace) const;

 private:
  Plan(Descriptor configuration, Descriptor plan, int64_t workspace, std::string what)
      : configuration_(std::move(configuration)),
        plan_(std::move(plan)),
        workspace_(workspace),
        what_(std::move(what)) {}

  Descriptor configuration_;  // what plan_ was made of
  Descriptor plan_;
  int64_t workspace_;
  std::string what_;
};

}  // namespace cudnn_cnn
