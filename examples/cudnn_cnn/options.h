// The command line of cudnn_cnn.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace cudnn_cnn {

enum class Precision { kF32, kBf16 };

struct Options {
  int steps = 300;
  int batch = 256;  // images a step, over all ranks
  float learning_rate = 0.1f;
  float momentum = 0.9f;
  float decay = 5e-4f;
  int width = 64;  // channels of the first stage
  int blocks = 2;  // residual blocks of each stage
  Precision precision = Precision::kF32;
  uint64_t seed = 1;
  int images = 8192;  // that are generated, where no files are given
  int side = 32;      // pixels of those
  std::string image_file{}, label_file{};
  bool overlap = true;
  int report_every = 20;
  bool json = false;
};

// Reads the command line. A value is the exit code to end with: --help, or wrong usage.
std::optional<int> ParseOptions(int argc, const char* const* argv, Options& options);

}  // namespace cudnn_cnn
