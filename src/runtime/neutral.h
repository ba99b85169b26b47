// Elements that change no result of a reduction.
#pragma once

#include <cstddef>
#include <span>

#include "gyre/tensor.h"

namespace gyre::internal {

// `bytes`: a whole number of elements.
void FillNeutral(std::span<std::byte> bytes, DType dtype, ReduceOp op);

}  // namespace gyre::internal
