// What the elements of a LibTorch tensor are called in Gyre, and where they are: for TorchOptimizer, and for programs
// that give tensors to Gyre's operations themselves.
//
//   ASSIGN_OR_RETURN(const gyre::TensorTraits traits, gyre::TensorTraitsOf("loss", loss, stream));
//   RETURN_IF_ERROR(world.AllReduce({loss.data_ptr(), loss.numel(), traits.dtype, traits.device}));
//
// Gyre takes the numel() elements from data_ptr() on: the tensor has to be contiguous. Of another one (transposed, a
// slice of columns, expanded), contiguous() is to be given, and copied back.
#pragma once

#include <torch/torch.h>

#include <optional>
#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gyre/dtype.h"
#include "gyre/tensor.h"

namespace gyre {

struct TensorTraits {
  DType dtype = DType::kF32;
  Device device = {};
};

// Empty: Gyre has no such elements.
inline std::optional<DType> DTypeOfScalar(at::ScalarType type) {
  switch (type) {
    case at::kByte: return DType::kU8;
    case at::kChar: return DType::kI8;
    case at::kShort: return DType::kI16;
    case at::kInt: return DType::kI32;
    case at::kLong: return DType::kI64;
    case at::kHalf: return DType::kF16;
    case at::kBFloat16: return DType::kBF16;
    case at::kFloat: return DType::kF32;
    case at::kDouble: return DType::kF64;
    case at::kBool: return DType::kBool;
    default: return std::nullopt;
  }
}

// `stream`: of a tensor on a GPU, the cudaStream_t that operations are to keep to; null: the default one. REQUIRES: the
// tensor is defined. kInvalidArgument, with `name`, for what is not dense, not numbers that Gyre has, or neither on the
// host nor on a GPU that has a number.
inline absl::StatusOr<TensorTraits> TensorTraitsOf(const std::string& name, const at::Tensor& tensor,
                                                   void* stream = nullptr) {
  const at::Device device = tensor.device();
  const std::optional<DType> dtype = DTypeOfScalar(tensor.scalar_type());
  if (dtype && tensor.layout() == at::kStrided) {
    if (device.is_cpu()) return TensorTraits{.dtype = *dtype};
    if (device.is_cuda() && device.has_index()) {
      return TensorTraits{.dtype = *dtype, .device = {.gpu = device.index(), .stream = stream}};
    }
  }
  std::ostringstream text;
  text << "tensor \"" << name << "\" is " << tensor.scalar_type() << ", " << tensor.layout() << ", on " << device
       << ": only dense numbers on the host or on a CUDA GPU can be exchanged";
  return absl::InvalidArgumentError(text.str());
}

}  // namespace gyre
