#include "portable.h"

#include <cstddef>

namespace char_lm {

namespace {

// At any address, and over memory that holds floats.
using Floats4 = float __attribute__((vector_size(16), aligned(4), may_alias));
using Floats8 = float __attribute__((vector_size(32), aligned(4), may_alias));
using Floats16 = float __attribute__((vector_size(64), aligned(4), may_alias));

// A matrix in memory, perhaps transposed.
struct View {
  const float* data;
  int rows, columns;
  std::ptrdiff_t row_step, column_step;

  static View Of(const float* data, Transpose transpose, int rows, int columns) {
    if (transpose == Transpose::kYes) return {data, rows, columns, 1, rows};
    return {data, rows, columns, columns, 1};
  }
  float operator()(int row, int column) const { return data[row * row_step + column * column_step]; }
};

struct Product {
  View a, b;
  bool add;
  float* c;
  std::vector<float>&packed_a, &packed_b;
};

// `count` of a row's elements, from `column` on, with zeros beyond its end.
inline void CopyRow(const View& from, int row, int column, int count, float* to) {
  const int there = std::min(count, from.columns - column);
  if (from.column_step == 1) {
    std::copy_n(from.data + row * from.row_step + column, there, to);
  } else {
    for (int i = 0; i < there; ++i) to[i] = from(row, column + i);
  }
  std::fill(to + there, to + count, 0.0f);
}

// Panels of `width` columns, one after the other, row by row.
inline void Pack(const View& from, int first, int width, float* to) {
  for (int row = 0; row < from.rows; ++row, to += width) CopyRow(from, row, first, width, to);
}

// A tile of C: kRows rows and two vectors wide, which all fits in registers. Terms are added in the order of `inner`.
template <typename Vector, int kRows>
[[gnu::always_inline]] inline void MultiplyTile(int inner, const float* a, const float* b, float* tile) {
  constexpr int kLanes = sizeof(Vector) / sizeof(float);
  Vector left[kRows], right[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) left[r] = right[r] = Vector{};
  for (int k = 0; k < inner; ++k, a += kRows, b += 2 * kLanes) {
    const Vector b_left = *reinterpret_cast<const Vector*>(b), b_right = *reinterpret_cast<const Vector*>(b + kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      left[r] += a[r] * b_left;
      right[r] += a[r] * b_right;
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r, tile += 2 * kLanes) {
    *reinterpret_cast<Vector*>(tile) = left[r];
    *reinterpret_cast<Vector*>(tile + kLanes) = right[r];
  }
}

template <typename Vector, int kRows>
[[gnu::always_inline]] inline void MultiplyAll(const Product& p) {
  constexpr int kWidth = 2 * sizeof(Vector) / sizeof(float);
  const int rows = p.a.rows, columns = p.b.columns, inner = p.b.rows;
  const View a_transposed = {p.a.data, inner, rows, p.a.column_step, p.a.row_step};
  const auto panel = static_cast<size_t>(inner) * kRows;
  p.packed_a.resize((static_cast<size_t>(rows) + kRows - 1) / kRows * panel);
  p.packed_b.resize(static_cast<size_t>(inner) * kWidth);
  float* to = p.packed_a.data();
  for (int row = 0; row < rows; row += kRows, to += panel) Pack(a_transposed, row, kRows, to);
  float tile[kRows * kWidth];
  for (int column = 0; column < columns; column += kWidth) {
    Pack(p.b, column, kWidth, p.packed_b.data());
    const float* a = p.packed_a.data();
    for (int row = 0; row < rows; row += kRows, a += panel) {
      MultiplyTile<Vector, kRows>(inner, a, p.packed_b.data(), tile);
      for (int r = 0; r < std::min(kRows, rows - row); ++r) {
        float* const c = p.c + static_cast<std::ptrdiff_t>(row + r) * columns + column;
        const float* const from = tile + r * kWidth;
        for (int i = 0; i < std::min(kWidth, columns - column); ++i) c[i] = p.add ? c[i] + from[i] : from[i];
      }
    }
  }
}

void MultiplyBaseline(const Product& product) {
  MultiplyAll<Floats4, 4>(product);
}

#ifdef __x86_64__
[[gnu::target("avx2")]] void MultiplyAvx2(const Product& product) {
  MultiplyAll<Floats8, 6>(product);
}
[[gnu::target("avx512f")]] void MultiplyAvx512(const Product& product) {
  MultiplyAll<Floats16, 8>(product);
}
#else
constexpr auto MultiplyAvx2 = MultiplyBaseline, MultiplyAvx512 = MultiplyBaseline;
#endif

}  // namespace

std::vector<Instructions> InstructionsHere() {
  std::vector<Instructions> here = {Instructions::kBaseline};
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") != 0) here.push_back(Instructions::kAvx2);
  if (__builtin_cpu_supports("avx512f") != 0) here.push_back(Instructions::kAvx512);
#endif
  return here;
}

void PortableProducts::Multiply(Transpose transpose_a, Transpose transpose_b, int rows, int columns, int inner,
                                const float* a, const float* b, bool add, float* c) {
  const Product product = {
      View::Of(a, transpose_a, rows, inner), View::Of(b, transpose_b, inner, columns), add, c, a_, b_};
  switch (instructions_) {
    case Instructions::kBaseline: return MultiplyBaseline(product);
    case Instructions::kAvx2: return MultiplyAvx2(product);
    case Instructions::kAvx512: return MultiplyAvx512(product);
  }
}

}  // namespace char_lm
