// What the checks of cases share: which elements they look at, what they put there, and how they compare.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gyre/dtype.h"

namespace gyre::bench::gpu {

struct Window {
  int64_t first, count;
};

// The first and the last elements of an array of so many, on multiples of 1024 elements; all of a small one.
std::vector<Window> WindowsOf(int64_t count);

// Noise, and it as elements of a dtype, kU8 or floating-point: rounded as gyre/dtype.h does, of 8 bits to what is left
// of sixteenths.
std::vector<float> Noise(int64_t count, uint64_t seed);
std::vector<std::byte> Encode(std::span<const float> values, DType dtype);
std::vector<float> Decode(std::span<const std::byte> elements, DType dtype);  // kF16, kBF16 or kF32

// kDataLoss unless they have the same bits: says of which element on not.
template <typename T>
absl::Status CheckSame(std::string_view what, const std::vector<T>& got, const std::vector<T>& expected) {
  const auto bits = [](const T& of) { return std::as_bytes(std::span(&of, 1)); };
  const auto same = [bits](const T& a, const T& b) { return std::ranges::equal(bits(a), bits(b)); };
  const auto [at, wanted] = std::ranges::mismatch(got, expected, same);
  if (at == got.end() && wanted == expected.end()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(absl::string_view(what.data(), what.size()),
                                          ": not what the host makes, from ", at - got.begin(), " of ", expected.size(),
                                          " on"));
}

}  // namespace gyre::bench::gpu
