// Random numbers as a pure function of what they are for: no state to save, the same on every rank.
#pragma once

#include <cstdint>

namespace char_lm {

// SplitMix64's mixing step (Steele, Lea and Flood, OOPSLA 2014).
constexpr uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// 64 random bits for item `index` of stream `stream`.
constexpr uint64_t RandomBits(uint64_t seed, uint64_t stream, uint64_t index) {
  return Mix(Mix(Mix(seed) ^ stream) ^ index);
}

// Uniform in [0, 1).
constexpr double RandomUnit(uint64_t seed, uint64_t stream, uint64_t index) {
  return static_cast<double>(RandomBits(seed, stream, index) >> 11) * 0x1p-53;
}

// Uniform in [0, bound), but for a bias below bound / 2^64.
constexpr uint64_t RandomBelow(uint64_t bound, uint64_t seed, uint64_t stream, uint64_t index) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(RandomBits(seed, stream, index)) * bound) >> 64);
}

}  // namespace char_lm
