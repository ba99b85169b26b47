// Exact selection by one team of threads: the k-th largest of some keys (element.h).
#pragma once

#include <cstdint>

#include "device/kernels/element.h"
#include "device/kernels/team.h"

namespace gyre::device::kernels {

constexpr uint32_t kBins = 2048;

template <class Team>
struct SelectShared {
  SumShared<Team> sum;
  uint32_t bins[kBins];
  uint32_t bin, larger;  // the bin that has the wanted key; how many keys are in bins above
};

constexpr uint32_t kBinBits = 11;
static_assert(kBins == 1u << kBinBits);
constexpr uint32_t kKeyBits = 31;
constexpr uint32_t kOwnKeys = 16;  // of a short list, a thread

// Keys of [base, base + 2^width) go into bins of 2^shift.
GYRE_GPU inline uint32_t ShiftOf(uint32_t width) {
  return width > kBinBits ? width - kBinBits : 0;
}

// Finds the bin whose keys include the rank-th largest (1 the largest) of all that were counted: shared.bin, and in
// shared.larger how many are in bins above it. REQUIRES: rank is at least 1, and no more than were counted.
template <class Team>
GYRE_GPU void PickBin(Team& team, const uint32_t* bins, uint32_t rank, SelectShared<Team>& shared) {
  constexpr uint32_t kEach = kBins / Team::kThreads;
  Local<Team, uint32_t> own, larger;
  const auto bin_of = [](int thread, uint32_t i) { return kBins - 1 - (static_cast<uint32_t>(thread) * kEach + i); };
  team.Do([&](int thread) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < kEach; ++i) sum += bins[bin_of(thread, i)];
    own[thread] = larger[thread] = sum;
  });
  ExclusiveSum(team, larger, shared.sum);
  team.Each([&](int thread) {
    uint32_t above = larger[thread];
    if (above >= rank || above + own[thread] < rank) return;
    uint32_t i = 0;
    for (; above + bins[bin_of(thread, i)] < rank; ++i) above += bins[bin_of(thread, i)];
    shared.bin = bin_of(thread, i);
    shared.larger = above;
  });
}

// The rank-th largest key: those in ever narrower intervals are counted in bins. `each`(thread, body) calls body with
// each of a thread's keys, every time the same; ~0u is none. Leaves it in `kth`, and how many are above it in `larger`.
// REQUIRES: there are `rank` keys, which is at least 1.
template <class Team, class EachKey>
GYRE_GPU void NarrowToKth(Team& team, const EachKey& each, uint32_t rank, uint32_t& kth, uint32_t& larger,
                          SelectShared<Team>& shared) {
  uint32_t base = 0, width = kKeyBits;
  larger = 0;
  for (;;) {
    const uint32_t shift = ShiftOf(width);
    team.Each([&](int thread) {
      for (auto i = static_cast<uint32_t>(thread); i < kBins; i += Team::kThreads) shared.bins[i] = 0;
    });
    team.Each([&](int thread) {
      each(thread, [&](uint32_t key) {
        const uint32_t offset = key - base;  // of keys below base: huge
        if (offset >> width == 0) Team::Add(&shared.bins[offset >> shift], 1u);
      });
    });
    PickBin(team, shared.bins, rank - larger, shared);
    larger += shared.larger;
    base += shared.bin << shift;
    if (shift == 0) break;
    width = shift;
  }
  kth = base;
}

// As NarrowToKth, of the keys of `count` values. REQUIRES: 1 <= rank <= count <= kOwnKeys * Team::kThreads
template <class Team>
GYRE_GPU void FindKth(Team& team, const float* values, uint32_t count, uint32_t rank, uint32_t& kth, uint32_t& larger,
                      SelectShared<Team>& shared) {
  struct Keys {
    uint32_t at[kOwnKeys];
  };
  Local<Team, Keys> own;
  team.Do([&](int thread) {
    GYRE_GPU_UNROLL
    for (uint32_t k = 0; k < kOwnKeys; ++k) {
      const uint32_t i = k * Team::kThreads + static_cast<uint32_t>(thread);
      own[thread].at[k] = i < count ? Key(values[i]) : ~0u;  // which lies in no interval
    }
  });
  const auto each = [&](int thread, const auto& body) {
    GYRE_GPU_UNROLL
    for (uint32_t k = 0; k < kOwnKeys; ++k) body(own[thread].at[k]);
  };
  NarrowToKth(team, each, rank, kth, larger, shared);
}

}  // namespace gyre::device::kernels
