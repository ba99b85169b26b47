#include "compression/index_code.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "support/mutator.h"

namespace gyre::compression {
namespace {

using support::Mutator;

constexpr IndexCode kCodes[] = {IndexCode::kRice, IndexCode::kBlocks16, IndexCode::kEliasFano, IndexCode::kBitmap};

// Each of `range` positions with the same probability.
std::vector<uint32_t> Spread(Mutator& random, uint32_t range, double density) {
  std::vector<uint32_t> indices;
  const auto below = static_cast<uint64_t>(density * 1e9);
  for (uint32_t i = 0; i < range; ++i) {
    if (random.Below(1'000'000'000) < below) indices.push_back(i);
  }
  return indices;
}

std::vector<std::byte> Encoded(IndexCode code, const std::vector<uint32_t>& indices, uint32_t range) {
  std::vector<std::byte> bytes;
  EncodeIndices(code, IndexParameter(code, static_cast<int64_t>(indices.size()), range), indices, range, bytes);
  return bytes;
}

void ExpectRoundTrip(const std::vector<uint32_t>& indices, uint32_t range) {
  const auto count = static_cast<int64_t>(indices.size());
  for (const IndexCode code : kCodes) {
    SCOPED_TRACE(std::string(IndexCodeName(code)) + " " + std::to_string(count) + " of " + std::to_string(range));
    const auto bytes = Encoded(code, indices, range);
    std::vector<uint32_t> decoded(indices.size());
    ASSERT_TRUE(DecodeIndices(code, IndexParameter(code, count, range), bytes, range, decoded));
    EXPECT_EQ(decoded, indices);
    if (code != IndexCode::kRice) {
      EXPECT_EQ(static_cast<int64_t>(bytes.size()), ExpectedBytes(code, count, range));
    }
  }
}

TEST(IndexCode, RoundTripsAtEveryDensity) {
  Mutator random(1);
  for (const uint32_t range : {1u, 2u, 7u, 64u, 1000u, 65535u, 65536u, 200'003u}) {
    for (const double density : {0.0, 0.0001, 0.001, 0.01, 0.1, 0.5, 0.99, 1.0}) {
      ExpectRoundTrip(Spread(random, range, density), range);
    }
  }
}

TEST(IndexCode, RoundTripsWhatIsNotSpreadEvenly) {
  const uint32_t range = kMaxRange;
  ExpectRoundTrip({0}, range);
  ExpectRoundTrip({range - 1}, range);  // a quotient of thousands of bits
  ExpectRoundTrip({0, range - 1}, range);
  ExpectRoundTrip({65534, 65535, 65536, 131069, 131070}, range);  // at the ends of blocks
  std::vector<uint32_t> block(65535);
  std::iota(block.begin(), block.end(), 65535u);  // a whole block
  ExpectRoundTrip(block, range);
  block.push_back(range - 1);
  ExpectRoundTrip(block, range);
}

TEST(IndexCode, RiceStaysBelowItsBound) {
  Mutator random(2);
  const auto indices = Spread(random, kMaxRange, 0.001);
  const auto bytes = Encoded(IndexCode::kRice, indices, kMaxRange);
  const double bits = 8.0 * static_cast<double>(bytes.size()) / static_cast<double>(indices.size());
  EXPECT_LE(bits, 11.6);  // entropy: 11.41
  EXPECT_NEAR(static_cast<double>(ExpectedBytes(IndexCode::kRice, static_cast<int64_t>(indices.size()), kMaxRange)),
              static_cast<double>(bytes.size()), 0.01 * static_cast<double>(bytes.size()));
}

TEST(IndexCode, AppendsToWhatIsThere) {
  for (const IndexCode code : kCodes) {
    std::vector<std::byte> bytes(3, std::byte{7});
    const std::vector<uint32_t> indices = {1, 5, 8};
    EncodeIndices(code, IndexParameter(code, 3, 9), indices, 9, bytes);
    EXPECT_EQ(bytes[0], std::byte{7});
    EXPECT_EQ(bytes[2], std::byte{7});
    const std::vector<std::byte> own(bytes.begin() + 3, bytes.end());
    EXPECT_EQ(own, Encoded(code, indices, 9));
  }
}

TEST(IndexCode, RefusesWhatIsNoEncoding) {
  const std::vector<uint32_t> indices = {3, 70'000, 70'001, 199'999};
  std::vector<uint32_t> decoded(4), fewer(3), more(5);
  for (const IndexCode code : kCodes) {
    SCOPED_TRACE(std::string(IndexCodeName(code)));
    const int parameter = IndexParameter(code, 4, 200'000);
    auto bytes = Encoded(code, indices, 200'000);
    EXPECT_FALSE(DecodeIndices(code, parameter, bytes, 199'999, decoded));  // the last lies beyond
    EXPECT_FALSE(DecodeIndices(code, parameter, bytes, 200'000, fewer));
    EXPECT_FALSE(DecodeIndices(code, parameter, bytes, 200'000, more));
    EXPECT_FALSE(DecodeIndices(code, parameter + 30, bytes, 200'000, decoded));
    EXPECT_FALSE(DecodeIndices(code, parameter, bytes, kMaxRange + 1, decoded));
    EXPECT_FALSE(DecodeIndices(code, parameter, std::span(bytes).first(bytes.size() - 1), 200'000, decoded));
    bytes.push_back({});
    EXPECT_FALSE(DecodeIndices(code, parameter, bytes, 200'000, decoded));
  }
}

TEST(IndexCode, IsChosenByDensityAndLink) {
  constexpr double kFast = std::numeric_limits<double>::infinity(), kSlow = 1.25e8;
  EXPECT_EQ(ChooseIndexCode(4194, kMaxRange, kSlow), IndexCode::kRice);
  EXPECT_EQ(ChooseIndexCode(4194, kMaxRange, kFast), IndexCode::kBlocks16);
  EXPECT_EQ(ChooseIndexCode(kMaxRange / 2, kMaxRange, kSlow), IndexCode::kBitmap);
  EXPECT_EQ(ChooseIndexCode(0, kMaxRange, kSlow), IndexCode::kRice);  // no bytes at all
}

}  // namespace
}  // namespace gyre::compression
