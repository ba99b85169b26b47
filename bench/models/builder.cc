#include "builder.h"

#include <utility>

namespace gyre::bench {

namespace {

int64_t Windows(int64_t length, int64_t size, int64_t stride, int64_t pad, bool up) {
  const int64_t room = length + 2 * pad - size;
  return (up ? room + stride - 1 : room) / stride + 1;
}

}  // namespace

Kernel Square(int64_t size, int64_t stride, int64_t pad) {
  return {size, size, stride, pad, pad};
}

Kernel Same(int64_t height, int64_t width) {
  return {height, width, 1, height / 2, width / 2};
}

Extent Pool(const Extent& in, const Kernel& kernel, bool up) {
  return {in.channels, Windows(in.height, kernel.height, kernel.stride, kernel.pad_height, up),
          Windows(in.width, kernel.width, kernel.stride, kernel.pad_width, up)};
}

Extent Builder::Conv(const std::string& name, const Extent& in, int64_t channels, const Kernel& kernel, Bias bias) {
  Extent out = Pool(in, kernel);
  out.channels = channels;
  const int64_t products = channels * in.channels * kernel.height * kernel.width * out.height * out.width;
  Add(name + ".weight", {channels, in.channels, kernel.height, kernel.width}, 2.0 * static_cast<double>(products));
  if (bias == Bias::kYes) Add(name + ".bias", {channels});
  return out;
}

void Builder::Norm(const std::string& name, int64_t channels) {
  Add(name + ".weight", {channels});
  Add(name + ".bias", {channels});
}

void Builder::Linear(const std::string& name, int64_t in, int64_t out, int64_t rows) {
  Add(name + ".weight", {out, in}, 2.0 * static_cast<double>(in * out * rows));
  Add(name + ".bias", {out});
}

void Builder::Add(std::string name, std::vector<int64_t> shape, double forward_flops) {
  model_.parameters.push_back({std::move(name), std::move(shape), forward_flops});
}

}  // namespace gyre::bench
