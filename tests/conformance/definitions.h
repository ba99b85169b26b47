// What the collectives' results are, by definition.
#pragma once

#include <cstdint>

#include "gyre/tensor.h"

namespace gyre {

// The reduction of all ranks' element, whose values are support::ExactValue's: exact for sums of few ranks, minima and
// maxima, and for the products of up to 8 ranks' integers.
double Reduced(ReduceOp op, DType dtype, uint64_t seed, int size, int64_t index);

// How far a result may be off, relative to the exact one.
double RelativeTolerance(DType dtype);

}  // namespace gyre
