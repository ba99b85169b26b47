// The command line of torch_cnn.
#pragma once

#include <cstdint>
#include <optional>

namespace torch_cnn {

struct Options {
  int steps = 200;
  int batch = 64;  // images a step, over all ranks
  float learning_rate = 0.003f;
  float noise = 1.5f;
  uint64_t seed = 1;
  int test_images = 2000;  // over all ranks
  int threads = 1;         // of LibTorch, on each rank
};

// Reads the command line. A value is the exit code to end with: --help, or wrong usage.
std::optional<int> ParseOptions(int argc, char** argv, Options& options);

}  // namespace torch_cnn
