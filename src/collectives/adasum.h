// Adasum: combines the gradients of ranks so that what they agree on is averaged and what is independent adds up.
//
// Of two vectors, adasum(a, b) = (1 - a.b / (2 a.a)) a + (1 - a.b / (2 b.b)) b; a vector of zeroes changes nothing.
// Of p ranks, adasum(the first q, the other p - q), q being the largest power of two below p: always in this order, so
// that all ranks compute the same bits. From Maleki, Musuvathi, Mytkowicz, Saarikivi, Xu, Eksarevskiy, Ekanayake and
// Barsoum, "Scaling Distributed Training with Adaptive Summation" (arXiv 2006.02924, 2020), the sections on the
// operator and on its recursive application.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gyre/tensor.h"

namespace gyre::internal {

// The vectors of all ranks, and their combination step by step. Float for f16, bf16 and f32, double for f64; scalar
// products are sums of doubles. Memory: 4 (f64: 8) bytes an element and rank.
class AdasumWork {
 public:
  // REQUIRES: dtype is a floating-point one.
  AdasumWork(DType dtype, int ranks, int64_t count);

  // Elements [first, first + length) of a rank's vector, times `scale`.
  void Take(int rank, int64_t first, const void* data, int64_t length, double scale);

  // Combines two vectors; false if nothing is left to combine. A pass over both, twice.
  bool Combine();

  // The result times `scale`, rounded once. REQUIRES: Combine has returned false.
  void Store(void* data, double scale) const;

 private:
  void AddPairs(int first, int ranks);

  const DType dtype_;
  const int64_t count_;
  std::vector<std::vector<float>> floats_;    // by rank; either these
  std::vector<std::vector<double>> doubles_;  // or those
  std::vector<std::pair<int, int>> pairs_;    // in the order of combining; the result replaces the first
  size_t next_ = 0;
};

}  // namespace gyre::internal
