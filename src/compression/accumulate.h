// The pass that sparse codecs make over a tensor: accumulate the gradient, and pick out and clear what is large,
// reading and writing everything once. With SIMD, for the best instruction set of the machine; all give the same bits.
#pragma once

#include <cstdint>
#include <span>

namespace gyre::compression {

// How a gradient is accumulated.
struct Accumulation {
  float* momentum = nullptr;        // u; null: v += scale * g
  float* velocity = nullptr;        // v
  const float* gradient = nullptr;  // g; null: v as it is (and u cleared where v is picked out)
  float* cleared = nullptr;         // g's memory, where it is to become 0 once it was read; else null
  float factor = 0;                 // of momentum
  float scale = 1;                  // of the gradient
  bool nesterov = false;
  bool masked = true;  // u is cleared where v is picked out
};

// What was picked out, in the order of positions. Elements are compared by the bits of their magnitude: so a NaN is
// larger than infinity, and nothing is unordered.
struct Candidates {
  uint32_t* indices = nullptr;
  float* velocities = nullptr;
  float* momenta = nullptr;  // what u was there; untouched if there is no u
  int64_t count = 0;
  int64_t capacity = 0;  // >= kCandidateSlack
};

// A pass stops when fewer places than this are left.
inline constexpr int64_t kCandidateSlack = 512;

struct PassResult {
  int64_t end = 0;         // where it stopped: the end, or before it for want of places
  int64_t non_finite = 0;  // elements of the gradient before that which are NaN or infinite; they count as 0
};

// Accumulates elements [begin, end): u = factor * u + scale * g, v = v + u; or with nesterov
// u = factor * (u + scale * g), v = v + u + scale * g. Every operation is rounded on its own. Elements with
// |v| > threshold are appended to `candidates`, and cleared in v (and u, if masked).
// REQUIRES: threshold >= 0; end <= 2^32; arrays do not overlap (but for `cleared`, which is the gradient or null).
PassResult AccumulateAndSelect(const Accumulation& arrays, int64_t begin, int64_t end, float threshold,
                               Candidates& candidates);

// The same without picking anything out, or clearing the gradient: what a dense codec does, and the yardstick of the
// above. Returns the number of elements of the gradient that are NaN or infinite.
int64_t Accumulate(const Accumulation& arrays, int64_t begin, int64_t end);

struct Squares {
  double sum = 0;          // of the squares of finite elements
  int64_t non_finite = 0;  // the others
};

// In double. The order of additions depends on the instruction set.
Squares SumOfSquares(std::span<const float> values);

}  // namespace gyre::compression
