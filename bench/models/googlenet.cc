#include <string>
#include <utility>

#include "builder.h"
#include "generators.h"

namespace gyre::bench {

namespace {

Extent ConvNorm(Builder& net, const std::string& name, const Extent& in, int64_t channels, const Kernel& kernel) {
  const Extent out = net.Conv(name + ".conv", in, channels, kernel);
  net.Norm(name + ".bn", channels);
  return out;
}

// The output channels of a block's branches: 1x1; 1x1 then 3x3; 1x1 then 3x3 (5x5 in the paper, 3x3 in the form that
// is in use); pooling then 1x1.
struct Widths {
  int64_t one, reduce3, three, reduce5, five, pool;
};

Extent GoogLeNetBlock(Builder& net, const std::string& name, const Extent& in, const Widths& widths) {
  ConvNorm(net, name + ".branch1", in, widths.one, Square(1));
  ConvNorm(net, name + ".branch2.1", ConvNorm(net, name + ".branch2.0", in, widths.reduce3, Square(1)), widths.three,
           Same(3, 3));
  ConvNorm(net, name + ".branch3.1", ConvNorm(net, name + ".branch3.0", in, widths.reduce5, Square(1)), widths.five,
           Same(3, 3));
  ConvNorm(net, name + ".branch4.1", in, widths.pool, Square(1));
  return {widths.one + widths.three + widths.five + widths.pool, in.height, in.width};
}

// A classifier on what a middle layer sees, for training alone.
void GoogLeNetAuxiliary(Builder& net, const std::string& name, const Extent& in) {
  ConvNorm(net, name + ".conv", {in.channels, 4, 4}, 128, Square(1));
  net.Linear(name + ".fc1", 2048, 1024);
  net.Linear(name + ".fc2", 1024, 1000);
}

}  // namespace

Model GoogLeNet() {
  Builder net("googlenet", "224 x 224 image, 1000 classes, auxiliary classifiers");
  Extent at = ConvNorm(net, "conv1", {3, 224, 224}, 64, Square(7, 2, 3));
  at = ConvNorm(net, "conv2", Pool(at, Square(3, 2), true), 64, Square(1));
  at = Pool(ConvNorm(net, "conv3", at, 192, Same(3, 3)), Square(3, 2), true);
  at = GoogLeNetBlock(net, "inception3a", at, {64, 96, 128, 16, 32, 32});
  at = GoogLeNetBlock(net, "inception3b", at, {128, 128, 192, 32, 96, 64});
  at = GoogLeNetBlock(net, "inception4a", Pool(at, Square(3, 2), true), {192, 96, 208, 16, 48, 64});
  GoogLeNetAuxiliary(net, "aux1", at);
  at = GoogLeNetBlock(net, "inception4b", at, {160, 112, 224, 24, 64, 64});
  at = GoogLeNetBlock(net, "inception4c", at, {128, 128, 256, 24, 64, 64});
  at = GoogLeNetBlock(net, "inception4d", at, {112, 144, 288, 32, 64, 64});
  GoogLeNetAuxiliary(net, "aux2", at);
  at = GoogLeNetBlock(net, "inception4e", at, {256, 160, 320, 32, 128, 128});
  at = GoogLeNetBlock(net, "inception5a", Pool(at, Square(2, 2), true), {256, 160, 320, 32, 128, 128});
  at = GoogLeNetBlock(net, "inception5b", at, {384, 192, 384, 48, 128, 128});
  net.Linear("fc", at.channels, 1000);
  return std::move(net).Build();
}

}  // namespace gyre::bench
