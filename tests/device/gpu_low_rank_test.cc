// PowerSGD's passes on GPUs, the emulated one and, where there is one, a real one: the same bits as src/compression on
// the CPU, where the pieces of sums are as long as on a GPU.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "compression/power_sgd.h"
#include "device/gpu_codecs.h"
#include "device/gpu_under_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/mutator.h"
#include "support/status_matchers.h"

namespace gyre::device {
namespace {

using kernels::LowRankMatrix;
using kernels::LowRankPass;
using support::IsOk;
using support::MatchesStatus;
using support::Mutator;

constexpr float kBehind = 123;  // behind the end of each array

struct Shape {
  int64_t rows, columns;
  int rank;
};

// A row, a column, an element; sides that are no multiple of anything; one piece of either side and several; factors of
// one group of columns and of several, up to the most.
const std::vector<Shape> kShapes = {{1, 1, 1},      {1, 37, 1},   {37, 1, 1},    {5, 3, 3},     {16, 16, 4},
                                    {17, 100, 8},   {41, 53, 9},  {300, 33, 2},  {3, 2049, 2},  {20, 5000, 3},
                                    {600, 2100, 5}, {70, 80, 64}, {513, 65, 20}, {257, 300, 1}, {256, 2048, 4}};

size_t Size(int64_t count) {
  return static_cast<size_t>(count);
}

// The arrays of a matrix, each with an element more than it has.
struct Arrays {
  std::vector<float> gradient, matrix, p, q, result, parts;
};

std::vector<float> Random(Mutator& random, int64_t count) {
  std::vector<float> values(Size(count) + 1, kBehind);
  for (size_t i = 0; i < Size(count); ++i) {
    values[i] = std::ldexp(static_cast<float>(static_cast<int32_t>(random() >> 40) - (1 << 23)),
                           -23 - static_cast<int>(random.Below(8)));
  }
  return values;
}

Arrays Make(const Shape& shape, uint64_t seed) {
  Mutator random(seed);
  const int64_t count = shape.rows * shape.columns;
  const int64_t parts = kernels::LowRankParts(shape.rows, shape.columns, shape.rank);
  return {.gradient = Random(random, count),
          .matrix = Random(random, count),
          .p = Random(random, shape.rows * shape.rank),
          .q = Random(random, shape.columns * shape.rank),
          .result = Random(random, count),
          .parts = Random(random, parts)};
}

LowRankMatrix On(const Shape& shape, Arrays& arrays) {
  return {.gradient = arrays.gradient.data(),
          .result = arrays.result.data(),
          .matrix = arrays.matrix.data(),
          .p = arrays.p.data(),
          .q = arrays.q.data(),
          .parts = nullptr,
          .rows = shape.rows,
          .columns = shape.columns,
          .rank = shape.rank,
          .scale = 1.35f};
}

// NaNs are alike: their payloads are the processor's choice.
std::vector<uint32_t> BitsWithOneNan(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::isnan(value) ? 0x7fc00000u : std::bit_cast<uint32_t>(value));
  return bits;
}

class GpuLowRankTest : public GpuUnderTest {
 protected:
  LowRankMatrix PutAll(const Shape& shape, const Arrays& arrays) {
    const size_t offset = shape.rows % 2 == 0 ? 0 : 1;
    return {.gradient = Put(arrays.gradient, offset),
            .result = Put(arrays.result, offset),
            .matrix = Put(arrays.matrix),
            .p = Put(arrays.p, offset),
            .q = Put(arrays.q, 1 - offset),
            .parts = Put(arrays.parts),
            .rows = shape.rows,
            .columns = shape.columns,
            .rank = shape.rank,
            .scale = 1.35f};
  }

  absl::Status Run(LowRankPass pass, const std::vector<LowRankMatrix>& matrices) {
    return gpu_->codecs().LowRank(pass, matrices, nullptr);
  }

  void ExpectSame(const LowRankMatrix& there, const Arrays& here) {
    EXPECT_EQ(BitsWithOneNan(Get(there.gradient, here.gradient.size())), BitsWithOneNan(here.gradient));
    EXPECT_EQ(BitsWithOneNan(Get(there.result, here.result.size())), BitsWithOneNan(here.result));
    EXPECT_EQ(BitsWithOneNan(Get(static_cast<const float*>(there.matrix), here.matrix.size())),
              BitsWithOneNan(here.matrix));
    EXPECT_EQ(BitsWithOneNan(Get(static_cast<const float*>(there.p), here.p.size())), BitsWithOneNan(here.p));
    EXPECT_EQ(BitsWithOneNan(Get(static_cast<const float*>(there.q), here.q.size())), BitsWithOneNan(here.q));
    EXPECT_EQ(Get(there.parts + here.parts.size() - 1, 1)[0], kBehind);
  }

  // All passes, one after the other, of all matrices at once, each beside the CPU's.
  void Compare(const std::vector<Shape>& shapes, std::vector<Arrays>& arrays) {
    std::vector<LowRankMatrix> there;
    for (size_t i = 0; i < shapes.size(); ++i) there.push_back(PutAll(shapes[i], arrays[i]));
    for (const LowRankPass pass : {LowRankPass::kMakeP, LowRankPass::kMakeQ, LowRankPass::kFinish}) {
      ASSERT_THAT(Run(pass, there), IsOk());
      for (size_t i = 0; i < shapes.size(); ++i) {
        SCOPED_TRACE(std::to_string(shapes[i].rows) + " x " + std::to_string(shapes[i].columns) + ", rank " +
                     std::to_string(shapes[i].rank) + ", pass " + std::to_string(static_cast<int>(pass)));
        compression::RunPass(pass, On(shapes[i], arrays[i]));
        ExpectSame(there[i], arrays[i]);
        if (HasFailure()) return;
      }
    }
  }
};

TEST_P(GpuLowRankTest, PassesAreTheCpus) {
  for (const Shape& shape : kShapes) {
    std::vector<Arrays> arrays = {Make(shape, 3)};
    ASSERT_NO_FATAL_FAILURE(Compare({shape}, arrays));
    if (HasFailure()) return;
  }
}

// More than one launch takes, of which the largest has many times the tiles of the others.
TEST_P(GpuLowRankTest, ManyMatricesAtOnce) {
  std::vector<Shape> shapes;
  std::vector<Arrays> arrays;
  for (int i = 0; i < 60; ++i) {
    shapes.push_back(i == 20 ? Shape{400, 700, 3} : Shape{1 + i % 7, 2 + i, 1 + i % 2});
    shapes.back().rank = static_cast<int>(std::min<int64_t>(shapes.back().rank, shapes.back().rows));
    arrays.push_back(Make(shapes.back(), static_cast<uint64_t>(i)));
  }
  Compare(shapes, arrays);
}

// It is in the result, and nothing of it is kept.
TEST_P(GpuLowRankTest, WhatIsNotFiniteIsNotKept) {
  const Shape shape{40, 70, 3};
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(), 3e38f}) {
    std::vector<Arrays> arrays = {Make(shape, 5)};
    arrays[0].gradient[2 * 70 + 5] = bad;
    arrays[0].gradient[39 * 70 + 69] = -bad;
    ASSERT_NO_FATAL_FAILURE(Compare({shape}, arrays));
    EXPECT_FALSE(std::isfinite(arrays[0].result[2 * 70 + 5])) << bad;
    for (const float kept : arrays[0].matrix) ASSERT_TRUE(std::isfinite(kept)) << bad;
  }
}

// Of integers so small that all sums are exact in any order.
TEST_P(GpuLowRankTest, ProductsOfIntegersAreExact) {
  const Shape shape{530, 4100, 10};
  Arrays arrays = Make(shape, 7);
  Mutator random(8);
  for (auto* const values : {&arrays.gradient, &arrays.matrix, &arrays.p, &arrays.q}) {
    for (float& value : *values) value = static_cast<float>(random.Below(5)) - 2;
  }
  const LowRankMatrix there = PutAll(shape, arrays);
  const std::vector<float> q = arrays.q;
  std::vector<float> sum(arrays.matrix);
  for (size_t i = 0; i < Size(shape.rows * shape.columns); ++i) sum[i] += arrays.gradient[i];
  const auto rows = Size(shape.rows), columns = Size(shape.columns), rank = Size(shape.rank);

  ASSERT_THAT(Run(LowRankPass::kMakeP, {there}), IsOk());
  const std::vector<float> p = Get(static_cast<const float*>(there.p), rows * rank);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t r = 0; r < rank; ++r) {
      double product = 0;
      for (size_t j = 0; j < columns; ++j) product += static_cast<double>(sum[i * columns + j]) * q[r * columns + j];
      ASSERT_EQ(p[r * rows + i], product) << i << ", " << r;
    }
  }

  std::vector<float> small(arrays.p);
  Set(there.p, small);
  ASSERT_THAT(Run(LowRankPass::kMakeQ, {there}), IsOk());
  const std::vector<float> made = Get(static_cast<const float*>(there.q), columns * rank);
  std::vector<double> products(columns * rank);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t r = 0; r < rank; ++r) {
      for (size_t j = 0; j < columns; ++j) {
        products[r * columns + j] += static_cast<double>(sum[i * columns + j]) * small[r * rows + i];
      }
    }
  }
  for (size_t i = 0; i < made.size(); ++i) ASSERT_EQ(made[i], products[i]) << i;

  Set(there.q, q);
  LowRankMatrix halved = there;
  halved.scale = 0.5f;
  ASSERT_THAT(Run(LowRankPass::kFinish, {halved}), IsOk());
  const std::vector<float> result = Get(static_cast<const float*>(there.result), rows * columns);
  const std::vector<float> kept = Get(static_cast<const float*>(there.matrix), rows * columns);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) {
      double product = 0;
      for (size_t r = 0; r < rank; ++r) product += static_cast<double>(small[r * rows + i]) * q[r * columns + j];
      ASSERT_EQ(result[i * columns + j], product / 2) << i << ", " << j;
      ASSERT_EQ(kept[i * columns + j], sum[i * columns + j] - product) << i << ", " << j;
    }
  }
}

TEST_P(GpuLowRankTest, RefusesMatricesThatAreNone) {
  const Shape shape{8, 8, 2};
  const LowRankMatrix good = PutAll(shape, Make(shape, 1));
  std::vector<LowRankMatrix> bad(4, good);
  bad[0].rows = 0;
  bad[1].columns = -1;
  bad[2].rank = 0;
  bad[3].rank = kernels::kMostRank + 1;
  for (const LowRankMatrix& m : bad) {
    EXPECT_THAT(Run(LowRankPass::kMakeP, {good, m}), MatchesStatus(absl::StatusCode::kInvalidArgument, "a matrix of"));
  }
  EXPECT_THAT(Run(LowRankPass::kMakeP, {}), IsOk());
}

INSTANTIATE_TEST_SUITE_P(Gpus, GpuLowRankTest, ::testing::Values("fake", "cuda"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace gyre::device
