// The convolutions of a network: layers of one shape share one, for choosing takes cuDNN a while.
#pragma once

#include <compare>
#include <cstdint>
#include <map>

#include "convolution.h"

namespace cudnn_cnn {

// All for one batch size and precision.
class Convolutions {
 public:
  // The handle outlives it.
  Convolutions(cudnnHandle_t dnn, int batch, Precision precision) : dnn_(dnn), batch_(batch), precision_(precision) {}

  // Belongs to this, and stays where it is. Errors name the first layer of a shape. `backward_data`: whether this layer
  // needs the gradient of its input.
  absl::StatusOr<const Convolution*> Of(const ConvShape& shape, bool backward_data);

  // Bytes that each of those made so far can do with.
  int64_t workspace() const { return workspace_; }

 private:
  // What two layers have in common that take the same convolution: all but the name.
  struct Key {
    Extent in, out;
    int kernel, stride;
    auto operator<=>(const Key&) const = default;
  };

  cudnnHandle_t dnn_;
  int batch_;
  Precision precision_;
  std::map<Key, Convolution> made_;
  int64_t workspace_ = 0;
};

}  // namespace cudnn_cnn
