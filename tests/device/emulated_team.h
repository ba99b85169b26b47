// Teams of threads that are none: each phase of a kernel (device/kernels/team.h) is a loop over its threads, in an
// order of its own, so that threads of a phase which depend on each other are found out.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <random>

#include "device/kernels/team.h"

namespace gyre::device {

template <int kCount>
class EmulatedTeam {
 public:
  static constexpr int kThreads = kCount;
  static constexpr int kSlots = kCount;
  static int Slot(int thread) { return thread; }

  explicit EmulatedTeam(std::minstd_rand& random) : random_(random) {
    std::iota(order_.begin(), order_.end(), 0);
    std::ranges::shuffle(order_, random_);
  }

  template <class Body>
  void Each(const Body& body) {
    std::rotate(order_.begin(), order_.begin() + static_cast<int>(random_() % kCount), order_.end());
    if (random_() % 2 == 0) std::ranges::reverse(order_);
    for (const int thread : order_) body(thread);
  }

  template <class Body>
  void Do(const Body& body) {
    Each(body);
  }

  template <class Values, class Test>
  void Ballot(Values& votes, const Test& test) {
    for (int warp = 0; warp < kCount; warp += kernels::kWarp) {
      uint32_t bits = 0;
      for (int lane = 0; lane < kernels::kWarp; ++lane) bits |= static_cast<uint32_t>(test(warp + lane)) << lane;
      for (int lane = 0; lane < kernels::kWarp; ++lane) votes[warp + lane] = bits;
    }
  }

  template <class Values>
  uint32_t Largest(const Values& values) {
    static_assert(kCount == kernels::kWarp);
    return *std::ranges::max_element(values.at);
  }

  template <typename T>
  static T Add(T* at, T n) {
    const T before = *at;
    *at += n;
    return before;
  }
  static void RaiseTo(uint32_t* at, uint32_t n) { *at = std::max(*at, n); }

 private:
  std::minstd_rand& random_;
  std::array<int, kCount> order_;
};

}  // namespace gyre::device
