// Combining buffers of several ranks: the arithmetic of every reducing collective.
#pragma once

#include <cstdint>
#include <span>

#include "gyre/tensor.h"

namespace gyre::device {

// What to compute: out = scale_result * op over sources of (scale_source * source). The scales apply to
// floating-point dtypes only. kAverage is kSum; its divisor is the caller's (see MakeReduction).
struct Reduction {
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  double scale_source = 1.0;
  double scale_result = 1.0;
  int64_t divisor = 1;  // of integer averages
};

// The Reduction of a call over `ranks` ranks: an average of floating-point numbers becomes a scale of the result
// (postscale / ranks), one of integers a division.
Reduction MakeReduction(DType dtype, ReduceOp op, double prescale, double postscale, int ranks);

// Combines `count` elements of every source, in the order of `sources`, and stores the result to every destination in
// the same pass. kF16 and kBF16 are accumulated in float and rounded once. Pointers may have any alignment; a
// destination may be one of the sources, but must not overlap one partly. REQUIRES: sources is not empty; op is not
// kAdasum. The result does not depend on how a buffer is cut into calls. Thread-safe, does not block.
void Reduce(const Reduction& reduction, std::span<const void* const> sources, std::span<void* const> destinations,
            int64_t count);

// The instruction set in use, e.g. "AVX3".
const char* SimdTargetName();

}  // namespace gyre::device
