// What the parts of `gyre-bench compression` share.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "commands.h"

namespace gyre::bench {

// Seconds that `body` takes.
template <typename Body>
double SecondsOf(Body body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The fused pass of DGC beside the plain update of u and v, sample by sample. `json` may be null, here and below.
absl::Status MeasurePass(const CompressionOptions& options, std::FILE* json);

// How many times fewer bytes a rank sends of a model's gradients with DGC, by several ways to count.
absl::Status MeasureModels(const CompressionOptions& options, std::FILE* json);

// The codes of positions, at the sparsity of the options.
absl::Status MeasureIndexCodes(const CompressionOptions& options, std::FILE* json);

}  // namespace gyre::bench
