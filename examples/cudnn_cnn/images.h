// The images that cudnn_cnn learns to tell apart: from IDX files, or generated; and which of them a step takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cudnn_cnn {

struct Images {
  int count = 0, height = 0, width = 0, channels = 0;
  int classes = 0;
  std::vector<uint8_t> pixels;  // count x height x width x channels
  std::vector<int32_t> labels;  // count, each in [0, classes)
};

// Gratings under noise, in three colours: of ten classes, which differ in the grating's direction and in its colours.
// Every pixel is a pure function of seed, image and place, so that all ranks make the same ones.
Images GenerateImages(uint64_t seed, int count, int side);

// The format of MNIST (yann.lecun.com/exdb/mnist): two zero bytes, 8 for bytes, the number of dimensions, their sizes
// as big-endian 32-bit integers, the data. Images of 3 dimensions, or 4 with the channels last.
//   kNotFound          a file that there is not
//   kInvalidArgument   no IDX file of bytes, compressed, of other dimensions, or of different numbers of both
//   kDataLoss          a file that is shorter or longer than it says
absl::StatusOr<Images> ReadIdx(const std::string& image_file, const std::string& label_file);

// Draws the images of steps, the same for all ranks: every epoch takes each image once, in an order of its own, but for
// what is left when another batch does not fit.
class Sampler {
 public:
  // REQUIRES: 0 < batch <= count.
  Sampler(uint64_t seed, int count, int batch);

  // Rank's share of step 0, 1, 2, ...: `batch` / `ranks` indices. REQUIRES: `ranks` divides the batch.
  std::vector<int32_t> Draw(int64_t step, int rank, int ranks);

 private:
  void Shuffle(int64_t epoch);

  const uint64_t seed_;
  const int batch_, steps_of_epoch_;
  int64_t epoch_ = -1;
  std::vector<int32_t> order_;
};

}  // namespace cudnn_cnn
