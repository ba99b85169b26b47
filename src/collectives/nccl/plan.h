// From a call to what NCCL is to do for it. Pure: the same on all ranks but for where their buffers lie.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/call.h"
#include "collectives/nccl/api.h"
#include "device/reduce.h"

namespace gyre::internal::nccl {

// In this order.
struct Plan {
  const void* copy_from = nullptr;  // copied to the scratch memory first; null: nothing is
  int64_t copy_bytes = 0;
  std::vector<Transfer> group;  // one launch
  TensorView finished = {};     // what is left to do of scales and division, in place; empty: nothing
  device::Reduction finish = {};
};

// Bytes of scratch memory that the plan of this call needs.
int64_t ScratchBytes(const Call& call);

// REQUIRES: Takes(call); Validate(call, rank, size) is OK; `scratch` has ScratchBytes(call).
Plan PlanOf(const Call& call, int rank, int size, void* scratch);

}  // namespace gyre::internal::nccl
