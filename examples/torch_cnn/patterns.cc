#include "patterns.h"

#include <cmath>
#include <numbers>
#include <random>

namespace torch_cnn {

int Draw(uint64_t seed, int64_t index, float noise, std::span<float> pixels) {
  std::seed_seq both{seed, seed >> 32, static_cast<uint64_t>(index), static_cast<uint64_t>(index) >> 32};
  std::mt19937 random(both);
  const auto label = static_cast<int>(random() % kClasses);
  const float angle = std::numbers::pi_v<float> * static_cast<float>(label) / kClasses;
  std::uniform_real_distribution<float> phases(0, 2 * std::numbers::pi_v<float>);
  std::normal_distribution<float> noises(0, 1);
  const float phase = phases(random);
  constexpr float kFrequency = 2 * std::numbers::pi_v<float> / 5;  // a wave in 5 pixels
  const float across = kFrequency * std::cos(angle), down = kFrequency * std::sin(angle);
  size_t pixel = 0;
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      const float wave = std::sin(across * static_cast<float>(x) + down * static_cast<float>(y) + phase);
      pixels[pixel++] = wave + noise * noises(random);
    }
  }
  return label;
}

}  // namespace torch_cnn
