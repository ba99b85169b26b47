// One convolution by cuDNN, forward and backward, for a batch of fixed size.
#pragma once

#include <cstdint>

#include "gpu.h"
#include "options.h"
#include "shapes.h"

namespace cudnn_cnn {

// Tensors are N x height x width x channels, weights out x kernel x kernel x in, both in `precision`; products are
// added up in float. cuDNN's own heuristics choose the algorithms, once.
class Convolution {
 public:
  static absl::StatusOr<Convolution> Make(cudnnHandle_t dnn, const ConvShape& shape, int batch, Precision precision);

  // Bytes of scratch memory that calls need. One memory can do for all that are queued on one stream.
  int64_t workspace() const { return workspace_; }

  absl::Status Forward(const void* x, const void* weights, void* y, void* workspace) const;
  absl::Status BackwardWeights(const void* x, const void* dy, void* dweights, void* workspace) const;
  absl::Status BackwardData(const void* weights, const void* dy, void* dx, void* workspace) const;

 private:
  // An algorithm, and the convolution as it is to be done by it.
  template <typename Algorithm>
  struct Choice {
    Algorithm algorithm{};
    OwnedConvolution convolution{};
  };

  explicit Convolution(cudnnHandle_t dnn) : dnn_(dnn) {}
  absl::StatusOr<OwnedConvolution> Describe(cudnnMathType_t math) const;
  template <typename Algorithm, typename Performance, typename Get>
  absl::Status Choose(const Get& get, const char* what, Choice<Algorithm>& choice);

  cudnnHandle_t dnn_;
  ConvShape shape_{};
  cudnnMathType_t math_ = CUDNN_DEFAULT_MATH;
  OwnedTensor x_{}, y_{};
  OwnedFilter weights_{};
  Choice<cudnnConvolutionFwdAlgo_t> forward_{};
  Choice<cudnnConvolutionBwdFilterAlgo_t> backward_weights_{};
  Choice<cudnnConvolutionBwdDataAlgo_t> backward_data_{};
  int64_t workspace_ = 0;
};

}  // namespace cudnn_cnn
