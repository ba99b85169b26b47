// One convolution by cuDNN, forward and backward, for a batch of fixed size.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "options.h"
#include "plan.h"
#include "shapes.h"

namespace cudnn_cnn {

// Tensors are N x height x width x channels, weights out x kernel x kernel x in, both in `precision` and aligned to
// kTensorAlignment bytes; products are added up in float. cuDNN's own heuristics choose how, once. In f32 they may
// choose tensor cores, which take the factors as TF32.
class Convolution {
 public:
  static constexpr int64_t kTensorAlignment = 16;

  // Both kUnimplemented, with the operation and its shape, where cuDNN has no way to do it. AddBackwardData: a
  // network's first layer can do without; nothing if it was added before.
  static absl::StatusOr<Convolution> Make(cudnnHandle_t dnn, const ConvShape& shape, int batch, Precision precision);
  absl::Status AddBackwardData();

  // Bytes of scratch memory that calls need. One memory can do for all that are queued on one stream.
  int64_t workspace() const;

  absl::Status Forward(const void* x, const void* weights, void* y, void* workspace) const;
  absl::Status BackwardWeights(const void* x, const void* dy, void* dweights, void* workspace) const;
  // REQUIRES: AddBackwardData.
  absl::Status BackwardData(const void* weights, const void* dy, void* dx, void* workspace) const;

 private:
  Convolution(cudnnHandle_t dnn, ConvShape shape, int batch, Precision precision, Plan forward, Plan backward_weights)
      : dnn_(dnn),
        shape_(std::move(shape)),
        batch_(batch),
        precision_(precision),
        forward_(std::move(forward)),
        backward_weights_(std::move(backward_weights)) {}
  absl::Status Run(const Plan& plan, const void* x, const void* weights, const void* y, void* workspace) const;

  cudnnHandle_t dnn_;
  ConvShape shape_;
  int batch_;
  Precision precision_;
  Plan forward_, backward_weights_;
  std::optional<Plan> backward_data_;
};

}  // namespace cudnn_cnn
