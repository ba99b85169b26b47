// Random numbers that are the same everywhere (std's distributions are not).
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace cudnn_cnn {

// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  // A series of its own for each of `index`.
  Random(uint64_t seed, uint64_t index) : state_(Random(seed ^ Random(index).Bits()).Bits()) {}

  uint64_t Bits() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t bits = state_;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
    return bits ^ (bits >> 31);
  }

  double Uniform() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }  // [0, 1)
  uint64_t Below(uint64_t bound) { return static_cast<uint64_t>(Uniform() * static_cast<double>(bound)); }

  // Of mean 0 and variance 1 (Box and Muller).
  double Normal() {
    const double radius = std::sqrt(-2 * std::log(1 - Uniform()));
    return radius * std::cos(2 * std::numbers::pi * Uniform());
  }

 private:
  uint64_t state_;
};

}  // namespace cudnn_cnn
