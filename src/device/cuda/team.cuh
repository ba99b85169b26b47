// Teams of threads on a GPU: see device/kernels/team.h.
#pragma once

#include <cstdint>

#include "device/kernels/team.h"

namespace gyre::device::cuda {

namespace detail {

// What blocks and warps have in common.
struct Threads {
  static constexpr int kSlots = 1;
  static __device__ int Slot(int /*thread*/) { return 0; }

  template <class Values, class Test>
  __device__ void Ballot(Values& votes, const Test& test) {
    votes[0] = __ballot_sync(0xffffffffu, test(Thread()));
  }

  static __device__ uint32_t Add(uint32_t* at, uint32_t n) { return atomicAdd(at, n); }
  static __device__ void Add(uint64_t* at, uint64_t n) {
    static_assert(sizeof(uint64_t) == sizeof(unsigned long long));
    atomicAdd(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(n));
  }
  static __device__ void RaiseTo(uint32_t* at, uint32_t n) { atomicMax(at, n); }

 protected:
  static __device__ int Thread() { return static_cast<int>(threadIdx.x); }
};

}  // namespace detail

// All threads of a block of kCount. One dimension.
template <int kCount>
struct Block : detail::Threads {
  static constexpr int kThreads = kCount;

  template <class Body>
  __device__ void Each(const Body& body) {
    body(Thread());
    __syncthreads();
  }
  template <class Body>
  __device__ void Do(const Body& body) {
    body(Thread());
  }
};

// A warp of a block of one dimension.
struct Warp : detail::Threads {
  static constexpr int kThreads = kernels::kWarp;

  template <class Body>
  __device__ void Each(const Body& body) {
    body(Lane());
    __syncwarp();
  }
  template <class Body>
  __device__ void Do(const Body& body) {
    body(Lane());
  }
  template <class Values, class Test>
  __device__ void Ballot(Values& votes, const Test& test) {
    votes[0] = __ballot_sync(0xffffffffu, test(Lane()));
  }
  template <class Values>
  __device__ uint32_t Largest(const Values& values) {
    return __reduce_max_sync(0xffffffffu, values[0]);
  }

 private:
  static __device__ int Lane() { return Thread() % kernels::kWarp; }
};

}  // namespace gyre::device::cuda
