#include "noise.h"

#include <cmath>
#include <cstddef>
#include <numbers>

namespace gyre::bench {

void FillNormal(std::vector<float>& values, uint64_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15u;
  const auto uniform = [&state] {  // in (0, 1]; xorshift64* (Vigna 2016)
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return static_cast<float>((state * 0x2545f4914f6cdd1du >> 40) + 1) * 0x1p-24f;
  };
  for (size_t i = 0; i < values.size(); i += 2) {  // Box and Muller 1958
    const float radius = std::sqrt(-2 * std::log(uniform())), angle = 2 * std::numbers::pi_v<float> * uniform();
    values[i] = radius * std::cos(angle);
    if (i + 1 < values.size()) values[i + 1] = radius * std::sin(angle);
  }
}

}  // namespace gyre::bench
