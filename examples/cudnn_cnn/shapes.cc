#include "shapes.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "random.h"

namespace cudnn_cnn {

namespace {

ConvShape Conv(std::string name, const Extent& in, int channels, int kernel, int stride) {
  ConvShape shape{.name = std::move(name), .in = in, .out = {}, .kernel = kernel, .stride = stride};
  const auto extent = [&](int size) { return (size + 2 * shape.padding() - kernel) / stride + 1; };
  shape.out = {.height = extent(in.height), .width = extent(in.width), .channels = channels};
  return shape;
}

BlockShape Block(const std::string& name, const Extent& in, int channels, int stride) {
  BlockShape block;
  block.first = Conv(name + ".first", in, channels, 3, stride);
  block.second = Conv(name + ".second", block.first.out, channels, 3, 1);
  if (stride != 1 || in.channels != channels) block.shortcut = {Conv(name + ".shortcut", in, channels, 1, stride)};
  return block;
}

}  // namespace

std::vector<ConvShape> NetworkShape::convolutions() const {
  std::vector<ConvShape> all = {stem};
  for (const BlockShape& block : blocks) {
    all.push_back(block.first);
    all.push_back(block.second);
    all.insert(all.end(), block.shortcut.begin(), block.shortcut.end());
  }
  return all;
}

int64_t NetworkShape::parameters() const {
  int64_t count = int64_t{features + 1} * classes;
  for (const ConvShape& each : convolutions()) count += each.weights() + 2 * each.out.channels;
  return count;
}

double NetworkShape::flops() const {
  double forward = 2.0 * features * classes;
  for (const ConvShape& each : convolutions()) forward += each.flops();
  return 3 * forward - stem.flops();  // nobody asks for the images' gradient
}

NetworkShape MakeNetworkShape(int height, int image_width, int classes, int width, int blocks) {
  constexpr int kStages = 3;
  NetworkShape shape;
  shape.stem = Conv("stem", {.height = height, .width = image_width, .channels = kInputChannels}, width, 3, 1);
  Extent at = shape.stem.out;
  for (int stage = 0; stage < kStages; ++stage) {
    for (int i = 0; i < blocks; ++i) {
      const std::string name = "stage" + std::to_string(stage + 1) + "." + std::to_string(i);
      shape.blocks.push_back(Block(name, at, width << stage, stage > 0 && i == 0 ? 2 : 1));
      at = shape.blocks.back().second.out;
    }
  }
  shape.features = at.channels;
  shape.classes = classes;
  return shape;
}

float LearningRate(float highest, int step, int steps) {
  const int rising = std::max(1, steps / 20);
  if (step < rising) return highest * static_cast<float>(step + 1) / static_cast<float>(rising);
  const double done = static_cast<double>(step - rising) / std::max(1, steps - rising);
  return highest * static_cast<float>(0.5 + 0.5 * std::cos(std::numbers::pi * done));
}

std::vector<float> InitialWeights(uint64_t seed, int index, int64_t count, int64_t inputs) {
  Random random(seed, uint64_t{1} << 40 | static_cast<uint64_t>(index));
  const double deviation = std::sqrt(2.0 / static_cast<double>(inputs));
  std::vector<float> weights(static_cast<size_t>(count));
  for (float& weight : weights) weight = static_cast<float>(deviation * random.Normal());
  return weights;
}

}  // namespace cudnn_cnn
