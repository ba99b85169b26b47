#include "device/reduce.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace gyre::device {
namespace {

// A value of rank `r` at index `i`: small enough that no dtype's sum or product of a few ranks overflows in float,
// different for every rank.
double Value(int r, int64_t i) {
  return static_cast<double>((i * 7 + r * 13) % 11) - (r % 2 == 0 ? 0 : 3);
}

template <typename T>
T Cast(double value) {
  if constexpr (std::is_same_v<T, bool>)
    return std::fmod(std::abs(value), 2) == 1;
  else if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>)
    return T(static_cast<float>(value));
  else
    return static_cast<T>(static_cast<int64_t>(value));
}

template <typename T>
double Wide(T value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>)
    return static_cast<float>(value);
  else
    return static_cast<double>(value);
}

// The definition, one element at a time, in the accumulator's own precision.
template <typename T>
T Expected(ReduceOp op, const std::vector<T>& values, int divisor) {
  if constexpr (std::is_same_v<T, bool>) {
    bool all = true, any = false;
    for (bool v : values) all = all && v, any = any || v;
    return op == ReduceOp::kSum || op == ReduceOp::kMax ? any : all;
  } else if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    uint64_t sum = 0, product = 1;
    T low = values[0], high = values[0];
    for (T v : values) {
      sum += static_cast<uint64_t>(v);
      product *= static_cast<uint64_t>(v);
      low = std::min(low, v), high = std::max(high, v);
    }
    switch (op) {
      case ReduceOp::kSum: return static_cast<T>(static_cast<U>(sum));
      case ReduceOp::kAverage: return static_cast<T>(static_cast<T>(static_cast<U>(sum)) / divisor);
      case ReduceOp::kMin: return low;
      case ReduceOp::kMax: return high;
      case ReduceOp::kProduct: return static_cast<T>(static_cast<U>(product));
      case ReduceOp::kAdasum: break;  // not of elements
    }
    return T{};
  } else {
    using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;
    auto total = static_cast<Accumulator>(Wide(values[0]));
    for (size_t r = 1; r < values.size(); ++r) {
      const auto v = static_cast<Accumulator>(Wide(values[r]));
      switch (op) {
        case ReduceOp::kSum:
        case ReduceOp::kAverage: total += v; break;
        case ReduceOp::kMin: total = std::min(total, v); break;
        case ReduceOp::kMax: total = std::max(total, v); break;
        case ReduceOp::kProduct: total *= v; break;
        case ReduceOp::kAdasum: break;
      }
    }
    if (op == ReduceOp::kAverage) total *= static_cast<Accumulator>(1.0 / divisor);
    if constexpr (std::is_same_v<T, double> || std::is_same_v<T, float>)
      return total;
    else
      return T(total);
  }
}

template <typename T>
class ReduceTest : public testing::Test {};

using Types =
    testing::Types<uint8_t, int8_t, int16_t, uint16_t, int32_t, int64_t, Float16, BFloat16, float, double, bool>;
TYPED_TEST_SUITE(ReduceTest, Types);

// Every op, source count, odd length and misalignment against the definition; out of place and into all sources.
TYPED_TEST(ReduceTest, MatchesTheDefinition) {
  using T = TypeParam;
  for (int sources : {1, 2, 3, 4, 5, 8}) {
    for (int64_t count : {0, 1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 127, 1000}) {
      for (int offset : {0, 1, 3}) {  // bytes off alignment
        for (int o = 0; o < kReduceOpCount; ++o) {
          const auto op = static_cast<ReduceOp>(o);
          if (op == ReduceOp::kAverage && std::is_same_v<T, bool>) continue;
          const size_t bytes = static_cast<size_t>(count) * sizeof(T);
          std::vector<std::vector<char>> memory(sources, std::vector<char>(bytes + 8, '\x5a'));
          std::vector<const void*> from;
          std::vector<void*> to;
          for (int r = 0; r < sources; ++r) {
            for (int64_t i = 0; i < count; ++i) {
              const T value = Cast<T>(Value(r, i));
              std::memcpy(memory[r].data() + offset + i * sizeof(T), &value, sizeof(T));
            }
            from.push_back(memory[r].data() + offset);
            to.push_back(memory[r].data() + offset);
          }
          std::vector<char> separate(bytes + 8, '\x5a');
          void* const separate_at = separate.data() + offset;
          const Reduction reduction = MakeReduction(DTypeOf<T>, op, 1, 1, sources);
          Reduce(reduction, from, {&separate_at, 1}, count);
          Reduce(reduction, from, to, count);
          for (int64_t i = 0; i < count; ++i) {
            std::vector<T> values;
            for (int r = 0; r < sources; ++r) values.push_back(Cast<T>(Value(r, i)));
            const T expected = Expected<T>(op, values, sources);
            T got;
            std::memcpy(&got, separate.data() + offset + i * sizeof(T), sizeof(T));
            ASSERT_EQ(Wide(got), Wide(expected))
                << ReduceOpName(op) << " of " << sources << " at " << i << "/" << count;
          }
          for (int r = 0; r < sources; ++r) {
            ASSERT_EQ(std::memcmp(memory[r].data() + offset, separate.data() + offset, bytes), 0)
                << "destination " << r;
            ASSERT_EQ(memory[r][offset + bytes], '\x5a') << "wrote past the end";
          }
        }
      }
    }
  }
}

TEST(ReduceIntegers, SumsAndProductsWrap) {
  const auto check = [](auto big) {
    using T = decltype(big);
    using U = std::make_unsigned_t<T>;
    const std::vector<T> a(37, big), b(37, static_cast<T>(3));
    std::vector<T> out(37);
    const void* from[] = {a.data(), b.data(), b.data()};
    void* const to[] = {out.data()};
    Reduce(MakeReduction(DTypeOf<T>, ReduceOp::kProduct, 1, 1, 3), from, to, 37);
    for (T v : out) EXPECT_EQ(v, static_cast<T>(static_cast<U>(static_cast<uint64_t>(big) * 9u)));
    Reduce(MakeReduction(DTypeOf<T>, ReduceOp::kSum, 1, 1, 3), from, to, 37);
    for (T v : out) EXPECT_EQ(v, static_cast<T>(static_cast<U>(static_cast<uint64_t>(big) + 6u)));
  };
  check(std::numeric_limits<int8_t>::max());
  check(std::numeric_limits<uint8_t>::max());
  check(std::numeric_limits<int16_t>::min());
  check(std::numeric_limits<int32_t>::max());
  check(std::numeric_limits<int64_t>::max());
}

TEST(ReduceScale, ScalesSourcesAndResult) {
  const std::vector<float> a = {1, 2, 3, 4, 5}, b = {10, 20, 30, 40, 50};
  std::vector<float> out(5);
  const void* from[] = {a.data(), b.data()};
  void* const to[] = {out.data()};
  Reduce(MakeReduction(DType::kF32, ReduceOp::kSum, 0.5, 4, 2), from, to, 5);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(out[i], 2 * (a[i] + b[i]));
  Reduce(MakeReduction(DType::kF32, ReduceOp::kProduct, 2, 1, 2), from, to, 5);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(out[i], 4 * a[i] * b[i]);
}

TEST(ReduceHalf, RoundsOnceAndKeepsSpecials) {
  // 2048 + 1 + 1 in half precision: rounding after every addition would stay at 2048.
  const std::vector<Float16> a(3, Float16(2048)), one(3, Float16(1));
  std::vector<Float16> out(3);
  const void* from[] = {a.data(), one.data(), one.data()};
  void* const to[] = {out.data()};
  Reduce(MakeReduction(DType::kF16, ReduceOp::kSum, 1, 1, 3), from, to, 3);
  EXPECT_EQ(static_cast<float>(out[0]), 2050.0f);

  for (float special : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const std::vector<BFloat16> x(20, BFloat16(special)), y(20, BFloat16(1));
    std::vector<BFloat16> sum(20);
    const void* pair[] = {x.data(), y.data()};
    void* const into[] = {sum.data()};
    Reduce(MakeReduction(DType::kBF16, ReduceOp::kSum, 1, 1, 2), pair, into, 20);
    for (BFloat16 v : sum) EXPECT_EQ(std::isnan(special), std::isnan(static_cast<float>(v)));
    for (BFloat16 v : sum) EXPECT_EQ(std::isinf(special), std::isinf(static_cast<float>(v)));
  }
}

// The vector conversions of the kernels and the scalar ones of the public types are the same function.
TEST(ReduceHalf, ConvertsLikeThePublicTypes) {
  std::vector<Float16> half(65536), half_out(65536);
  std::vector<BFloat16> brain(65536), brain_out(65536);
  for (int i = 0; i < 65536; ++i) half[i].bits = brain[i].bits = static_cast<uint16_t>(i);
  const void* half_from[] = {half.data()};
  const void* brain_from[] = {brain.data()};
  void* const half_to[] = {half_out.data()};
  void* const brain_to[] = {brain_out.data()};
  // A scale that makes results need rounding.
  Reduce(MakeReduction(DType::kF16, ReduceOp::kSum, 1.0 / 3, 1, 1), half_from, half_to, 65536);
  Reduce(MakeReduction(DType::kBF16, ReduceOp::kSum, 1.0 / 3, 1, 1), brain_from, brain_to, 65536);
  for (int i = 0; i < 65536; ++i) {
    const float third = static_cast<float>(1.0 / 3);
    const Float16 h(static_cast<float>(half[i]) * third);
    const BFloat16 b(static_cast<float>(brain[i]) * third);
    if (!std::isnan(static_cast<float>(half[i])))
      ASSERT_EQ(half_out[i].bits, h.bits) << i;
    else
      ASSERT_TRUE(std::isnan(static_cast<float>(half_out[i]))) << i;
    if (!std::isnan(static_cast<float>(brain[i])))
      ASSERT_EQ(brain_out[i].bits, b.bits) << i;
    else
      ASSERT_TRUE(std::isnan(static_cast<float>(brain_out[i]))) << i;
  }
}

}  // namespace
}  // namespace gyre::device
