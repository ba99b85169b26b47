// A threshold from a sample: about as many of a tensor's elements are above it as are wanted, if the sample is like
// all. For the loops of src/compression on the CPU and, before the pass of dgc.h, the kernels on a GPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "device/kernels/dgc.h"
#include "device/kernels/kth.h"
#include "device/kernels/random.h"
#include "device/kernels/team.h"

namespace gyre::device::kernels {

struct SamplePlan {
  int64_t elements = 0;  // of the sample: one by lot from each of as many runs
  int64_t rank = 0;      // the threshold is just below the rank-th largest of them
};

// Where `wanted` of `count` elements are: a hundredth of all, more where of the wanted ones less than a hundred would
// be in the sample. For the host. REQUIRES: 1 <= wanted <= count
inline SamplePlan PlanSample(int64_t count, int64_t wanted) {
  constexpr double kShare = 0.01, kWanted = 100;
  const double density = static_cast<double>(wanted) / static_cast<double>(count);
  const double elements = std::max(kShare * static_cast<double>(count), kWanted / density);
  SamplePlan plan;
  plan.elements = std::min<int64_t>(count, std::llround(elements));
  plan.rank = std::clamp<int64_t>(std::llround(density * static_cast<double>(plan.elements)), 1, plan.elements);
  return plan;
}

// What element `at` of a tensor is before it is accumulated, as a key; what is not finite counts as 0.
template <class Element>
GYRE_GPU uint32_t SampleKey(const DgcTensor& tensor, const DgcStep& step, int64_t at) {
  const auto* const gradient = static_cast<const typename Element::Stored*>(tensor.gradient);
  const uint32_t key = Key(tensor.velocity[at] + Element::Load(gradient[at]) * step.scale);
  return key < kInfinityBits ? key : 0;
}

// What thread `thread` of `threads` does to draw the sample of tensor `number`.
template <class Element>
GYRE_GPU void DrawShare(const DgcTable& table, const DgcStep& step, uint32_t number, int64_t thread, int64_t threads) {
  const DgcTensor tensor = table.tensors[number];
  const RandomChoice choice{step.seed, tensor.sample_count, tensor.count};
  for (int64_t i = thread; i < choice.chosen; i += threads) {
    tensor.sample[i] = SampleKey<Element>(tensor, step, PositionOf(choice, i));
  }
}

// Makes the threshold of tensor `number` what its sample suggests. A Team of any size from 32 to kBins.
template <class Team>
GYRE_GPU void SetThreshold(Team& team, const DgcTable& table, uint32_t number, SelectShared<Team>& shared) {
  const DgcTensor tensor = table.tensors[number];
  if (tensor.sample_count == 0) return;
  const auto each = [&](int thread, const auto& body) {
    constexpr int64_t kAhead = 8, kRow = Team::kThreads;
    for (int64_t i = thread; i < tensor.sample_count; i += kAhead * kRow) {
      uint32_t keys[kAhead];
      GYRE_GPU_UNROLL
      for (int64_t k = 0; k < kAhead; ++k) {  // all loads before anything is counted
        const int64_t at = i + k * kRow;
        keys[k] = at < tensor.sample_count ? tensor.sample[at] : ~0u;
      }
      GYRE_GPU_UNROLL
      for (const uint32_t key : keys) body(key);
    }
  };
  uint32_t kth = 0, larger = 0;
  NarrowToKth(team, each, tensor.sample_rank, kth, larger, shared);
  team.Each([&](int thread) {
    if (thread == 0) tensor.state->threshold = FromBits(kth == 0 ? 0 : kth - 1);  // itself included
  });
}

}  // namespace gyre::device::kernels
