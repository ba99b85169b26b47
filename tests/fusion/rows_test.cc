#include "fusion/rows.h"

#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::fusion {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;

// Rows with values that small integers make exact in every dtype, in memory that is aligned to nothing.
struct Given {
  std::vector<int64_t> rows;
  std::vector<std::byte> memory;
  RowShape shape;

  Given(const RowShape& of, std::vector<int64_t> which, int seed) : rows(std::move(which)), shape(of) {
    const int64_t count = std::ssize(rows) * shape.width;
    memory.resize(static_cast<size_t>(count * DTypeSize(shape.dtype)) + 1);
    for (int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>((i * 5 + seed * 3) % 13 - 6);
      std::byte* const to = memory.data() + 1 + i * DTypeSize(shape.dtype);
      if (shape.dtype == DType::kF32) std::memcpy(to, &value, 4);
      if (const BFloat16 half(value); shape.dtype == DType::kBF16) std::memcpy(to, &half, 2);
      if (const double wide = value; shape.dtype == DType::kF64) std::memcpy(to, &wide, 8);
    }
  }
  RowsView view() const { return {rows, {memory.data() + 1, std::ssize(rows) * shape.width, shape.dtype}}; }
};

double At(const ConstTensorView& view, int64_t i) {
  if (view.dtype == DType::kF64) return static_cast<const double*>(view.data)[i];
  if (view.dtype == DType::kBF16) return static_cast<float>(static_cast<const BFloat16*>(view.data)[i]);
  return static_cast<const float*>(view.data)[i];
}

double UnalignedAt(const RowsView& view, int64_t i) {
  std::array<std::byte, 8> one{};
  const int64_t size = DTypeSize(view.values.dtype);
  std::memcpy(one.data(), static_cast<const std::byte*>(view.values.data) + i * size, static_cast<size_t>(size));
  alignas(8) std::array<std::byte, 8> aligned = one;
  return At({aligned.data(), 1, view.values.dtype}, 0);
}

TEST(RowSum, AddsEqualRowsAndSortsThem) {
  std::mt19937 random(7);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    for (const int64_t width : {1, 3, 17, 64}) {
      const RowShape shape{.rows = 9, .width = width, .dtype = dtype};
      std::vector<Given> given;
      for (const size_t count : {size_t{5}, size_t{0}, size_t{1}, size_t{12}}) {
        std::vector<int64_t> rows(count);
        for (int64_t& row : rows) row = random() % 9;
        given.emplace_back(shape, std::move(rows), static_cast<int>(given.size()));
      }
      std::map<int64_t, std::vector<double>> expected;
      std::vector<RowsView> sources;
      for (const Given& one : given) {
        sources.push_back(one.view());
        for (size_t i = 0; i < one.rows.size(); ++i) {
          auto& sum = expected.try_emplace(one.rows[i], static_cast<size_t>(width)).first->second;
          for (int64_t e = 0; e < width; ++e) {
            sum[static_cast<size_t>(e)] += 0.5 * UnalignedAt(one.view(), static_cast<int64_t>(i) * width + e);
          }
        }
      }
      RowSum sum(shape);
      sum.Assign(sources, 0.5, 2);
      ASSERT_EQ(sum.view().rows.size(), expected.size());
      int64_t at = 0;
      for (size_t i = 0; const auto& [row, values] : expected) {
        EXPECT_EQ(sum.view().rows[i++], row);
        for (const double value : values) EXPECT_EQ(At(sum.view().values, at++), 2 * value);
      }
      std::vector<double> dense(static_cast<size_t>(9 * width), -1);
      Scatter(sum, dense);
      for (int64_t i = 0; i < 9 * width; ++i) {
        const auto found = expected.find(i / width);
        const double value = found == expected.end() ? 0 : 2 * found->second[static_cast<size_t>(i % width)];
        EXPECT_EQ(dense[static_cast<size_t>(i)], value);
      }
    }
  }
}

// 1e8 + 1 - 1e8 is 0 or 1 in float, by the order of additions.
TEST(RowSum, AddsInTheOrderOfSources) {
  const RowShape shape{.rows = 2, .width = 1};
  const std::vector<int64_t> row = {1};
  const std::array<std::vector<float>, 3> values = {std::vector<float>{1e8f}, {-1e8f}, {1}};
  const auto sum_of = [&](const std::array<size_t, 3>& order) {
    std::vector<RowsView> sources;
    for (const size_t i : order) sources.push_back({row, values[i]});
    RowSum sum(shape);
    sum.Assign(sources, 1, 1);
    return At(sum.view().values, 0);
  };
  EXPECT_EQ(sum_of({0, 1, 2}), 1);
  EXPECT_EQ(sum_of({0, 2, 1}), 0);
}

TEST(RowSum, TravelsAsBytes) {
  for (const int64_t width : {0, 1, 3}) {
    const RowShape shape{.rows = 100, .width = width, .dtype = DType::kBF16};
    for (const std::vector<int64_t>& rows : {std::vector<int64_t>{}, {99}, {7, 0, 50}}) {
      const Given given(shape, rows, 1);
      RowSum sum(shape);
      const RowsView one = given.view();
      sum.Assign({&one, 1}, 1, 1);
      std::vector<std::byte> packed(static_cast<size_t>(sum.packed_bytes()), std::byte{0xff});
      EXPECT_EQ(packed.size() % 8, 0u);
      sum.Pack(packed);
      RowsView back;
      ASSERT_THAT(Unpack(shape, std::ssize(rows), packed, back), IsOk());
      ASSERT_TRUE(std::ranges::equal(back.rows, sum.view().rows));
      ASSERT_EQ(back.values.count, sum.view().values.count);
      for (int64_t i = 0; i < back.values.count; ++i) EXPECT_EQ(At(back.values, i), At(sum.view().values, i));
    }
  }
}

TEST(RowSum, LooksAtWhatArrives) {
  const RowShape shape{.rows = 5, .width = 1};
  RowsView view;
  for (const std::array<int64_t, 3>& words : {std::array<int64_t, 3>{3, 3, 0}, {4, 1, 0}, {0, 5, 0}, {-1, 2, 0}}) {
    EXPECT_THAT(Unpack(shape, 2, std::as_bytes(std::span(words)), view), MatchesStatus(StatusCode::kDataLoss, "row"));
  }
  const std::array<int64_t, 3> good = {0, 4, 0};
  EXPECT_THAT(Unpack(shape, 2, std::as_bytes(std::span(good)), view), IsOk());
}

TEST(CheckGiven, NamesTheGradientAndTheRow) {
  const RowShape shape = MakeRowShape(std::array<int64_t, 3>{10, 2, 3}, DType::kF32);
  EXPECT_EQ(shape.rows, 10);
  EXPECT_EQ(shape.width, 6);
  std::vector<float> values(12);
  const auto check = [&](const std::vector<int64_t>& rows, const ConstTensorView& of) {
    return CheckGiven("words", shape, {rows, of});
  };
  EXPECT_THAT(check({9, 0}, values), IsOk());
  EXPECT_THAT(check({}, {}), IsOk());
  EXPECT_THAT(check({9, 10}, values),
              MatchesStatus(StatusCode::kInvalidArgument, "\"words\" has 10 rows; given was row 10"));
  EXPECT_THAT(check({-1, 0}, values), MatchesStatus(StatusCode::kInvalidArgument, "row -1"));
  EXPECT_THAT(check({1}, values), MatchesStatus(StatusCode::kInvalidArgument, "1 rows and 12 elements"));
  EXPECT_THAT(check({1, 2}, std::vector<int32_t>(12)), MatchesStatus(StatusCode::kInvalidArgument, "i32"));
  EXPECT_THAT(check({1, 2}, {nullptr, 12, DType::kF32}), MatchesStatus(StatusCode::kInvalidArgument, "null"));
}

}  // namespace
}  // namespace gyre::fusion
