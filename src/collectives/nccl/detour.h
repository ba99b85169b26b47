// Detour: how a call goes whose tensors some ranks have registered and others have not, or elsewhere: by memory that
// nobody has registered, in rounds of bounded size.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "collectives/nccl/api.h"

namespace gyre::internal::nccl {

// Of the GPU's memory, on a rank that has something registered.
inline constexpr int64_t kDetourBytes = 8 << 20;

// How many rounds it takes among `size` ranks; `most`: bytes of the largest transfer on any rank.
int64_t DetourRounds(int64_t most, int size);

// One launch, with copies before and after it, on one stream.
struct DetourRound {
  struct Move {
    void* to;
    const void* from;
    int64_t bytes;
  };
  std::vector<Move> before;
  std::vector<Transfer> group;
  std::vector<Move> after;
};

// Part of each transfer of the plan's group, the same part on all ranks. `registered`: what NCCL is not to be given; it
// goes by `scratch`, of kDetourBytes. REQUIRES: the plan is by segments (PlanOf).
DetourRound DetourRoundOf(std::span<const Transfer> group, int64_t round, int size, void* scratch,
                          const std::function<bool(const void*)>& registered);

}  // namespace gyre::internal::nccl
