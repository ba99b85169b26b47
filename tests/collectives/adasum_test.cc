#include "collectives/adasum.h"

#include <cmath>
#include <cstring>
#include <random>

#include "collectives/call.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::internal {
namespace {

using Vector = std::vector<double>;

double Dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// By definition, in double.
Vector Adasum(const std::vector<Vector>& all) {
  if (all.size() == 1) return all[0];
  size_t half = 1;
  while (2 * half < all.size()) half *= 2;
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(half);
  const Vector a = Adasum({all.begin(), middle}), b = Adasum({middle, all.end()});
  const double both = Dot(a, b), of_a = Dot(a, a), of_b = Dot(b, b);
  Vector result(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    result[i] = (of_a > 0 ? 1 - both / (2 * of_a) : 1) * a[i] + (of_b > 0 ? 1 - both / (2 * of_b) : 1) * b[i];
  }
  return result;
}

template <typename T>
std::vector<T> Combined(const std::vector<std::vector<T>>& all, double prescale = 1, double postscale = 1) {
  const auto count = static_cast<int64_t>(all[0].size());
  AdasumWork work(DTypeOf<T>, static_cast<int>(all.size()), count);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const int64_t half = count / 2;  // in two parts
    work.Take(static_cast<int>(rank), 0, all[rank].data(), half, prescale);
    work.Take(static_cast<int>(rank), half, all[rank].data() + half, count - half, prescale);
  }
  while (work.Combine()) {
  }
  std::vector<T> result(all[0].size());
  work.Store(result.data(), postscale);
  return result;
}

// The inputs, rounded to T, of ranks that partly agree.
template <typename T>
std::pair<std::vector<std::vector<T>>, std::vector<Vector>> Random(int ranks, size_t count) {
  std::mt19937 random(static_cast<unsigned>(ranks));
  std::normal_distribution<double> noise;
  std::vector<std::vector<T>> inputs;
  std::vector<Vector> exact;
  for (int rank = 0; rank < ranks; ++rank) {
    auto& own = inputs.emplace_back();
    auto& values = exact.emplace_back();
    for (size_t i = 0; i < count; ++i) {
      own.push_back(static_cast<T>(static_cast<float>(std::sin(static_cast<double>(i)) + noise(random))));
      values.push_back(static_cast<double>(static_cast<std::conditional_t<sizeof(T) == 8, double, float>>(own.back())));
    }
  }
  return {inputs, exact};
}

template <typename T>
class Precise : public testing::Test {};
using Types = testing::Types<double, float, Float16, BFloat16>;
TYPED_TEST_SUITE(Precise, Types);

template <typename T>
double Tolerance() {
  switch (DTypeOf<T>) {
    case DType::kF64: return 1e-12;
    case DType::kF32: return 1e-5;
    case DType::kF16: return 1.0 / 1000;
    default: return 1.0 / 120;
  }
}

TYPED_TEST(Precise, MatchesItsDefinition) {
  for (const int ranks : {1, 2, 3, 4, 5, 7, 8, 13}) {
    for (const size_t count : {1, 2, 17, 1000}) {
      const auto [inputs, exact] = Random<TypeParam>(ranks, count);
      const auto got = Combined(inputs);
      const Vector expected = Adasum(exact);
      for (size_t i = 0; i < count; ++i) {
        using Wide = std::conditional_t<sizeof(TypeParam) == 8, double, float>;
        EXPECT_NEAR(static_cast<double>(static_cast<Wide>(got[i])), expected[i],
                    Tolerance<TypeParam>() * (1 + std::abs(expected[i])))
            << ranks << " ranks, " << i;
      }
    }
  }
}

TEST(Adasum, AveragesWhatAgreesAndAddsWhatDoesNot) {
  const std::vector<float> same = {1, 2, 3, 4};
  EXPECT_EQ(Combined<float>({same, same, same, same}), same);
  EXPECT_EQ(Combined<float>({{1, 0, 0}, {0, 2, 0}, {0, 0, 3}}), (std::vector<float>{1, 2, 3}));
}

TEST(Adasum, ZeroesChangeNothing) {
  const std::vector<float> some = {1, -2}, none = {0, 0};
  EXPECT_EQ(Combined<float>({none, some}), some);
  EXPECT_EQ(Combined<float>({some, none, none}), some);
  EXPECT_EQ(Combined<float>({none, none}), none);
  EXPECT_EQ(Combined<float>({{}, {}}), std::vector<float>());
}

// It is linear in a common scale, so that both scales do the same.
TEST(Adasum, Scales) {
  const std::vector<std::vector<double>> inputs = {{1, 2, 3}, {2, -1, 5}, {0.5, 0, 1}};
  const std::vector<double> plain = Combined(inputs), before = Combined(inputs, 4.0), after = Combined(inputs, 1, 4.0);
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_DOUBLE_EQ(before[i], 4 * plain[i]);
    EXPECT_DOUBLE_EQ(after[i], 4 * plain[i]);
  }
}

TEST(Adasum, TakesMemoryOfAnyAlignment) {
  std::vector<char> bytes(3 * sizeof(float) + 1);
  const float values[] = {1, 2, 3};
  std::memcpy(bytes.data() + 1, values, sizeof(values));
  AdasumWork work(DType::kF32, 1, 3);
  work.Take(0, 0, bytes.data() + 1, 3, 1);
  EXPECT_FALSE(work.Combine());
  std::vector<char> out(bytes.size());
  work.Store(out.data() + 1, 1);
  EXPECT_EQ(std::vector(out.begin() + 1, out.end()), std::vector(bytes.begin() + 1, bytes.end()));
}

TEST(Adasum, IsOfAllReducesOfFloatingPointNumbersOnly) {
  std::vector<float> floats(4);
  std::vector<int32_t> integers(4);
  Call call{.kind = CallKind::kAllReduce, .in = floats, .out = floats, .op = ReduceOp::kAdasum};
  EXPECT_THAT(Validate(call, 0, 2), support::IsOk());
  call.kind = CallKind::kReduce;
  EXPECT_THAT(Validate(call, 0, 2), support::MatchesStatus(absl::StatusCode::kInvalidArgument, "adasum"));
  call = {.kind = CallKind::kAllReduce, .in = integers, .out = integers, .op = ReduceOp::kAdasum};
  EXPECT_THAT(Validate(call, 0, 2), support::MatchesStatus(absl::StatusCode::kInvalidArgument, "adasum"));
  EXPECT_EQ(ParseReduceOp("adasum"), ReduceOp::kAdasum);
  EXPECT_EQ(ReduceOpName(ReduceOp::kAdasum), "adasum");
  EXPECT_EQ(ReduceOpName(static_cast<ReduceOp>(6)), "unknown reduction");
}

}  // namespace
}  // namespace gyre::internal
