// What gradients hold when a step's result is checked: every rank's differ, and the sum is known in closed form.
#pragma once

#include <cstdint>
#include <span>

namespace gyre::bench {

// Gradient `i` of `rank`. Small whole numbers, whose sums over up to 2^18 ranks floats hold exactly.
void FillGradient(std::span<float> gradient, int i, int rank);

// How many elements are not, bit by bit, the sums over all ranks.
int64_t CountWrongSums(std::span<const float> sums, int i, int ranks);

}  // namespace gyre::bench
