#include "collectives/hierarchical/scales.h"

#include <cmath>

namespace gyre::internal {

namespace {

// Half precision ends at 65504: sums that are to be scaled down must not exceed that on the way. A power of two costs
// no precision.
double EarlyScale(const device::Reduction& plain, double scale) {
  const double size = std::abs(scale);
  const bool sums_halves = plain.dtype == DType::kF16 && plain.op == ReduceOp::kSum;
  return sums_halves && size > 0.0 && size < 1.0 ? std::ldexp(1.0, std::ilogb(size)) : 1.0;
}

}  // namespace

HostScales HostScalesOf(const Call& call, int size) {
  HostScales scales{.plain = {.dtype = call.in.dtype, .op = call.op == ReduceOp::kAverage ? ReduceOp::kSum : call.op},
                    .early = 1.0,
                    .rest = device::MakeReduction(call.in.dtype, call.op, 1.0, call.postscale, size)};
  scales.early = EarlyScale(scales.plain, scales.rest.scale_result);
  scales.rest.scale_result /= scales.early;
  return scales;
}

}  // namespace gyre::internal
