// Layout: where gradients lie in one piece of memory, and with how few calls a plan's buckets are reduced there. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fusion/plan.h"

namespace gyre::fusion {

// Gradients stay where the first plan put them: its buckets one after the other.
struct Layout {
  std::vector<int64_t> begins;  // by tensor: its first byte
  std::vector<int64_t> ends;    // by tensor: where the next one after it would begin
  int64_t bytes = 0;            // of all
};

Layout MakeLayout(std::span<const TensorInfo> tensors, const Plan& plan);

// What one collective call reduces: tensors of one bucket that lie one after the other, or a piece of one tensor.
struct Part {
  int bucket = 0;
  std::vector<int> tensors = {};
  int64_t begin = 0;  // byte in the layout
  int64_t count = 0;  // elements, gaps between tensors included
  DType dtype = DType::kF32;
  bool last = true;  // its tensors are whole after it; false: a piece of one of which more is to come
};

// In the plan's order. A tensor of `own_call_bytes` or more is a part of its own. Tensors without elements are in none.
std::vector<Part> MakeParts(std::span<const TensorInfo> tensors, const Plan& plan, const Layout& layout,
                            int64_t own_call_bytes);

}  // namespace gyre::fusion
