#include "compression/sparse.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "compression/index_code.h"
#include "support/mutator.h"
#include "support/status_matchers.h"

namespace gyre::compression {
namespace {

using support::IsOk;
using support::MatchesStatus;
using support::Mutator;

constexpr ValueType kTypes[] = {ValueType::kF32, ValueType::kF16, ValueType::kBF16};
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Entries {
  std::vector<uint32_t> indices;
  std::vector<float> values;
};

Entries RandomEntries(Mutator& random, int64_t count, uint64_t mean_gap, int exponent) {
  Entries entries;
  for (uint64_t at = random.Below(mean_gap); at < static_cast<uint64_t>(count); at += 1 + random.Below(2 * mean_gap)) {
    entries.indices.push_back(static_cast<uint32_t>(at));
    const auto uniform = static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-52 - 1.0);
    entries.values.push_back(std::ldexp(uniform, exponent - static_cast<int>(random.Below(8))));
  }
  return entries;
}

TEST(Sparse, RoundTripsAndLeavesTheExactError) {
  Mutator random(1);
  SparseDecoder decoder;
  std::vector<std::byte> bytes;
  for (const int64_t count : {0l, 1l, 2l, 1000l, 65537l, int64_t{kMaxRange} + 1, int64_t{3'000'000'000}}) {
    for (const ValueType type : kTypes) {
      for (const int exponent : {-120, -20, 0, 90}) {
        const uint64_t mean_gap = count < 70'000 ? 3 : count / 1000;
        const Entries entries = RandomEntries(random, count, mean_gap, exponent);
        auto errors = entries.values;
        EncodeSparse(entries.indices, errors, count, {.values = type}, bytes);
        ASSERT_THAT(decoder.Decode(bytes, count), IsOk());
        ASSERT_TRUE(std::ranges::equal(decoder.indices(), entries.indices));
        for (size_t i = 0; i < errors.size(); ++i) {
          const float value = entries.values[i], decoded = decoder.values()[i];
          ASSERT_EQ(static_cast<double>(decoded) + errors[i], value) << i;  // in twice the precision
          const double relative = type == ValueType::kF32 ? 0 : type == ValueType::kF16 ? 0x1p-11 : 0x1p-8;
          if (exponent > -100) {
            ASSERT_LE(std::abs(errors[i]), relative * std::abs(value)) << i;
          }
        }
      }
    }
  }
}

TEST(Sparse, PassesOnWhatIsNotFinite) {
  SparseDecoder decoder;
  std::vector<std::byte> bytes;
  for (const ValueType type : kTypes) {
    std::vector<float> values = {1, kInf, -kInf, std::nanf(""), 3e38f};
    EncodeSparse(std::vector<uint32_t>{0, 1, 2, 3, 4}, values, 5, {.values = type}, bytes);
    ASSERT_THAT(decoder.Decode(bytes, 5), IsOk());
    EXPECT_EQ(decoder.values()[1], kInf);
    EXPECT_EQ(decoder.values()[2], -kInf);
    EXPECT_TRUE(std::isnan(decoder.values()[3]));
    for (const float error : values) EXPECT_TRUE(std::isfinite(error));
  }
}

TEST(Sparse, RefusesAnotherTensorsPayload) {
  std::vector<std::byte> bytes;
  std::vector<float> values = {1, 2};
  EncodeSparse(std::vector<uint32_t>{3, 4}, values, 5, {}, bytes);
  SparseDecoder decoder;
  EXPECT_THAT(decoder.Decode(bytes, 6), MatchesStatus(absl::StatusCode::kDataLoss, "of 5 elements instead of 6"));
  bytes.push_back({});
  EXPECT_THAT(decoder.Decode(bytes, 5), MatchesStatus(absl::StatusCode::kDataLoss, "left over"));
  for (size_t size = 0; size + 1 < bytes.size(); ++size) {
    EXPECT_THAT(decoder.Decode(std::span(bytes).first(size), 5), MatchesStatus(absl::StatusCode::kDataLoss, ""));
  }
}

}  // namespace
}  // namespace gyre::compression
