// The images that torch_cnn learns to tell apart: gratings of ten orientations, with any phase, under noise.
#pragma once

#include <cstdint>
#include <span>

namespace torch_cnn {

inline constexpr int kSide = 16;     // pixels
inline constexpr int kClasses = 10;  // orientations, 18 degrees apart

// Draws image `index` of the endless series of `seed` into kSide * kSide pixels, row by row, and returns its class. A
// pure function: every rank that asks for an image gets the same one. `noise` is the standard deviation of what is
// added to a wave of amplitude 1.
int Draw(uint64_t seed, int64_t index, float noise, std::span<float> pixels);

}  // namespace torch_cnn
