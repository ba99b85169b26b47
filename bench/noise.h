// Noise that measurements work on.
#pragma once

#include <cstdint>
#include <vector>

namespace gyre::bench {

// Normally distributed, of standard deviation 1; the same for the same seed, which is not 0.
void FillNormal(std::vector<float>& values, uint64_t seed);

}  // namespace gyre::bench
