// How kernels are written so that the same code runs on a GPU and, thread by thread, on the CPU of a test.
//
// A kernel is a function template over a Team: threads that go through phases together. What a thread keeps from one
// phase to the next is a Local; what threads share is a struct that they all see. On a GPU (cuda/team.cuh) a Team is a
// block or a warp, and a phase ends with its barrier; on the CPU (tests/device/emulated_team.h) a phase is a loop over
// the threads, in an order from a seed, so that a phase whose threads depend on each other gives wrong results. Code
// between phases is every thread's, and reads of shared memory only what the phase behind it does not write.
//
//   Team::kThreads               how many threads
//   Each(body)                   body(thread) for each; then all see what all have written
//   Do(body)                     the same without a barrier: for what touches nothing of the team but Locals, or only
//                                adds to what nothing reads before the next Each has ended
//   Ballot(votes, test)          votes[thread] = test of the 32 threads of its warp, as bits
//   Largest(values)              of all threads' values; a Team of 32 threads only
//   Add(at, n), RaiseTo(at, n)   atomically; Add returns what was there
#pragma once

#include <bit>
#include <cstdint>

// GYRE_GPU_UNROLL: before a loop over a Local's arrays, which is only kept in registers if all its indices are
// constant.
#ifdef __CUDACC__
#define GYRE_GPU __device__
#define GYRE_GPU_UNROLL _Pragma("unroll")
#else
#define GYRE_GPU
#define GYRE_GPU_UNROLL
#endif

namespace gyre::device::kernels {

// What each thread of a team keeps: a register on a GPU.
template <class Team, typename T>
struct Local {
  T at[Team::kSlots];
  GYRE_GPU T& operator[](int thread) { return at[Team::Slot(thread)]; }
  GYRE_GPU const T& operator[](int thread) const { return at[Team::Slot(thread)]; }
};

constexpr int kWarp = 32;

GYRE_GPU inline uint32_t CountBits(uint32_t bits) {
#ifdef __CUDACC__
  return static_cast<uint32_t>(__popc(bits));
#else
  return static_cast<uint32_t>(std::popcount(bits));
#endif
}

// The bits of the threads before this one in its warp.
GYRE_GPU inline uint32_t Before(int thread) {
  return (1u << (thread % kWarp)) - 1;
}

template <class Team>
struct SumShared {
  uint32_t sums[Team::kThreads + Team::kThreads / kWarp];  // with gaps, for shared memory has 32 banks
  uint32_t parts[kWarp];
  uint32_t total;
};

// Each thread's value becomes the sum of the values of the threads before it. Returns the sum of all.
template <class Team>
GYRE_GPU uint32_t ExclusiveSum(Team& team, Local<Team, uint32_t>& values, SumShared<Team>& shared) {
  constexpr int kEach = Team::kThreads / kWarp;
  const auto place = [](int i) { return i + i / kWarp; };
  team.Each([&](int thread) { shared.sums[place(thread)] = values[thread]; });
  team.Each([&](int thread) {
    if (thread >= kWarp) return;
    uint32_t sum = 0;
    for (int i = thread * kEach; i < (thread + 1) * kEach; ++i) {
      const uint32_t value = shared.sums[place(i)];
      shared.sums[place(i)] = sum;
      sum += value;
    }
    shared.parts[thread] = sum;
  });
  team.Each([&](int thread) {
    if (thread != 0) return;
    uint32_t sum = 0;
    for (uint32_t& part : shared.parts) {
      const uint32_t value = part;
      part = sum;
      sum += value;
    }
    shared.total = sum;
  });
  team.Each([&](int thread) { values[thread] = shared.sums[place(thread)] + shared.parts[thread / kEach]; });
  return shared.total;
}

}  // namespace gyre::device::kernels
