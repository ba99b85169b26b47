#include "convolutions.h"

#include <algorithm>
#include <utility>

#include "gyre/status_macros.h"

namespace cudnn_cnn {

absl::StatusOr<const Convolution*> Convolutions::Of(const ConvShape& shape) {
  const Key key{.in = shape.in, .out = shape.out, .kernel = shape.kernel, .stride = shape.stride};
  auto found = made_.find(key);
  if (found == made_.end()) {
    ASSIGN_OR_RETURN(Convolution made, Convolution::Make(dnn_, shape, batch_, precision_));
    workspace_ = std::max(workspace_, made.workspace());
    found = made_.emplace(key, std::move(made)).first;
  }
  return &found->second;
}

}  // namespace cudnn_cnn
