#include "collectives/mpi/staging.h"

#include <array>
#include <cstring>

#include "device/reduce.h"

namespace gyre::internal::mpi {

namespace {

template <typename Half>
void Widen(const void* from, int64_t count, double scale, std::byte* to) {
  for (int64_t i = 0; i < count; ++i) {
    Half half;
    std::memcpy(&half, static_cast<const std::byte*>(from) + i * static_cast<int64_t>(sizeof(half)), sizeof(half));
    const float value = static_cast<float>(half) * static_cast<float>(scale);
    std::memcpy(to + i * static_cast<int64_t>(sizeof(value)), &value, sizeof(value));
  }
}

template <typename Half>
void Narrow(const std::byte* from, int64_t count, double scale, void* to) {
  for (int64_t i = 0; i < count; ++i) {
    float value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(value)), sizeof(value));
    const Half half(value * static_cast<float>(scale));
    std::memcpy(static_cast<std::byte*>(to) + i * static_cast<int64_t>(sizeof(half)), &half, sizeof(half));
  }
}

}  // namespace

DType ReducedType(DType dtype) {
  if (dtype == DType::kF16 || dtype == DType::kBF16) return DType::kF32;
  return dtype == DType::kBool ? DType::kU8 : dtype;
}

ReduceOp ReducedOp(DType dtype, ReduceOp op) {
  if (dtype == DType::kBool) {
    return op == ReduceOp::kMin || op == ReduceOp::kProduct ? ReduceOp::kMin : ReduceOp::kMax;
  }
  return op == ReduceOp::kAverage ? ReduceOp::kSum : op;
}

void Stage(const Call& call, const void* from, int64_t count, std::byte* to) {
  if (count == 0) return;
  const DType dtype = call.in.dtype;
  if (dtype == DType::kF16) return Widen<Float16>(from, count, call.prescale, to);
  if (dtype == DType::kBF16) return Widen<BFloat16>(from, count, call.prescale, to);
  if (dtype == DType::kBool) {
    for (int64_t i = 0; i < count; ++i) {
      to[i] = static_cast<const std::byte*>(from)[i] == std::byte{0} ? std::byte{0} : std::byte{1};
    }
    return;
  }
  void* const staged = to;
  device::Reduce(device::MakeReduction(dtype, ReduceOp::kSum, call.prescale, 1.0, 1), {&from, 1}, {&staged, 1}, count);
}

void Unstage(const Call& call, int ranks, const std::byte* from, int64_t count, void* to) {
  if (count == 0) return;
  const DType dtype = call.in.dtype;
  const device::Reduction scale = device::MakeReduction(dtype, call.op, 1.0, call.postscale, ranks);
  if (dtype == DType::kF16) return Narrow<Float16>(from, count, scale.scale_result, to);
  if (dtype == DType::kBF16) return Narrow<BFloat16>(from, count, scale.scale_result, to);
  const void* const staged = from;
  device::Reduce(scale, {&staged, 1}, {&to, 1}, count);
}

}  // namespace gyre::internal::mpi
