// The instruction sets of this machine, one after the other.
#pragma once

#include <bit>
#include <cstdint>
#include <string>

#include "hwy/highway.h"
#include "hwy/targets.h"

namespace gyre::compression {

// Calls body(name) with each in use, and restores the choice. Not beside other threads that use SIMD.
template <typename Body>
void ForEachTarget(Body body) {
  const int64_t supported = hwy::SupportedTargets();
  for (int64_t left = supported; left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body(std::string(hwy::TargetName(target)));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace gyre::compression
