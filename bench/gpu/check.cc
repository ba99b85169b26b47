#include "gpu/check.h"

#include <cstring>

#include "noise.h"

namespace gyre::bench::gpu {

namespace {

template <typename T>
std::vector<std::byte> Stored(std::span<const float> values) {
  std::vector<std::byte> elements(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto stored = static_cast<T>(values[i]);
    std::memcpy(&elements[i * sizeof(T)], &stored, sizeof(T));
  }
  return elements;
}

template <typename T>
std::vector<float> Loaded(std::span<const std::byte> elements) {
  std::vector<float> values(elements.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T stored;
    std::memcpy(&stored, &elements[i * sizeof(T)], sizeof(T));
    values[i] = static_cast<float>(stored);
  }
  return values;
}

// Of 8 bits: multiples of a sixteenth, from 0 on.
std::vector<std::byte> BytesOf(std::span<const float> values) {
  std::vector<std::byte> elements(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    elements[i] = static_cast<std::byte>(static_cast<int>(16 * values[i]) & 0xff);
  }
  return elements;
}

}  // namespace

std::vector<Window> WindowsOf(int64_t count) {
  constexpr int64_t kElements = 1 << 14;
  if (count <= 2 * kElements) return {{0, count}};
  const int64_t last = (count - kElements) / 1024 * 1024;
  return {{0, kElements}, {last, count - last}};
}

std::vector<float> Noise(int64_t count, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(count));
  FillNormal(values, seed);
  return values;
}

std::vector<std::byte> Encode(std::span<const float> values, DType dtype) {
  switch (dtype) {
    case DType::kF16: return Stored<Float16>(values);
    case DType::kBF16: return Stored<BFloat16>(values);
    case DType::kF32: return Stored<float>(values);
    case DType::kF64: return Stored<double>(values);
    default: return BytesOf(values);
  }
}

std::vector<float> Decode(std::span<const std::byte> elements, DType dtype) {
  switch (dtype) {
    case DType::kF16: return Loaded<Float16>(elements);
    case DType::kBF16: return Loaded<BFloat16>(elements);
    default: return Loaded<float>(elements);
  }
}

}  // namespace gyre::bench::gpu
