#include "fusion/arithmetic.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

#include "device/reduce.h"

namespace gyre::fusion {

namespace {

template <typename T>
T Load(const void* data, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(data) + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void Store(void* data, int64_t i, T value) {
  std::memcpy(static_cast<std::byte*>(data) + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

// A type in which arithmetic on T is done.
template <typename T>
using Wide = std::conditional_t<sizeof(T) == 2, float, T>;

// Calls body(T()) for the element type of a floating-point dtype.
template <typename Body>
auto WithType(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kF16: return body(Float16());
    case DType::kBF16: return body(BFloat16());
    case DType::kF64: return body(double{});
    default: return body(float{});
  }
}

}  // namespace

void Convert(ConstTensorView in, TensorView out) {
  if (in.count == 0 || in.data == out.data) return;
  if (in.dtype == out.dtype) {
    std::memcpy(out.data, in.data, static_cast<size_t>(in.bytes()));
    return;
  }
  WithType(in.dtype, [&]<typename From>(From) {
    WithType(out.dtype, [&]<typename To>(To) {
      for (int64_t i = 0; i < in.count; ++i) {
        const auto wide = static_cast<Wide<From>>(Load<From>(in.data, i));
        Store(out.data, i, static_cast<To>(static_cast<Wide<To>>(wide)));
      }
    });
  });
}

void Add(ConstTensorView in, TensorView out) {
  const std::array<const void*, 2> sources = {out.data, in.data};
  void* const destination = out.data;
  device::Reduce({.dtype = out.dtype}, sources, {&destination, 1}, out.count);
}

void Scale(TensorView in_out, double scale) {
  const void* const source = in_out.data;
  void* const destination = in_out.data;
  device::Reduce({.dtype = in_out.dtype, .scale_result = scale}, {&source, 1}, {&destination, 1}, in_out.count);
}

// Eight sums side by side, which compilers turn into vectors without changing the order of additions.
double SumOfSquares(ConstTensorView in) {
  return WithType(in.dtype, [&]<typename T>(T) {
    constexpr int64_t kLanes = 8;
    std::array<double, kLanes> sums{};
    int64_t i = 0;
    for (; i + kLanes <= in.count; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const auto value = static_cast<double>(static_cast<Wide<T>>(Load<T>(in.data, i + lane)));
        sums[static_cast<size_t>(lane)] += value * value;
      }
    }
    for (; i < in.count; ++i) {
      const auto value = static_cast<double>(static_cast<Wide<T>>(Load<T>(in.data, i)));
      sums[0] += value * value;
    }
    double sum = 0;
    for (const double one : sums) sum += one;
    return sum;
  });
}

bool AllFinite(ConstTensorView in) {
  return WithType(in.dtype, [&]<typename T>(T) {
    for (int64_t i = 0; i < in.count; ++i) {
      if (!std::isfinite(static_cast<Wide<T>>(Load<T>(in.data, i)))) return false;
    }
    return true;
  });
}

}  // namespace gyre::fusion
