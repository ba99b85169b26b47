#include <string>
#include <utility>

#include "builder.h"
#include "generators.h"

namespace gyre::bench {

namespace {

// Branches of one block: each layer is named and written down as it is reached.
class InceptionBlock {
 public:
  InceptionBlock(Builder& net, std::string name, const Extent& in) : net_(net), name_(std::move(name)), in_(in) {}

  Extent Layer(const std::string& layer, const Extent& in, int64_t channels, const Kernel& kernel) {
    const std::string name = name_.empty() ? layer : name_ + "." + layer;
    const Extent out = net_.Conv(name + ".conv", in, channels, kernel);
    net_.Norm(name + ".bn", channels);
    return out;
  }
  Extent First(const std::string& layer, int64_t channels, const Kernel& kernel) {
    return Layer(layer, in_, channels, kernel);
  }
  // What the branches make together.
  Extent Joined(int64_t channels) const { return {channels, in_.height, in_.width}; }

 private:
  Builder& net_;
  const std::string name_;
  const Extent in_;
};

// Figures 5 to 7 of the paper, from 35 x 35 to 8 x 8.
Extent MixedA(Builder& net, const std::string& name, const Extent& in, int64_t pool) {
  InceptionBlock block(net, name, in);
  block.First("branch1x1", 64, Square(1));
  block.Layer("branch5x5_2", block.First("branch5x5_1", 48, Square(1)), 64, Same(5, 5));
  const Extent middle = block.Layer("branch3x3dbl_2", block.First("branch3x3dbl_1", 64, Square(1)), 96, Same(3, 3));
  block.Layer("branch3x3dbl_3", middle, 96, Same(3, 3));
  block.First("branch_pool", pool, Square(1));
  return block.Joined(64 + 64 + 96 + pool);
}

Extent MixedB(Builder& net, const std::string& name, const Extent& in) {
  InceptionBlock block(net, name, in);
  Extent out = block.First("branch3x3", 384, Square(3, 2));
  const Extent middle = block.Layer("branch3x3dbl_2", block.First("branch3x3dbl_1", 64, Square(1)), 96, Same(3, 3));
  block.Layer("branch3x3dbl_3", middle, 96, Square(3, 2));
  out.channels = 384 + 96 + in.channels;
  return out;
}

Extent MixedC(Builder& net, const std::string& name, const Extent& in, int64_t width) {
  InceptionBlock block(net, name, in);
  block.First("branch1x1", 192, Square(1));
  Extent at = block.Layer("branch7x7_2", block.First("branch7x7_1", width, Square(1)), width, Same(1, 7));
  block.Layer("branch7x7_3", at, 192, Same(7, 1));
  at = block.Layer("branch7x7dbl_2", block.First("branch7x7dbl_1", width, Square(1)), width, Same(7, 1));
  at = block.Layer("branch7x7dbl_4", block.Layer("branch7x7dbl_3", at, width, Same(1, 7)), width, Same(7, 1));
  block.Layer("branch7x7dbl_5", at, 192, Same(1, 7));
  block.First("branch_pool", 192, Square(1));
  return block.Joined(4 * 192);
}

Extent MixedD(Builder& net, const std::string& name, const Extent& in) {
  InceptionBlock block(net, name, in);
  Extent out = block.Layer("branch3x3_2", block.First("branch3x3_1", 192, Square(1)), 320, Square(3, 2));
  const Extent middle = block.Layer("branch7x7x3_2", block.First("branch7x7x3_1", 192, Square(1)), 192, Same(1, 7));
  block.Layer("branch7x7x3_4", block.Layer("branch7x7x3_3", middle, 192, Same(7, 1)), 192, Square(3, 2));
  out.channels = 320 + 192 + in.channels;
  return out;
}

Extent MixedE(Builder& net, const std::string& name, const Extent& in) {
  InceptionBlock block(net, name, in);
  block.First("branch1x1", 320, Square(1));
  Extent at = block.First("branch3x3_1", 384, Square(1));
  block.Layer("branch3x3_2a", at, 384, Same(1, 3));
  block.Layer("branch3x3_2b", at, 384, Same(3, 1));
  at = block.Layer("branch3x3dbl_2", block.First("branch3x3dbl_1", 448, Square(1)), 384, Same(3, 3));
  block.Layer("branch3x3dbl_3a", at, 384, Same(1, 3));
  block.Layer("branch3x3dbl_3b", at, 384, Same(3, 1));
  block.First("branch_pool", 192, Square(1));
  return block.Joined(320 + 4 * 384 + 192);
}

Extent Stem(Builder& net, const Extent& image) {
  InceptionBlock stem(net, "", image);
  Extent at = stem.Layer("Conv2d_2a_3x3", stem.First("Conv2d_1a_3x3", 32, Square(3, 2)), 32, Square(3));
  at = Pool(stem.Layer("Conv2d_2b_3x3", at, 64, Same(3, 3)), Square(3, 2));
  at = stem.Layer("Conv2d_4a_3x3", stem.Layer("Conv2d_3b_1x1", at, 80, Square(1)), 192, Square(3));
  return Pool(at, Square(3, 2));
}

void InceptionAuxiliary(Builder& net, const Extent& in) {
  InceptionBlock block(net, "AuxLogits", Pool(in, Square(5, 3)));
  block.Layer("conv1", block.First("conv0", 128, Square(1)), 768, Square(5));
  net.Linear("AuxLogits.fc", 768, 1000);
}

}  // namespace

Model Inception3() {
  Builder net("inception3", "299 x 299 image, 1000 classes, auxiliary classifier");
  Extent at = Stem(net, {3, 299, 299});
  at = MixedA(net, "Mixed_5b", at, 32);
  at = MixedA(net, "Mixed_5c", at, 64);
  at = MixedA(net, "Mixed_5d", at, 64);
  at = MixedB(net, "Mixed_6a", at);
  at = MixedC(net, "Mixed_6b", at, 128);
  at = MixedC(net, "Mixed_6c", at, 160);
  at = MixedC(net, "Mixed_6d", at, 160);
  at = MixedC(net, "Mixed_6e", at, 192);
  InceptionAuxiliary(net, at);
  at = MixedD(net, "Mixed_7a", at);
  at = MixedE(net, "Mixed_7b", at);
  at = MixedE(net, "Mixed_7c", at);
  net.Linear("fc", at.channels, 1000);
  return std::move(net).Build();
}

}  // namespace gyre::bench
