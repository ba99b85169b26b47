#include "convolutions.h"

#include <algorithm>
#include <utility>

#include "gyre/status_macros.h"

namespace cudnn_cnn {

absl::StatusOr<const Convolution*> Convolutions::Of(const ConvShape& shape, bool backward_data) {
  const Key key{.in = shape.in, .out = shape.out, .kernel = shape.kernel, .stride = shape.stride};
  auto found = made_.find(key);
  if (found == made_.end()) {
    ASSIGN_OR_RETURN(Convolution made, Convolution::Make(dnn_, shape, batch_, precision_));
    found = made_.emplace(key, std::move(made)).first;
  }
  if (backward_data) RETURN_IF_ERROR(found->second.AddBackwardData());
  workspace_ = std::max(workspace_, found->second.workspace());
  return &found->second;
}

}  // namespace cudnn_cnn
