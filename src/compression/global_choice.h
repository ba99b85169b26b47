// Which of a tensor's sums over the ranks are told to all ranks, where about as many as one rank sends are to be. Li,
// Hoefler, "Near-Optimal Sparse Allreduce for Distributed Deep Learning" (Ok-Topk), PPoPP 2022, section 3: above a
// threshold. There that of an earlier step is taken again; but which sums are large depends on what the step before has
// left, and thresholds that lag behind swing. So here those who have the sums tell each other a few points of their
// distribution, in the same step, and all derive the same threshold from them. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gyre::compression {

inline constexpr int kTailPoints = 16;

// What one of `owners` of parts of a tensor tells of its sums' magnitudes, where `wanted` of all are to be chosen: the
// magnitudes at kTailPoints ranks, evenly spaced by their logarithms, from a quarter of its share of the `wanted` to
// all of them; 0 where it has fewer. Reorders them. REQUIRES: they are above 0; wanted, owners >= 1.
std::vector<float> TailPoints(std::span<float> magnitudes, int64_t wanted, int owners);

// Above what magnitude there are about `wanted` sums: `points` are those of all owners, one after the other (what is
// not above 0 counts as 0). 0 where there are no more than are wanted.
float GlobalThreshold(std::span<const float> points, int64_t wanted);

}  // namespace gyre::compression
