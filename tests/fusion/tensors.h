// Tensors to plan buckets for.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fusion/plan.h"

namespace gyre::fusion {

// Tensors of floats, one for each of `counts`, named t0, t1 and so on.
inline std::vector<TensorInfo> Floats(const std::vector<int64_t>& counts) {
  std::vector<TensorInfo> tensors;
  for (const int64_t count : counts) tensors.push_back({absl::StrCat("t", tensors.size()), count, DType::kF32});
  return tensors;
}

}  // namespace gyre::fusion
