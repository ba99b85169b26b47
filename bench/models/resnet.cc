#include <array>
#include <string>
#include <utility>

#include "builder.h"
#include "generators.h"

namespace gyre::bench {

namespace {

// A bottleneck: 1x1, 3x3, 1x1 to four times the width, beside a projection where the extent changes.
Extent Bottleneck(Builder& net, const std::string& name, const Extent& in, int64_t width, int64_t stride) {
  Extent at = net.Conv(name + ".conv1", in, width, Square(1));
  net.Norm(name + ".bn1", width);
  at = net.Conv(name + ".conv2", at, width, Square(3, stride, 1));
  net.Norm(name + ".bn2", width);
  at = net.Conv(name + ".conv3", at, 4 * width, Square(1));
  net.Norm(name + ".bn3", 4 * width);
  if (stride != 1 || in.channels != 4 * width) {
    net.Conv(name + ".downsample.0", in, 4 * width, Square(1, stride));
    net.Norm(name + ".downsample.1", 4 * width);
  }
  return at;
}

Model ResNet(std::string name, const std::array<int, 4>& blocks) {
  Builder net(std::move(name), "224 x 224 image, 1000 classes");
  Extent at = net.Conv("conv1", {3, 224, 224}, 64, Square(7, 2, 3));
  net.Norm("bn1", 64);
  at = Pool(at, Square(3, 2, 1));
  int64_t width = 64;
  for (size_t layer = 0; layer < blocks.size(); ++layer, width *= 2) {
    for (int block = 0; block < blocks[layer]; ++block) {
      const std::string prefix = "layer" + std::to_string(layer + 1) + "." + std::to_string(block);
      at = Bottleneck(net, prefix, at, width, layer > 0 && block == 0 ? 2 : 1);
    }
  }
  net.Linear("fc", at.channels, 1000);
  return std::move(net).Build();
}

}  // namespace

Model ResNet50() {
  return ResNet("resnet50", {3, 4, 6, 3});
}

Model ResNet101() {
  return ResNet("resnet101", {3, 4, 23, 3});
}

}  // namespace gyre::bench
