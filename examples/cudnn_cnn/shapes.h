// The network as numbers: what its layers are, how large everything is, and how training goes. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace cudnn_cnn {

struct Extent {
  int height = 0, width = 0, channels = 0;
  int64_t pixels() const { return int64_t{height} * width; }
  int64_t elements() const { return pixels() * channels; }
  auto operator<=>(const Extent&) const = default;
};

// A convolution without a bias, and a batch normalisation behind it.
struct ConvShape {
  std::string name;
  Extent in, out;
  int kernel = 3, stride = 1;
  int padding() const { return kernel / 2; }
  int64_t weights() const { return int64_t{out.channels} * kernel * kernel * in.channels; }
  double flops() const { return 2.0 * static_cast<double>(weights()) * static_cast<double>(out.pixels()); }  // forward
};

// y = relu(second(relu(first(x))) + shortcut(x)), as He et al., "Deep residual learning for image recognition" (CVPR
// 2016), section 3; the shortcut is a 1 x 1 convolution where the extent changes, else nothing.
struct BlockShape {
  ConvShape first, second;
  std::vector<ConvShape> shortcut;  // one or none
};

struct NetworkShape {
  ConvShape stem;
  std::vector<BlockShape> blocks;
  int features = 0;  // of the global average pool
  int classes = 0;

  std::vector<ConvShape> convolutions() const;  // in the order of a forward pass
  int64_t parameters() const;
  double flops() const;  // of a forward and a backward pass of one image; convolutions and the last layer
};

// Channels that the images' are filled up to with zeros: tensor cores take eight at a time.
inline constexpr int kInputChannels = 8;

// Three stages of `blocks` blocks, of `width` channels, twice and four times as many; the second and third halve the
// image.
NetworkShape MakeNetworkShape(int height, int image_width, int classes, int width, int blocks);

// Rises evenly for a twentieth of the steps, and falls to 0 as a cosine does (Loshchilov and Hutter, "SGDR", ICLR
// 2017).
float LearningRate(float highest, int step, int steps);

// Of mean 0 and variance 2 / inputs (He et al., "Delving deep into rectifiers", ICCV 2015). `index`: another one for
// each tensor.
std::vector<float> InitialWeights(uint64_t seed, int index, int64_t count, int64_t inputs);

}  // namespace cudnn_cnn
