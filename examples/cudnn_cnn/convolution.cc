#include "convolution.h"

#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "gyre/status_macros.h"

namespace cudnn_cnn {

namespace {

constexpr int64_t kMostWorkspace = int64_t{1} << 30;

// Of x, the weights and y, or of their gradients, in each operation.
constexpr std::array<int64_t, 3> kIds = {1, 2, 3};

// What an operation is called; otherwise the three are described alike.
struct Direction {
  const char* what;
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t x, weights, y, convolution, alpha, beta;
};
constexpr Direction kForward = {.what = "the forward pass",
                                .type = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                .x = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                .weights = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                .y = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                .convolution = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
constexpr Direction kBackwardWeights = {.what = "the gradient of the weights",
                                        .type = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                        .x = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                        .weights = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                        .y = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                        .convolution = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                        .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                        .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
constexpr Direction kBackwardData = {.what = "the gradient of the input",
                                     .type = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                     .x = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                     .weights = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                     .y = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                     .convolution = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                     .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                     .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};

std::string ConvolutionText(const Direction& direction, const ConvShape& shape, int batch, Precision precision) {
  const auto extent = [](const Extent& of) { return absl::StrCat(of.height, " x ", of.width, " x ", of.channels); };
  return absl::StrCat(direction.what, " of ", shape.name, " (", batch, " images of ", extent(shape.in), " to ",
                      extent(shape.out), ", ", shape.kernel, " x ", shape.kernel, ", stride ", shape.stride, ", ",
                      precision == Precision::kBf16 ? "bf16" : "f32", ")");
}

// cuDNN counts dimensions as count, channels, height, width whatever the layout, which is in the strides: here channels
// lie next to each other. Weights are described as images are: one per output channel.
Descriptor Tensor(int64_t id, int64_t count, const Extent& each, Precision precision) {
  const std::array<int64_t, 4> dimensions = {count, each.channels, each.height, each.width};
  const std::array<int64_t, 4> strides = {each.elements(), 1, int64_t{each.width} * each.channels, each.channels};
  Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
      .Set(CUDNN_ATTR_TENSOR_DATA_TYPE, precision == Precision::kBf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT)
      .Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, Convolution::kTensorAlignment)
      .SetAll<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, dimensions)
      .SetAll<int64_t>(CUDNN_ATTR_TENSOR_STRIDES, strides);
  return tensor;
}

Descriptor Geometry(const ConvShape& shape) {
  const std::array<int64_t, 2> padding = {shape.padding(), shape.padding()}, stride = {shape.stride, shape.stride};
  constexpr std::array<int64_t, 2> kDense = {1, 1};
  Descriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  convolution.Set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .Set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::ssize(padding))
      .SetAll<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, padding)
      .SetAll<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding)
      .SetAll<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS, kDense)
      .SetAll<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, stride);
  return convolution;
}

absl::StatusOr<Plan> Choose(cudnnHandle_t dnn, const Direction& direction, const ConvShape& shape, int batch,
                            Precision precision, std::string what) {
  const Extent taps = {.height = shape.kernel, .width = shape.kernel, .channels = shape.in.channels};
  Descriptor x = Tensor(kIds[0], batch, shape.in, precision);
  Descriptor weights = Tensor(kIds[1], shape.out.channels, taps, precision);
  Descriptor y = Tensor(kIds[2], batch, shape.out, precision);
  Descriptor convolution = Geometry(shape);
  Descriptor operation(direction.type);
  for (Descriptor* const part : {&x, &weights, &y, &convolution}) RETURN_IF_ERROR(part->Finalize());
  // The result is alpha times what comes out, plus beta times what was there; in the type of the sums.
  operation.Set(direction.x, x)
      .Set(direction.weights, weights)
      .Set(direction.y, y)
      .Set(direction.convolution, convolution)
      .Set(direction.alpha, 1.0f)
      .Set(direction.beta, 0.0f);
  RETURN_IF_ERROR(operation.Finalize());
  return Plan::Make(dnn, operation, kMostWorkspace, std::move(what));
}

absl::StatusOr<Plan> MakePlan(cudnnHandle_t dnn, const Direction& direction, const ConvShape& shape, int batch,
                              Precision precision) {
  const std::string what = ConvolutionText(direction, shape, batch, precision);
  absl::StatusOr<Plan> plan = Choose(dnn, direction, shape, batch, precision, what);
  if (!plan.ok()) return absl::Status(plan.status().code(), absl::StrCat(what, ": ", plan.status().message()));
  return plan;
}

}  // namespace

absl::StatusOr<Convolution> Convolution::Make(cudnnHandle_t dnn, const ConvShape& shape, int batch,
                                              Precision precision) {
  ASSIGN_OR_RETURN(Plan forward, MakePlan(dnn, kForward, shape, batch, precision));
  ASSIGN_OR_RETURN(Plan backward_weights, MakePlan(dnn, kBackwardWeights, shape, batch, precision));
  return Convolution(dnn, shape, batch, precision, std::move(forward), std::move(backward_weights));
}

absl::Status Convolution::AddBackwardData() {
  if (backward_data_) return absl::OkStatus();
  ASSIGN_OR_RETURN(backward_data_, MakePlan(dnn_, kBackwardData, shape_, batch_, precision_));
  return absl::OkStatus();
}

int64_t Convolution::workspace() const {
  const int64_t backward_data = backward_data_ ? backward_data_->workspace() : 0;
  return std::max({forward_.workspace(), backward_weights_.workspace(), backward_data});
}

// cuDNN takes all pointers as if it wrote there; it writes the result only.
absl::Status Convolution::Run(const Plan& plan, const void* x, const void* weights, const void* y,
                              void* workspace) const {
  const std::array<void*, 3> tensors = {const_cast<void*>(x), const_cast<void*>(weights), const_cast<void*>(y)};
  return plan.Run(dnn_, kIds, tensors, workspace);
}

absl::Status Convolution::Forward(const void* x, const void* weights, void* y, void* workspace) const {
  return Run(forward_, x, weights, y, workspace);
}

absl::Status Convolution::BackwardWeights(const void* x, const void* dy, void* dweights, void* workspace) const {
  return Run(backward_weights_, x, dweights, dy, workspace);
}

absl::Status Convolution::BackwardData(const void* weights, const void* dy, void* dx, void* workspace) const {
  return Run(*backward_data_, dx, weights, dy, workspace);
}

}  // namespace cudnn_cnn
