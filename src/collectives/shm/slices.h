// How elements are dealt out to ranks and chunks: pure arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gyre::internal {

struct Range {
  int64_t begin;
  int64_t count;
};

// Part `index` of `count` elements cut into `parts` nearly equal pieces whose borders are multiples of `grain` (so that
// no two ranks write one cache line). Trailing pieces may be empty.
constexpr Range SliceOf(int64_t count, int parts, int index, int64_t grain) {
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t begin = std::min(count, grains * index / parts * grain);
  const int64_t end = std::min(count, grains * (index + 1) / parts * grain);
  return {begin, end - begin};
}

// Piece `index` of `count` elements cut every `length`; empty past the end.
constexpr Range PieceOf(int64_t count, int64_t length, int64_t index) {
  const int64_t begin = std::min(count, index * length);
  return {begin, std::min(length, count - begin)};
}

// The grain of the slices that ranks or rails share out: two cache lines or more for every dtype.
constexpr int64_t kSliceGrain = 128;

constexpr int64_t CeilDivide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace gyre::internal
