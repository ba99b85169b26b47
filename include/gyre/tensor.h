// Views of tensors: where the elements lie, how many, of which type. A view never owns memory; what it points to
// must stay alive and unmoved until the operation it was given to has ended.
#pragma once

#include <cstdint>
#include <optional>
#include <ranges>
#include <string_view>
#include <type_traits>

#include "gyre/dtype.h"
#include "gyre/export.h"

namespace gyre {

// Where memory is: on the host, or on one of this process's GPUs. On a GPU an operation comes after all that was queued
// on `stream` before the call; once a blocking call, or Work::Wait, has returned OK, what is queued there from then on
// sees the result. The host itself does not wait for the GPU's last copy: memory that is read by other means than that
// stream needs a synchronisation of the program's own.
struct Device {
  int gpu = -1;            // its ordinal, as CUDA counts them in this process; -1: the host
  void* stream = nullptr;  // a cudaStream_t there, not cudaStreamPerThread; null: the default one. Not used on the host

  bool on_gpu() const { return gpu >= 0; }

  friend bool operator==(const Device&, const Device&) = default;
};

// Elements that an operation writes (and may read). Any alignment that suits the dtype on a GPU; on the host, any.
struct TensorView {
  void* data = nullptr;
  int64_t count = 0;  // elements, not bytes
  DType dtype = DType::kF32;
  Device device = {};

  TensorView() = default;
  TensorView(void* data, int64_t count, DType dtype, Device device = {})
      : data(data), count(count), dtype(dtype), device(device) {}

  // From anything contiguous and sized: std::vector<float>&, std::span<int64_t>, std::array<...>&, float[n].
  template <std::ranges::contiguous_range Range>
  requires(!std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<Range>>>)
      TensorView(Range&& range)  // NOLINT(google-explicit-constructor): a view is what it views
      : data(std::ranges::data(range)),
        count(static_cast<int64_t>(std::ranges::size(range))),
        dtype(DTypeOf<std::ranges::range_value_t<Range>>) {}

  int64_t bytes() const { return count * DTypeSize(dtype); }

  // Elements [first, first + length) of this view. REQUIRES: they lie within it.
  TensorView Slice(int64_t first, int64_t length) const {
    return {static_cast<char*>(data) + first * DTypeSize(dtype), length, dtype, device};
  }
};

// Elements that an operation only reads.
struct ConstTensorView {
  const void* data = nullptr;
  int64_t count = 0;  // elements, not bytes
  DType dtype = DType::kF32;
  Device device = {};

  ConstTensorView() = default;
  ConstTensorView(const void* data, int64_t count, DType dtype, Device device = {})
      : data(data), count(count), dtype(dtype), device(device) {}
  ConstTensorView(TensorView view)  // NOLINT(google-explicit-constructor): reading is less than writing
      : data(view.data), count(view.count), dtype(view.dtype), device(view.device) {}

  template <std::ranges::contiguous_range Range>
  ConstTensorView(Range&& range)  // NOLINT(google-explicit-constructor): a view is what it views
      : data(std::ranges::data(range)),
        count(static_cast<int64_t>(std::ranges::size(range))),
        dtype(DTypeOf<std::ranges::range_value_t<Range>>) {}

  int64_t bytes() const { return count * DTypeSize(dtype); }
};

// How elements of different ranks are combined. For kBool, kSum and kMax are "or", kProduct and kMin are "and";
// kAverage of kBool is refused. kAverage of integers truncates towards zero; integer sums and products wrap.
// kF16 and kBF16 are accumulated in float and rounded once.
//
// kAdasum is of whole tensors, and of allreduce on floating-point dtypes only: what the ranks' gradients have in common
// is averaged, what is orthogonal added (Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2020).
// Every rank takes all ranks' tensors (memory and traffic grow with them); no deadline interrupts their combining.
enum class ReduceOp : uint8_t { kSum, kAverage, kMin, kMax, kProduct, kAdasum };

inline constexpr int kReduceOpCount = 5;  // of those that combine element by element, which come first

GYRE_EXPORT std::string_view ReduceOpName(ReduceOp op);                    // "sum", "average", ..., "adasum"
GYRE_EXPORT std::optional<ReduceOp> ParseReduceOp(std::string_view name);  // also "avg", "prod"

}  // namespace gyre
