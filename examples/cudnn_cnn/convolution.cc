#include "convolution.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "gyre/status_macros.h"

namespace cudnn_cnn {

namespace {

constexpr size_t kMostWorkspace = size_t{1} << 30;
constexpr float kOne = 1, kZero = 0;

absl::StatusOr<OwnedTensor> Tensor(const Extent& extent, int batch, cudnnDataType_t type) {
  cudnnTensorDescriptor_t made = nullptr;
  RETURN_IF_ERROR(Check(cudnnCreateTensorDescriptor(&made), "describing a tensor"));
  OwnedTensor tensor(made);
  RETURN_IF_ERROR(Check(
      cudnnSetTensor4dDescriptor(made, CUDNN_TENSOR_NHWC, type, batch, extent.channels, extent.height, extent.width),
      "describing a tensor"));
  return tensor;
}

absl::StatusOr<OwnedFilter> Filter(const ConvShape& shape, cudnnDataType_t type) {
  cudnnFilterDescriptor_t made = nullptr;
  RETURN_IF_ERROR(Check(cudnnCreateFilterDescriptor(&made), "describing weights"));
  OwnedFilter filter(made);
  RETURN_IF_ERROR(Check(cudnnSetFilter4dDescriptor(made, type, CUDNN_TENSOR_NHWC, shape.out.channels, shape.in.channels,
                                                   shape.kernel, shape.kernel),
                        "describing weights"));
  return filter;
}

}  // namespace

absl::StatusOr<OwnedConvolution> Convolution::Describe(cudnnMathType_t math) const {
  cudnnConvolutionDescriptor_t made = nullptr;
  RETURN_IF_ERROR(Check(cudnnCreateConvolutionDescriptor(&made), "describing a convolution"));
  OwnedConvolution convolution(made);
  RETURN_IF_ERROR(Check(cudnnSetConvolution2dDescriptor(made, shape_.padding(), shape_.padding(), shape_.stride,
                                                        shape_.stride, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
                        "describing a convolution"));
  RETURN_IF_ERROR(Check(cudnnSetConvolutionMathType(made, math), "describing a convolution"));
  return convolution;
}

// Performance: an algorithm's, as cuDNN expects it; they come best first.
template <typename Algorithm, typename Performance, typename Get>
absl::Status Convolution::Choose(const Get& get, const char* what, Choice<Algorithm>& choice) {
  ASSIGN_OR_RETURN(const OwnedConvolution any, Describe(math_));
  std::array<Performance, 16> found;
  int count = 0;
  RETURN_IF_ERROR(Check(get(any.get(), static_cast<int>(found.size()), &count, found.data()),
                        absl::StrCat("choosing ", what, " of ", shape_.name)));
  const std::span<const Performance> all(found.data(), static_cast<size_t>(count));
  const auto best = std::ranges::find_if(all, [](const Performance& each) {
    return each.status == CUDNN_STATUS_SUCCESS && each.memory <= kMostWorkspace;
  });
  if (best == all.end()) return absl::UnimplementedError(absl::StrCat("cuDNN has no ", what, " of ", shape_.name));
  choice.algorithm = best->algo;
  ASSIGN_OR_RETURN(choice.convolution, Describe(best->mathType));
  workspace_ = std::max(workspace_, static_cast<int64_t>(best->memory));
  return absl::OkStatus();
}

absl::StatusOr<Convolution> Convolution::Make(cudnnHandle_t dnn, const ConvShape& shape, int batch,
                                              Precision precision) {
  const cudnnDataType_t type = precision == Precision::kBf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
  Convolution made(dnn);
  made.shape_ = shape;
  made.math_ = precision == Precision::kBf16 ? CUDNN_TENSOR_OP_MATH : CUDNN_DEFAULT_MATH;
  ASSIGN_OR_RETURN(made.x_, Tensor(shape.in, batch, type));
  ASSIGN_OR_RETURN(made.y_, Tensor(shape.out, batch, type));
  ASSIGN_OR_RETURN(made.weights_, Filter(shape, type));
  const auto x = made.x_.get(), y = made.y_.get();
  const auto weights = made.weights_.get();
  const auto forward = [&](auto convolution, int wanted, int* count, auto* found) {
    return cudnnGetConvolutionForwardAlgorithm_v7(dnn, x, weights, convolution, y, wanted, count, found);
  };
  const auto backward_weights = [&](auto convolution, int wanted, int* count, auto* found) {
    return cudnnGetConvolutionBackwardFilterAlgorithm_v7(dnn, x, y, convolution, weights, wanted, count, found);
  };
  const auto backward_data = [&](auto convolution, int wanted, int* count, auto* found) {
    return cudnnGetConvolutionBackwardDataAlgorithm_v7(dnn, weights, y, convolution, x, wanted, count, found);
  };
  RETURN_IF_ERROR(
      (made.Choose<cudnnConvolutionFwdAlgo_t, cudnnConvolutionFwdAlgoPerf_t>(forward, "forward pass", made.forward_)));
  RETURN_IF_ERROR((made.Choose<cudnnConvolutionBwdFilterAlgo_t, cudnnConvolutionBwdFilterAlgoPerf_t>(
      backward_weights, "gradient of the weights", made.backward_weights_)));
  RETURN_IF_ERROR((made.Choose<cudnnConvolutionBwdDataAlgo_t, cudnnConvolutionBwdDataAlgoPerf_t>(
      backward_data, "gradient of the input", made.backward_data_)));
  return made;
}

absl::Status Convolution::Forward(const void* x, const void* weights, void* y, void* workspace) const {
  return Check(
      cudnnConvolutionForward(dnn_, &kOne, x_.get(), x, weights_.get(), weights, forward_.convolution.get(),
                              forward_.algorithm, workspace, static_cast<size_t>(workspace_), &kZero, y_.get(), y),
      shape_.name);
}

absl::Status Convolution::BackwardWeights(const void* x, const void* dy, void* dweights, void* workspace) const {
  return Check(
      cudnnConvolutionBackwardFilter(dnn_, &kOne, x_.get(), x, y_.get(), dy, backward_weights_.convolution.get(),
                                     backward_weights_.algorithm, workspace, static_cast<size_t>(workspace_), &kZero,
                                     weights_.get(), dweights),
      shape_.name);
}

absl::Status Convolution::BackwardData(const void* weights, const void* dy, void* dx, void* workspace) const {
  return Check(cudnnConvolutionBackwardData(dnn_, &kOne, weights_.get(), weights, y_.get(), dy,
                                            backward_data_.convolution.get(), backward_data_.algorithm, workspace,
                                            static_cast<size_t>(workspace_), &kZero, x_.get(), dx),
               shape_.name);
}

}  // namespace cudnn_cnn
