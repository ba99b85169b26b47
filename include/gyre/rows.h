// Row gradients: gradients of which a step touches only some rows of the parameter, an embedding's for one.
#pragma once

#include <cstdint>
#include <span>

#include "gyre/tensor.h"

namespace gyre {

// Rows of a matrix, by their numbers: the values of rows[i] are the i-th `values.count / rows.size()` elements. Owns
// nothing.
struct RowsView {
  std::span<const int64_t> rows = {};
  ConstTensorView values = {};
};

}  // namespace gyre
