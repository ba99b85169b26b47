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

// Bytes of the largest transfer in the group by segments.
int64_t LargestTransfer(const Call& call);

// `by_segments`: each transfer has one input and one output of its `count`, also where NCCL has a call for all of them.
// REQUIRES: Takes(call); Validate(call, rank, size) is OK; `scratch` has ScratchBytes(call).
Plan PlanOf(const Call& call, int rank, int size, void* scratch, bool by_segments = false);

}  // namespace gyre::internal::nccl
