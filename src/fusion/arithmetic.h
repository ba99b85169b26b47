// What is done to gradients outside of collectives. The same on every machine, to the bit, so that ranks come to the
// same decisions from the same results. Tensors may have any alignment. Floating-point dtypes only.
#pragma once

#include "gyre/tensor.h"

namespace gyre::fusion {

// out = in, converted to out's dtype (through float where one is a half type: rounded to nearest even).
// REQUIRES: equal counts; no overlap, unless they are the same elements of the same dtype.
void Convert(ConstTensorView in, TensorView out);

// out += in. REQUIRES: equal counts and dtypes.
void Add(ConstTensorView in, TensorView out);

// in_out *= scale.
void Scale(TensorView in_out, double scale);

// In double precision. Not finite if an element is not; of kF64 also where squares overflow (see AllFinite).
double SumOfSquares(ConstTensorView in);

bool AllFinite(ConstTensorView in);

}  // namespace gyre::fusion
