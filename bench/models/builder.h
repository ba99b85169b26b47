// Builder: writes down a network layer by layer, in the order of its forward pass.
#pragma once

#include <cstdint>
#include <string>

#include "model.h"

namespace gyre::bench {

// The activations of one sample.
struct Extent {
  int64_t channels, height, width;
};

// A kernel of height x width; the padding is that of each side.
struct Kernel {
  int64_t height, width;
  int64_t stride = 1;
  int64_t pad_height = 0, pad_width = 0;
};

// A square one, and one that keeps height and width. REQUIRES of Same: odd sizes.
Kernel Square(int64_t size, int64_t stride = 1, int64_t pad = 0);
Kernel Same(int64_t height, int64_t width);

enum class Bias : bool { kNo, kYes };

class Builder {
 public:
  Builder(std::string name, std::string variant) : model_{std::move(name), std::move(variant), {}} {}

  // "<name>.weight" and, if asked for, "<name>.bias". Returns the layer's output.
  Extent Conv(const std::string& name, const Extent& in, int64_t channels, const Kernel& kernel, Bias bias = Bias::kNo);

  // Scale and shift: "<name>.weight" and "<name>.bias".
  void Norm(const std::string& name, int64_t channels);

  // `rows`: how many vectors of one sample go through it.
  void Linear(const std::string& name, int64_t in, int64_t out, int64_t rows = 1);

  // Any other parameter.
  void Add(std::string name, std::vector<int64_t> shape, double forward_flops = 0);

  // Work without a parameter of its own, done right after the last one's.
  void AddWork(double forward_flops) { model_.parameters.back().forward_flops += forward_flops; }

  Model Build() && { return std::move(model_); }

 private:
  Model model_;
};

// What a pooling layer leaves. `up`: a last window that sticks out counts.
Extent Pool(const Extent& in, const Kernel& kernel, bool up = false);

}  // namespace gyre::bench
